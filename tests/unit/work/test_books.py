"""Ledger and journal together: who waits shares a sync, one that fails costs nothing, and a grown journal shrinks."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from sync_runtime.errors import SpoolFullError
from sync_runtime.session.work.books import Books
from sync_runtime.work import store
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import Done, Policy, Prompts
from sync_runtime.work.state import from_json, to_json


def prompts(*ids: str, size_bytes: int = 10) -> list[Prompts]:
    return [Prompts(one, 1, b"x" * size_bytes) for one in ids]


async def submit(books: Books, *ids: str, size_bytes: int = 10) -> None:
    async with books.turn:
        books.write(books.ledger.submit(prompts(*ids, size_bytes=size_bytes)))
    await books.durable()


def read_again(folder: Path) -> Ledger:
    books = Books(folder, 1, Policy())
    books.close()
    return books.ledger


def test_those_who_wait_together_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        books = Books(tmp_path, 1, Policy())
        calls: list[int] = []
        real = os.fdatasync

        def counted(handle: int) -> None:
            calls.append(handle)
            real(handle)

        monkeypatch.setattr(os, "fdatasync", counted)
        await asyncio.gather(*(submit(books, f"g{at}") for at in range(20)))
        assert 1 <= len(calls) <= 2
        books.close()

    asyncio.run(run())
    assert read_again(tmp_path).pending == 20


def test_a_sync_that_fails_writes_the_journal_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        books = Books(tmp_path, 1, Policy())
        real, failures = os.fdatasync, [1]

        def broken(handle: int) -> None:
            if failures[0]:
                failures[0] -= 1
                raise OSError(errno.EIO, "broken")
            real(handle)

        monkeypatch.setattr(os, "fdatasync", broken)
        inode = (tmp_path / "ledger").stat().st_ino
        await submit(books, "a")
        assert (tmp_path / "ledger").stat().st_ino != inode
        await submit(books, "b")
        books.close()

    asyncio.run(run())
    assert read_again(tmp_path).pending == 2


def test_a_disk_that_stays_full_is_told_and_later_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        books = Books(tmp_path, 1, Policy())
        real = os.pwrite

        def full(handle: int, data: bytes, offset: int) -> int:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(SpoolFullError):
            await submit(books, "a")
        assert books.ledger.pending == 0  # what could not be written is not true
        monkeypatch.setattr(os, "pwrite", real)
        await submit(books, "a")
        books.close()

    asyncio.run(run())
    assert read_again(tmp_path).pending == 1


def test_a_journal_that_has_grown_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SLACK_BYTES", 10_000)

    async def run() -> None:
        books = Books(tmp_path, 1, Policy(max_attempts=1))
        for at in range(10):
            await submit(books, f"g{at}", size_bytes=5000)
            async with books.turn:
                group = books.ledger.next_group()
                assert group is not None
                books.write([Done(group.number, None, "w", None, 0, "given up", b"")])
                books.write(books.ledger.consume(group.number))
        assert books.size_bytes > 50_000
        await books.tidy()
        assert books.size_bytes < 1000
        await submit(books, "last")
        books.close()

    asyncio.run(run())
    assert read_again(tmp_path).pending == 1


def test_another_ledger_takes_the_place_of_one_durably(tmp_path: Path) -> None:
    async def run() -> None:
        books = Books(tmp_path, 1, Policy())
        await submit(books, "a", "b")
        state = to_json(books.ledger)
        await submit(books, "c")
        before = await books.replace(lambda ledger: from_json(state, ledger, 0.0))
        assert (before.pending, books.ledger.pending) == (3, 2)
        assert books.ledger.epoch > before.epoch
        books.close()

    asyncio.run(run())
    assert read_again(tmp_path).pending == 2


def test_every_start_is_a_new_epoch(tmp_path: Path) -> None:
    epochs = [read_again(tmp_path).epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))
