"""A folder after a crash, a bad disk or a stranger's visit: swept, refused or left alone, never believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.journal import RECORD_BYTES, pack_head, pack_journal, parse_journal
from sync_runtime.bucket.objects import KeptBucket
from sync_runtime.errors import FormatError, SpoolCorruptError, SpoolError
from tests.unit.bucket.samples import (
    BUCKET_BYTES,
    LAYOUT_HASH,
    cut,
    envelope_for,
    files,
    link,
    named,
    open_spool,
    payload,
    put,
    store,
)

DATA = payload(400_000)
PIECES = cut(DATA)
COUNT = len(PIECES)


def data_file(folder: Path, seq: int = 1) -> Path:
    return folder / "objects" / f"{link(seq).file_stem}.data"


def journal_file(folder: Path, seq: int = 1) -> Path:
    return folder / "objects" / f"{link(seq).file_stem}.journal"


def manifest_file(folder: Path, seq: int = 1) -> Path:
    return folder / "objects" / f"{link(seq).file_stem}.manifest"


def partial(folder: Path, *indices: int) -> None:
    with open_spool(folder) as spool:
        put(spool.receive(link(1)), PIECES, *indices)


@given(st.integers(0, 8), st.data())
def test_a_journal_cut_anywhere_keeps_its_whole_records(count: int, data: st.DataObject) -> None:
    buckets = [KeptBucket(at, at * 10, 10, bytes([at]) * 32) for at in range(count)]
    whole = pack_journal(link(1), buckets)
    head = len(pack_head(link(1)))
    end = data.draw(st.integers(head, len(whole)))
    assert parse_journal(whole[:end], link(1)) == buckets[: (end - head) // RECORD_BYTES]


@given(st.binary(max_size=300))
def test_no_bytes_make_the_journals_parser_fail_otherwise(tail: bytes) -> None:
    assert parse_journal(pack_head(link(1)) + tail, link(1)) == []
    with pytest.raises(FormatError):
        parse_journal(tail, link(1))


def test_a_damaged_record_ends_the_journal() -> None:
    buckets = [KeptBucket(at, at * 10, 10, bytes([at]) * 32) for at in range(4)]
    raw = bytearray(pack_journal(link(1), buckets))
    raw[len(pack_head(link(1))) + 2 * RECORD_BYTES + 9] ^= 1
    assert parse_journal(bytes(raw), link(1)) == buckets[:2]


def test_buckets_whose_bytes_the_disk_lost_are_asked_for_again(tmp_path: Path) -> None:
    partial(tmp_path, *range(COUNT))
    with data_file(tmp_path).open("r+b") as file:
        file.seek(PIECES[2][0] + 5)
        file.write(b"\0\0\0\0\0\0\0\0")
        file.truncate(PIECES[4][0] + 10)
    with open_spool(tmp_path) as spool:
        assert spool.receive(link(1)).have() == [(0, 2), (3, 4)]


def test_a_truncated_journal_costs_only_its_last_bucket(tmp_path: Path) -> None:
    partial(tmp_path, 0, 1, 2)
    os.truncate(journal_file(tmp_path), journal_file(tmp_path).stat().st_size - 1)
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        assert receiver.have() == [(0, 2)]
        put(receiver, PIECES)
        receiver.commit(envelope_for(link(1), named(PIECES)))


@pytest.mark.parametrize("content", [b"", b"SGJ1", b"nonsense" * 40])
def test_a_journal_that_is_none_begins_the_object_anew(content: bytes, tmp_path: Path) -> None:
    partial(tmp_path, 0)
    journal_file(tmp_path).write_bytes(content)
    with open_spool(tmp_path) as spool:
        receiver = spool.receive(link(1))
        assert receiver.have() == []
        put(receiver, PIECES)
        receiver.commit(envelope_for(link(1), named(PIECES)))


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    open_spool(tmp_path).close()
    data_file(tmp_path).write_bytes(DATA)
    journal_file(tmp_path, 2).write_bytes(pack_head(link(2)))
    (tmp_path / "objects" / f".new-{link(3).file_stem}.manifest").write_bytes(b"half")
    (tmp_path / ".new-term").write_bytes(b"half")
    with open_spool(tmp_path) as spool:
        assert files(tmp_path) == []
        assert spool.problems == ()
        assert spool.next_term() == 1
        store(spool, link(1), DATA)


def test_a_journal_left_beside_a_committed_object_is_swept(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        store(spool, link(1), DATA)
    journal_file(tmp_path).write_bytes(pack_head(link(1)))
    with open_spool(tmp_path) as spool:
        assert spool.partial() == ()
        assert not journal_file(tmp_path).exists()
        assert spool.stored(link(1)) is not None


@pytest.mark.parametrize("damage", ["cut data", "no data", "bad manifest", "manifest of another"])
def test_an_object_that_does_not_fit_its_manifest_is_thrown_away_with_a_reason(damage: str, tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        store(spool, link(1), DATA)
        store(spool, link(2), DATA)
    if damage == "cut data":
        os.truncate(data_file(tmp_path), 100)
    elif damage == "no data":
        data_file(tmp_path).unlink()
    elif damage == "bad manifest":
        manifest_file(tmp_path).write_bytes(b"SGM1" + bytes(60))
    else:
        manifest_file(tmp_path).write_bytes(manifest_file(tmp_path, 2).read_bytes())
    with open_spool(tmp_path) as spool:
        assert [stored.key for stored in spool.objects()] == [link(2)]
        assert len(spool.problems) == 1
        assert "thrown away" in spool.problems[0]
        store(spool, link(1), DATA)


def test_a_damaged_bucket_is_found_when_it_is_first_read_after_a_restart(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        store(spool, link(1), DATA)
    with data_file(tmp_path).open("r+b") as file:
        file.seek(10)
        file.write(b"!")
    with open_spool(tmp_path) as spool:
        stored = spool.stored(link(1))
        assert stored is not None
        with pytest.raises(SpoolCorruptError, match="damaged"):
            stored.read(0)
        assert stored.read(1)[0] > 0
        with pytest.raises(SpoolCorruptError, match="damaged"):
            stored.view()
        spool.remove(link(1))
        assert files(tmp_path) == []


def test_strangers_are_left_alone_and_named(tmp_path: Path) -> None:
    open_spool(tmp_path).close()
    (tmp_path / "objects" / "notes.txt").write_text("mine")
    (tmp_path / "layouts" / "notes.txt").write_text("mine")
    (tmp_path / "objects" / f"{link(1).file_stem}.data").mkdir()
    with open_spool(tmp_path) as spool:
        assert len(spool.problems) == 3
        with pytest.raises(SpoolError):
            spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        store(spool, link(2))
    assert (tmp_path / "objects" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".data", ".journal", ".manifest"])
def test_a_link_in_the_place_of_a_file_is_never_followed(suffix: str, tmp_path: Path) -> None:
    folder, precious = tmp_path / "spool", tmp_path / "precious"
    precious.write_bytes(b"untouched")
    with open_spool(folder) as spool:
        put(spool.receive(link(1)), PIECES, 0)
        store(spool, link(2), DATA)
    for seq in (1, 2, 3):
        place = folder / "objects" / f"{link(seq).file_stem}{suffix}"
        place.unlink(missing_ok=True)
        place.symlink_to(precious)
    with open_spool(folder) as spool:
        assert len(spool.problems) == 3
        assert spool.objects() == ()
        assert spool.partial() == ()
    assert precious.read_bytes() == b"untouched"


@pytest.mark.parametrize("name", ["objects", "layouts", "lock", "term"])
def test_a_link_in_the_place_of_a_folder_or_register_is_refused(name: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "spool", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(SpoolCorruptError):
        open_spool(folder)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["lock", "term"])
def test_a_register_is_not_read_through_a_link(name: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "spool", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_bytes(b"7 " + b"a" * 32 + b"\n")
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(SpoolCorruptError):
        open_spool(folder)
    assert elsewhere.read_bytes() == b"7 " + b"a" * 32 + b"\n"


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    open_spool(tmp_path).close()
    os.mkfifo(tmp_path / "term")
    with pytest.raises(SpoolCorruptError, match="plain file"):
        open_spool(tmp_path)
