"""The desk while the disk is full: what could not be written back is written back later."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from sync_runtime.session.work import desk as desk_module
from sync_runtime.work.model import Policy, Prompts
from tests.component.work.storms import Storm
from tests.unit.work.ledgers import OTHER_LINEAGE


async def with_a_lease(storm: Storm) -> None:
    """One group, leased to the first worker."""
    books = storm.desk.books()
    async with books.turn:
        storm.desk.look(books, books.ledger.submit([Prompts("a", 1, b"p")]))
    worker = storm.workers[0]
    worker.connect()
    worker.activate()
    for _ in range(100):
        await worker.take()
        while worker.deliver():
            pass
        await asyncio.sleep(0)
        if worker.held:
            return
    raise AssertionError("no lease was given")


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)


@pytest.mark.parametrize("how", ["lost", "lineage", "expired"])
def test_work_goes_back_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(desk_module, "GRACE_S", 0.0)

    async def run() -> None:
        storm = Storm(tmp_path, 0)
        storm.policy = Policy(lease_s=60)
        await with_a_lease(storm)
        ledger, lease = storm.desk.books().ledger, storm.workers[0].held[0].lease
        with monkeypatch.context() as patched:
            fill(patched)
            if how == "lost":
                storm.workers[0].cut()
            elif how == "lineage":
                storm.publish(0, OTHER_LINEAGE)
            else:
                storm.policy = Policy(lease_s=0.0)
            await asyncio.sleep(0.01)
            await storm.desk.tick()
            assert ledger.find(lease) is not None  # nothing is true that is not written
        await storm.desk.tick()
        assert ledger.find(lease) is None
        assert ledger.pending == 1
        await storm.close()

    asyncio.run(run())
