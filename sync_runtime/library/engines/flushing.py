"""Stands between a session and its coder: what is written reaches the engine, and what is read comes from it.

A version is live when the engine has it, not when shadows have: where bringing it in fails, the session counts the
version as half written, and the next activation does it again. Knows neither what is coded nor how.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from sync_runtime.library.coders import Opening, Receiver, StageCoder
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Scrub, Stage


class Flushed(Protocol):
    """An engine with memory that is not the one that versions are written into."""

    def flush(self) -> None:
        """Brings what was written into the engine."""

    def reveal(self) -> None:
        """Brings back what the engine has."""


class FlushingCoder:
    """A coder whose `apply` ends in the engine, and whose digests begin there."""

    def __init__(self, coder: StageCoder, engine: Flushed) -> None:
        self._coder, self._engine = coder, engine

    def opening(self) -> Opening:
        """What the engine has."""
        self._engine.reveal()
        return self._coder.opening()

    def receive(self, stage: Stage) -> Receiver:
        """As the coder does."""
        return self._coder.receive(stage)

    def fold(self, earlier: Any, later: Any) -> Any:
        """As the coder does."""
        return self._coder.fold(earlier, later)

    def apply(self, layer: Any) -> None:
        """Writes, then brings it into the engine."""
        self._coder.apply(layer)
        self._engine.flush()

    def share(self) -> str | None:
        """As the coder does."""
        return self._coder.share()

    def scrub(self, version: Version) -> tuple[Scrub, Iterable[memoryview]]:
        """What the engine has, against what it should have."""
        self._engine.reveal()
        return self._coder.scrub(version)
