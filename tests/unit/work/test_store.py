"""The journal in the spool: what was written is there after any crash, and a full disk loses nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sync_runtime.errors import SpoolCorruptError, SpoolError, SpoolFullError, WorkError
from sync_runtime.work import store as store_module
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import Change, Prompts
from sync_runtime.work.records import MAGIC, pack, parse
from sync_runtime.work.state import from_json, to_json
from sync_runtime.work.store import WorkStore
from tests.unit.work.ledgers import Kept, version


def opened(folder: Path) -> tuple[WorkStore, Ledger]:
    store, ledger = WorkStore(folder), Ledger(3)
    store.load(ledger, 0.0)
    return store, ledger


def busy() -> Kept:
    kept = Kept()
    kept.submit("a", "b", "c", "d")
    first, _ = kept.lease("w", version(1)), kept.lease("v", version(1))
    kept.offer(first)
    return kept


def changes(ledger: Ledger) -> list[Change]:
    return list(ledger.snapshot())


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    kept = busy()
    store, _ = opened(tmp_path)
    store.write(kept.written)
    store.sync()
    store.close()
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    assert store.problems == []
    store.close()


def test_a_tail_cut_anywhere_leaves_what_was_whole(tmp_path: Path) -> None:
    kept = busy()
    whole = MAGIC + b"".join(pack(one) for one in kept.written)
    ends = [end for _, end in parse(memoryview(whole))]
    for cut in range(len(MAGIC), len(whole)):
        (tmp_path / "ledger").write_bytes(whole[:cut])
        store, ledger = opened(tmp_path)
        count = sum(end <= cut for end in ends)
        expected = Ledger(3)
        for one in kept.written[:count]:
            expected.apply(one, 0.0)
        assert changes(ledger) == changes(expected)
        assert bool(store.problems) == (cut not in (*ends, len(MAGIC)))
        store.write(ledger.begin())  # goes on behind what was whole
        store.close()
        store, again = opened(tmp_path)
        assert again.epoch == ledger.epoch + 1
        store.close()


def test_damage_in_the_middle_is_kept_beside_and_told(tmp_path: Path) -> None:
    kept = busy()
    whole = bytearray(MAGIC + b"".join(pack(one) for one in kept.written))
    whole[len(whole) // 2] ^= 1
    (tmp_path / "ledger").write_bytes(whole)
    store, _ = opened(tmp_path)
    assert "damaged" in store.problems[0]
    assert (tmp_path / "ledger.damaged").read_bytes() == bytes(whole)
    store.close()


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b"something else")
    with pytest.raises(SpoolCorruptError, match="no work ledger"):
        opened(tmp_path)


def test_a_full_disk_is_a_clear_error_and_the_journal_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = busy()
    store, _ = opened(tmp_path)
    store.write(kept.written)
    real, room = os.pwrite, [30]

    def full(handle: int, data: memoryview, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        written = real(handle, data[: room[0]], offset)
        room[0] -= written
        return written

    more = kept.ledger.submit([Prompts("e", 1, b"x" * 500)])
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(SpoolFullError, match="no room left while writing the work ledger"):
            store.write(more)
    store.close()
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    assert store.problems == []
    store.write(more)
    store.close()
    store, ledger = opened(tmp_path)
    assert ledger.pending == 5
    store.close()


def test_after_a_failed_sync_the_journal_must_be_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = busy()
    store, _ = opened(tmp_path)
    store.write(kept.written)

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        with pytest.raises(SpoolError, match="syncing"):
            store.sync()
    with pytest.raises(SpoolError, match="written anew"):
        store.sync()
    assert store.wants_rewrite(1 << 40)
    store.rewrite(kept.ledger.snapshot())
    store.sync()
    store.close()
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    store.close()


def test_a_journal_that_has_grown_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SLACK_BYTES", 1000)
    kept = Kept()
    store, _ = opened(tmp_path)
    store.write(kept.written)
    for number in range(20):
        written = len(kept.written)
        kept.submit(f"g{number}")
        kept.offer(kept.lease("w", version(1)))
        kept.consume()
        store.write(kept.written[written:])
    before = store.size_bytes
    assert store.wants_rewrite(0)
    store.rewrite(kept.ledger.snapshot())
    assert store.size_bytes < before / 10
    assert not store.wants_rewrite(0)
    store.close()
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    store.close()


def test_a_crash_while_it_is_written_anew_leaves_the_old_one(tmp_path: Path) -> None:
    kept = busy()
    store, _ = opened(tmp_path)
    store.write(kept.written)
    store.close()
    (tmp_path / ".new-ledger").write_bytes(MAGIC + b"half")
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    assert not (tmp_path / ".new-ledger").exists()
    store.close()


def test_a_journal_that_was_closed_is_somebody_elses(tmp_path: Path) -> None:
    kept = busy()
    store, _ = opened(tmp_path)
    store.write(kept.written)
    store.close()
    with pytest.raises(SpoolError, match="closed"):
        store.write(kept.written)
    with pytest.raises(SpoolError, match="closed"):
        store.sync()
    with pytest.raises(SpoolError, match="closed"):
        store.rewrite([])
    store, ledger = opened(tmp_path)
    assert changes(ledger) == changes(kept.ledger)
    store.close()


def test_a_state_puts_the_ledger_back_where_it_was() -> None:
    kept = busy()
    state = to_json(kept.ledger)
    held = {one.id: one for one in kept.ledger.leases}
    counted = kept.consume()
    assert counted == "a"
    kept.submit("e")
    again = Kept(ledger=from_json(state, kept.ledger, 0.0))
    assert (again.ledger.pending, again.ledger.queued, again.ledger.done) == (4, 3, 1)
    assert again.consume() == "a"  # consumed after the checkpoint: delivered again
    for lease in held.values():
        verdict = again.offer(lease)
        assert not verdict.counted
        assert "older checkpoint" in verdict.message
    assert again.submit("e") == 1


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b'{"format":1}',
        b'{"format":2,"epoch":1,"order":"fixed","next_number":0,"groups":[],"done":[]}',
        b'{"format":1,"epoch":-1,"order":"fixed","next_number":0,"groups":[],"done":[]}',
        b'{"format":1,"epoch":1,"order":"any","next_number":0,"groups":[],"done":[]}',
        b'{"format":1,"epoch":1,"order":"fixed","next_number":0,"groups":[{}],"done":[]}',
        b'{"format":1,"epoch":1,"order":"fixed","next_number":0,"groups":[],"done":[{"number":1}]}',
        b'{"format":1,"epoch":1,"order":"fixed","next_number":0,"groups":[{"number":0,"id":"a","samples":1,"attempts":0,'
        b'"payload":"?"}],"done":[]}',
    ],
)  # fmt: skip
def test_a_state_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(WorkError):
        from_json(text, Ledger(1), 0.0)
