"""The ledger and its journal together: what is decided is written, then true, and durable before anybody is told.

Lives on the brain's loop. `turn` is held by whoever decides and writes; syncs and rewrites run beside it in threads.
Knows neither workers nor libraries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sync_runtime.errors import SpoolError
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import Change, Policy
from sync_runtime.work.store import WorkStore

_log = logging.getLogger(__name__)


class Books:
    """An open ledger."""

    def __init__(self, folder: Path, term: int, policy: Policy) -> None:
        self.turn = asyncio.Lock()
        self._syncing = asyncio.Lock()
        self._store = WorkStore(folder)
        self.ledger = Ledger(term, policy)
        self._store.load(self.ledger, time.monotonic())
        for problem in self._store.problems:
            _log.warning("%s", problem)
        self._written = self._synced = 0
        self.write(self.ledger.begin())
        self._store.sync()
        self._synced = self._written

    @property
    def size_bytes(self) -> int:
        """Of the journal."""
        return self._store.size_bytes

    def write(self, changes: Iterable[Change]) -> None:
        """Changes become true, or SpoolError is raised and none does. The caller holds `turn`."""
        found = list(changes)
        if not found:
            return
        self._store.write(found)
        self._written += 1
        now_s = time.monotonic()
        for change in found:
            self.ledger.apply(change, now_s)

    async def durable(self) -> None:
        """Waits until all that was written before is on the disk; raises SpoolError. The caller does not hold `turn`.

        Those that wait together share one sync.
        """
        upto = self._written
        async with self._syncing:
            if self._synced >= upto:
                return
            upto = self._written
            try:
                await asyncio.to_thread(self._store.sync)
            except SpoolError as error:
                _log.warning("%s; the work ledger is written anew", error)
                await self._rewrite(self.ledger)
            self._synced = max(self._synced, upto)

    async def replace(self, make: Callable[[Ledger], Ledger]) -> Ledger:
        """Puts the ledger that `make` makes of this one in its place, durably; returns the old one. Raises SyncError.

        The caller does not hold `turn`: locks are taken in one order, `_syncing` first.
        """
        async with self._syncing, self.turn:
            before = self.ledger
            made = await asyncio.to_thread(make, before)
            await asyncio.to_thread(self._store.rewrite, list(made.snapshot()))
            self.ledger = made
            self._synced = self._written
        return before

    async def tidy(self) -> None:
        """Writes the journal anew where much of it is of groups that are gone."""
        if self._store.wants_rewrite(self.ledger.prompt_bytes + self.ledger.result_bytes):
            async with self._syncing:
                await self._rewrite(self.ledger)

    def close(self) -> None:
        """Lets go of the file."""
        self._store.close()

    async def _rewrite(self, ledger: Ledger) -> None:
        async with self.turn:
            await asyncio.to_thread(self._store.rewrite, list(ledger.snapshot()))
            self._synced = self._written
