"""The journal of a ledger in the spool: appended to, synced when somebody is told, written anew when it has grown.

One process owns it (the spool's lock). A change that could not be written is not there: the file is cut back to what it
was. Knows nothing of what changes mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sync_runtime.bucket.durable import TEMPORARY_PREFIX, Folder, disk_errors, write_at
from sync_runtime.errors import SpoolCorruptError, SpoolError
from sync_runtime.work.ledger import Ledger
from sync_runtime.work.model import Change
from sync_runtime.work.records import MAGIC, is_torn, pack, parse

NAME: Final = "ledger"
DAMAGED: Final = "ledger.damaged"
SLACK_BYTES: Final = 16 << 20
"""What a journal may have beyond twice its live contents."""


class WorkStore:
    """An open journal. Not thread-safe, but for `sync` beside `write`."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder.open(folder)
        self._folder.remove(TEMPORARY_PREFIX + NAME)
        self.problems: list[str] = []
        """Sentences about what was found and not used."""
        self._size_bytes = 0
        self._is_doubtful = False
        """A sync failed: what the kernel had not written may be gone, and a later sync would not say so."""
        self._handle = -1
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return self._size_bytes

    def load(self, ledger: Ledger, now_s: float) -> None:
        """Replays the journal into an empty ledger, and cuts off what a crash left; raises SpoolError or WorkError."""
        if NAME not in self._folder:
            self.rewrite(ledger.snapshot())
            return
        handle = self._folder.reopen(NAME, writable=True)
        with disk_errors(f"reading the work ledger in {self._folder.path}"), os.fdopen(os.dup(handle), "rb") as file:
            data = memoryview(file.read())
        if bytes(data[: len(MAGIC)]) != MAGIC:
            os.close(handle)
            raise SpoolCorruptError(f"{self._folder.path / NAME} is no work ledger: take it away to begin a new one")
        end = len(MAGIC)
        for change, change_end in parse(data):
            ledger.apply(change, now_s)
            end = change_end
        self._handle, self._size_bytes = handle, end
        if end < len(data):
            self._cut(data, end)

    def write(self, changes: Iterable[Change]) -> None:
        """Appends; in the kernel's hands on return, durable after `sync`. Raises SpoolError, and nothing was added."""
        self._check()
        data = b"".join(pack(change) for change in changes)
        try:
            with disk_errors("writing the work ledger"):
                write_at(self._handle, data, self._size_bytes)
        except SpoolError:
            with disk_errors("cutting the work ledger back"):
                os.ftruncate(self._handle, self._size_bytes)
            raise
        self._size_bytes += len(data)

    def sync(self) -> None:
        """Makes what was written durable; raises SpoolError. Any thread."""
        self._check()
        if self._is_doubtful:
            raise SpoolError("the work ledger must be written anew: a sync of it has failed")
        try:
            with disk_errors("syncing the work ledger"):
                os.fdatasync(self._handle)
        except SpoolError:
            self._is_doubtful = True
            raise

    def wants_rewrite(self, live_bytes: int) -> bool:
        """Whether much of it is of what is gone, or the disk may have lost a part of it."""
        return self._is_doubtful or self._size_bytes > 2 * live_bytes + SLACK_BYTES

    def rewrite(self, changes: Iterable[Change]) -> None:
        """Puts a journal of these changes in place of what there is; durable on return; raises SpoolError."""
        self._check()
        temporary = TEMPORARY_PREFIX + NAME
        self._folder.remove(temporary)
        handle = self._folder.create(temporary)
        try:
            with disk_errors("writing the work ledger anew"):
                size = len(MAGIC)
                write_at(handle, MAGIC, 0)
                for change in changes:
                    data = pack(change)
                    write_at(handle, data, size)
                    size += len(data)
                os.fsync(handle)
                self._folder.rename(temporary, NAME)
        except SpoolError:
            os.close(handle)
            self._folder.remove(temporary)
            raise
        self._let_go()
        self._handle, self._size_bytes, self._is_doubtful = handle, size, True
        self._folder.sync()
        self._is_doubtful = False

    def close(self) -> None:
        """Lets go of the file for good: it may be another one's from now on."""
        self._is_closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _check(self) -> None:
        if self._is_closed:
            raise SpoolError("the work ledger is closed")

    def _cut(self, data: memoryview, end: int) -> None:
        lost = len(data) - end
        if is_torn(data, end):
            self.problems.append(f"the last {lost} bytes of the work ledger were cut off by a crash and are left out")
        else:
            self._folder.replace(DAMAGED, bytes(data))
            self.problems.append(
                f"the work ledger is damaged {lost} bytes before its end; what follows is not used, and the file was "
                f"kept as {self._folder.path / DAMAGED}"
            )
        with disk_errors("cutting the work ledger back"):
            os.ftruncate(self._handle, end)
