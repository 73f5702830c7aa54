"""Objects that arrive: in any order, more than once, over restarts, and against parents that lie."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MAX_BUCKETS, MAX_PARTIAL_OBJECTS
from sync_runtime.bucket.spool import ObjectReceiver
from sync_runtime.errors import DigestError, FormatError, LimitError, SpoolError
from tests.unit.bucket.samples import cut, envelope_for, files, link, manifest_for, named, open_spool, payload, put

DATA = payload(900_000)
PIECES = cut(DATA, streams=2)
COUNT = len(PIECES)
ENVELOPE = envelope_for(link(1), named(PIECES))
MANIFEST = manifest_for(link(1), named(PIECES))


def put_bytes(receiver: ObjectReceiver, index: int, offset: int, data: bytes) -> bool:
    return receiver.put(index, offset, memoryview(data), hashlib.sha256(data).digest())


def test_buckets_in_any_order_make_the_object(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        assert put(receiver, PIECES, *reversed(range(COUNT))) == [True] * COUNT
        assert receiver.have() == [(0, COUNT)]
        assert receiver.check(MANIFEST) == []
        stored = receiver.commit(ENVELOPE)
        assert bytes(stored.view()) == DATA
        assert spool.stored(link(1)) is stored
        assert spool.partial() == ()
        assert files(tmp_path) == [f"{link(1).file_stem}.data", f"{link(1).file_stem}.manifest"]


def test_a_bucket_that_is_kept_already_is_not_kept_again(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        assert put(receiver, PIECES, 3, 3, 3) == [True, False, False]
        assert receiver.have() == [(3, 4)]
        assert receiver.kept_bytes == len(PIECES[3][1])


def test_a_relay_reads_a_bucket_before_the_manifest_is_known(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, 2)
        offset, data, sha256 = receiver.read(2)
        assert (offset, bytes(data), sha256) == PIECES[2]
        with pytest.raises(SpoolError, match="not arrived"):
            receiver.read(1)


def test_what_arrived_before_a_restart_is_not_asked_for_again(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        put(spool.receive(link(1)), PIECES, 0, 1, 4)
    with open_spool(tmp_path) as spool:
        assert spool.partial() == (link(1),)
        receiver = spool.receive(link(1))
        assert receiver.have() == [(0, 2), (4, 5)]
        missing = receiver.check(MANIFEST)
        assert missing == [index for index in range(COUNT) if index not in {0, 1, 4}]
        put(receiver, PIECES, *missing)
        assert bytes(receiver.commit(ENVELOPE).view()) == DATA


def test_asking_twice_gives_the_same_receiver(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        assert spool.receive(link(1)) is spool.receive(link(1))


def test_a_damaged_bucket_is_not_kept(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        offset, data, sha256 = PIECES[0]
        with pytest.raises(DigestError, match="damaged"):
            receiver.put(0, offset, memoryview(b"!" + data[1:]), sha256)
        assert receiver.have() == []
        assert put(receiver, PIECES, 0) == [True]


@pytest.mark.parametrize(
    ("index", "offset", "size_bytes"),
    [(-1, 0, 9), (MAX_BUCKETS, 0, 9), (0, -1, 9), (0, 0, 0), (0, 1 << 50, 9), (0, 0, MAX_BUCKET_BYTES + 1)],
)
def test_numbers_beyond_the_limits_are_refused(index: int, offset: int, size_bytes: int, tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool, pytest.raises(LimitError):
        put_bytes(spool.receive(link(1)), index, offset, bytes(size_bytes))


@pytest.mark.parametrize(("index", "offset"), [(5, 100), (5, 100_100), (1, 500_000)])
def test_a_bucket_that_overlaps_or_contradicts_another_is_refused(index: int, offset: int, tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put_bytes(receiver, 1, 50_000, b"a" * 60_000)
        with pytest.raises(FormatError, match="contradicts"):
            put_bytes(receiver, index, offset, b"b" * 60_000)
        assert receiver.have() == [(1, 2)]


def test_buckets_that_the_manifest_does_not_name_are_thrown_away(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, 0, 1)
        put_bytes(receiver, 2, PIECES[2][0], b"forged" + PIECES[2][1][6:])
        assert receiver.check(MANIFEST) == list(range(2, COUNT))
        with pytest.raises(FormatError, match="names"):
            put_bytes(receiver, 2, PIECES[2][0], b"forged" + PIECES[2][1][6:])
        put(receiver, PIECES, *range(2, COUNT))
        assert bytes(receiver.commit(ENVELOPE).view()) == DATA


def test_a_bucket_behind_the_end_costs_what_arrived_but_no_reader_its_bytes(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, 0)
        put_bytes(receiver, 99, len(DATA) + 4096, b"far" * 30_000)
        held = receiver.read(99)[1]
        assert receiver.check(MANIFEST) == list(range(COUNT))
        put(receiver, PIECES)
        assert bytes(receiver.commit(ENVELOPE).view()) == DATA
        assert bytes(held) == b"far" * 30_000  # would end the process if the file had been cut


def test_a_journal_written_anew_holds_after_a_restart(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, 0)
        put_bytes(receiver, 2, PIECES[2][0], b"forged" + PIECES[2][1][6:])
        receiver.check(MANIFEST)
        put(receiver, PIECES, 3)
    with open_spool(tmp_path) as spool:
        assert spool.receive(link(1)).have() == [(0, 1), (3, 4)]


def test_an_incomplete_object_is_not_committed(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, *range(1, COUNT))
        with pytest.raises(SpoolError, match="1 buckets"):
            receiver.commit(ENVELOPE)
        put(receiver, PIECES, 0)
        receiver.commit(ENVELOPE)


def test_a_manifest_of_another_object_is_refused(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(2))
        put(receiver, PIECES)
        with pytest.raises(FormatError):
            receiver.commit(ENVELOPE)
        assert receiver.have() == [(0, COUNT)]


def test_an_aborted_object_leaves_nothing_and_takes_nothing(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        put(receiver, PIECES, 0)
        receiver.abort()
        assert files(tmp_path) == []
        assert spool.partial() == ()
        with pytest.raises(SpoolError, match="given up"):
            put(receiver, PIECES, 1)
        assert spool.receive(link(1)).have() == []


def test_of_too_many_partial_objects_the_oldest_goes(tmp_path: Path) -> None:
    keys: list[ObjectKey] = [link(seq) for seq in range(1, MAX_PARTIAL_OBJECTS + 3)]
    with open_spool(tmp_path) as spool:
        for key in keys:
            put(spool.receive(key), PIECES, 0)
        assert spool.partial() == tuple(keys[2:])
    assert len(files(tmp_path)) == 2 * MAX_PARTIAL_OBJECTS
    with open_spool(tmp_path) as spool:
        assert set(spool.partial()) == set(keys[2:])


def test_many_threads_put_and_read_at_once(tmp_path: Path) -> None:
    fresh: list[int] = []
    failures: list[str] = []
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))

        def run(first: int) -> None:
            for step in range(COUNT):
                index = (first + step) % COUNT
                if put(receiver, PIECES, index) == [True]:
                    fresh.append(index)
                offset, data, _ = receiver.read(index)
                if bytes(data) != DATA[offset : offset + len(data)]:
                    failures.append(f"bucket {index}")

        threads = [threading.Thread(target=run, args=(at * 3,)) for at in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(fresh) == list(range(COUNT))
        assert failures == []
        assert bytes(receiver.commit(ENVELOPE).view()) == DATA


def test_a_bucket_that_comes_once_more_after_the_last_is_no_fault(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        assert [spool.keep(link(1), at, *args) for at, args in enumerate(_arguments())] == [True] * COUNT
        receiver = spool.receive(link(1))
        assert not receiver.is_complete
        receiver.commit(ENVELOPE)
        assert receiver.is_complete
        assert put(receiver, PIECES, 1) == [False]
        assert not spool.keep(link(1), 1, *_arguments()[1])
        with pytest.raises(SpoolError, match="already"):
            put_bytes(receiver, 1, 0, b"other")


def _arguments() -> list[tuple[int, memoryview, bytes]]:
    return [(offset, memoryview(data), sha256) for offset, data, sha256 in PIECES]
