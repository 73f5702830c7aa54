"""A member's fence on disk: the newest term and its proof, so that a restart does not let a replaced trainer win.

    fence                       <term> <incarnation> <the trainer's signature>
                                <term> -              the plan's, of which no trainer was heard yet

In the spool's folder, written whole or not at all. What cannot be read is refused rather than guessed at. Knows nothing
of what a fence keeps out.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from sync_runtime.bucket.durable import Folder
from sync_runtime.errors import SpoolCorruptError, SpoolError
from sync_runtime.session.versions import Fence, Proof

_log = logging.getLogger(__name__)
FILE = "fence"
_LINE = re.compile(rb"(0|[1-9][0-9]{0,18}) (?:([0-9a-f]{32}) ([0-9a-f]{128})|-)\n")
_MAX_BYTES = 256


class FenceFile:
    """The fence of one member; call `keep` whenever something was heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder.open(folder)
        self._kept = self._read()

    def restore(self, fence: Fence, plan_term: int) -> None:
        """The fence as it stood before a restart, or the plan's term where that is newer."""
        fence.term, fence.proof = self._kept
        fence.incarnation = None if fence.proof is None else fence.proof.incarnation
        fence.appoint(plan_term)

    def keep(self, fence: Fence) -> bool:
        """Makes it durable where it moved; False: it could not be, and the next call tries again."""
        proof = fence.proof
        seen = fence.term, proof
        if seen == self._kept:
            return True
        try:
            whose = "-" if proof is None else f"{proof.incarnation} {proof.signature}"
            self._folder.replace(FILE, f"{fence.term} {whose}\n".encode())
        except SpoolError as error:
            _log.warning("term %d is heeded, but would be forgotten by a restart: %s", fence.term, error)
            return False
        self._kept = seen
        return True

    def _read(self) -> tuple[int, Proof | None]:
        raw = self._folder.read(FILE, _MAX_BYTES)
        if raw is None:
            return 0, None
        found = _LINE.fullmatch(raw)
        if found is None:
            raise SpoolCorruptError(
                f"{self._folder.path / FILE} does not hold a fence: remove it if no trainer of an older term runs"
            )
        term, incarnation, signature = int(found[1]), found[2], found[3]
        return term, None if incarnation is None else Proof(term, incarnation.decode(), signature.decode())
