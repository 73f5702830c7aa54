"""Objects made here: sent while they are written, visible when committed, gone without a trace otherwise."""

from __future__ import annotations

import gc
import hashlib
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import parse_key
from sync_runtime.errors import FormatError, SpoolError, SpoolLockedError
from tests.unit.bucket.samples import (
    BUCKET_BYTES,
    LAYOUT_HASH,
    LINEAGE,
    envelope_for,
    files,
    finished,
    link,
    open_spool,
    payload,
    store,
)

DATA = payload(700_000)


def test_buckets_can_be_read_while_the_object_is_written(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        writer = spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES, streams=1)
        kept = writer.write(DATA[:500_000])
        assert kept
        for bucket in kept:
            offset, data, sha256 = writer.read(bucket.index)
            assert bytes(data) == DATA[offset : offset + bucket.size_bytes]
            assert sha256 == hashlib.sha256(data).digest()
        assert spool.stored(link(1)) is None
        kept += writer.write(DATA[500_000:])
        kept += writer.finish()
        assert [bucket.index for bucket in kept] == list(range(len(kept)))
        assert sum(bucket.size_bytes for bucket in kept) == len(DATA)


def test_a_committed_object_reads_back_also_after_a_restart(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        envelope = store(spool, link(1), DATA, label="step 12").envelope
    with open_spool(tmp_path) as spool:
        (stored,) = spool.objects()
        assert (stored.key, stored.envelope, stored.facts.label) == (link(1), envelope, "step 12")
        assert bytes(stored.view()) == DATA
        pieces = [stored.read(index) for index in range(stored.num_buckets)]
        assert b"".join(data for _, data, _ in pieces) == DATA
        assert stored.manifest.size_bytes == stored.size_bytes == len(DATA) == spool.size_bytes
        assert files(tmp_path) == [f"{link(1).file_stem}.data", f"{link(1).file_stem}.manifest"]


def test_an_aborted_object_leaves_nothing(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        writer = finished(spool, link(1), DATA)
        writer.abort()
        writer.abort()
        assert files(tmp_path) == []
        with pytest.raises(SpoolError, match="given up"):
            writer.commit(envelope_for(link(1), writer.buckets))
        store(spool, link(1), DATA)


def test_an_object_that_was_not_finished_when_the_spool_closed_is_gone(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES).write(DATA)
    assert files(tmp_path) == []


def test_a_manifest_of_other_bytes_is_refused_and_the_object_dropped(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        other = finished(spool, link(2), DATA[1:])
        writer = finished(spool, link(1), DATA)
        with pytest.raises(SpoolError, match="another object"):
            writer.commit(envelope_for(link(1), other.buckets))
        other.abort()
        assert files(tmp_path) == []


def test_bytes_that_are_no_manifest_are_refused_and_the_object_dropped(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        with pytest.raises(FormatError):
            finished(spool, link(1), DATA).commit(b"SGM1 is not enough")
        assert files(tmp_path) == []


def test_an_unfinished_object_cannot_be_committed(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        writer = spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        writer.write(DATA)
        with pytest.raises(SpoolError, match="before it is finished"):
            writer.commit(envelope_for(link(1), writer.buckets))


def test_one_key_is_made_once_at_a_time(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        writer = spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        with pytest.raises(SpoolError, match="being made"):
            spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        with pytest.raises(SpoolError, match="being made"):
            spool.receive(link(1))
        writer.abort()
        store(spool, link(1))
        with pytest.raises(SpoolError, match="already"):
            spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        spool.receive(link(2))
        with pytest.raises(SpoolError, match="arriving"):
            spool.create(link(2), LAYOUT_HASH, BUCKET_BYTES)


def test_an_evicted_object_stays_readable_for_those_who_hold_it(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        store(spool, link(1), DATA)
        stored = spool.stored(link(1))
        assert stored is not None
        before = stored.read(0)[1]
        envelope = stored.envelope
        spool.remove(link(1))
        assert files(tmp_path) == []
        assert spool.stored(link(1)) is None
        store(spool, link(1), payload(700_000, seed=2))  # another object under the same name
        assert bytes(stored.view()) == DATA
        assert stored.envelope == envelope
        assert bytes(before) == DATA[: len(before)]


def test_reading_holds_no_descriptors_once_the_bytes_are_let_go(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system does not list a process's descriptors in /proc")
    with open_spool(tmp_path) as spool:
        for seq in range(1, 6):
            store(spool, link(seq), DATA)
        gc.collect()
        before = open_files()
        for _ in range(3):
            for stored in spool.objects():
                assert bytes(stored.view()) == DATA
                stored.read(1)
        assert open_files() == before


def test_a_second_process_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    with pytest.raises(SpoolLockedError, match="another process"):
        open_spool(tmp_path)
    spool.close()
    open_spool(tmp_path).close()
    with pytest.raises(SpoolError, match="closed"):
        spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)


def test_a_bucket_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        writer = spool.create(link(1), LAYOUT_HASH, BUCKET_BYTES)
        with pytest.raises(SpoolError, match="not written yet"):
            writer.read(0)
        stored = store(spool, link(2))
        for index in (-1, 1):
            with pytest.raises(SpoolError, match="none with number"):
                stored.read(index)


def test_anchors_and_ways_from_other_lineages_have_names_on_the_disk_too(tmp_path: Path) -> None:
    keys = [parse_key(f"{LINEAGE}/anchor-5.2"), parse_key(f"{LINEAGE}/{'33' * 16}:5-5.fast")]
    with open_spool(tmp_path) as spool:
        for key in keys:
            store(spool, key)
    with open_spool(tmp_path) as spool:
        assert {stored.key for stored in spool.objects()} == set(keys)
