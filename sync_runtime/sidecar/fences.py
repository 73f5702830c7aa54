"""A member's fence on disk: the newest term it saw, and whose, so that a restart does not let a replaced trainer win.

    fence                       <term> <incarnation, or - while nobody was heard>

In the spool's folder, written whole or not at all. What cannot be read is refused rather than guessed at. Knows nothing
of what a fence keeps out.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from sync_runtime.bucket.durable import Folder
from sync_runtime.errors import SpoolCorruptError, SpoolError
from sync_runtime.session.versions import Fence

_log = logging.getLogger(__name__)
FILE = "fence"
_LINE = re.compile(rb"(0|[1-9][0-9]{0,18}) ([0-9a-f]{32}|-)\n")
_MAX_BYTES = 128


class FenceFile:
    """The fence of one member; call `keep` whenever something was heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder.open(folder)
        self._kept = self._read()

    def restore(self, fence: Fence, plan_term: int) -> None:
        """The fence as it stood before a restart, or the plan's term where that is newer."""
        term, incarnation = self._kept
        if plan_term > term:
            fence.term, fence.incarnation = plan_term, None
        else:
            fence.term, fence.incarnation = term, incarnation

    def keep(self, fence: Fence) -> bool:
        """Makes it durable where it moved; False: it could not be, and the next call tries again."""
        seen = fence.term, fence.incarnation
        if seen == self._kept:
            return True
        try:
            self._folder.replace(FILE, f"{fence.term} {fence.incarnation or '-'}\n".encode())
        except SpoolError as error:
            _log.warning("term %d is heeded, but would be forgotten by a restart: %s", fence.term, error)
            return False
        self._kept = seen
        return True

    def _read(self) -> tuple[int, str | None]:
        raw = self._folder.read(FILE, _MAX_BYTES)
        if raw is None:
            return 0, None
        found = _LINE.fullmatch(raw)
        if found is None:
            raise SpoolCorruptError(
                f"{self._folder.path / FILE} does not hold a fence: remove it if no trainer of an older term runs"
            )
        return int(found[1]), None if found[2] == b"-" else found[2].decode()
