"""Stands between a subscriber's session and its coder: nothing is written before the owner confirms its tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sync_runtime.gpu_worker.tensors import OwnedTensors
from sync_runtime.library.coders import Opening, Receiver, StageCoder
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Scrub, Stage


class GuardedCoder:
    """A coder whose `apply` asks first. Everything else looks tensors up by itself, which asks too."""

    def __init__(self, inner: StageCoder, tensors: OwnedTensors) -> None:
        self._inner, self._tensors = inner, tensors

    def opening(self) -> Opening:
        """The live weights."""
        return self._inner.opening()

    def receive(self, stage: Stage) -> Receiver:
        """A stream that begins."""
        return self._inner.receive(stage)

    def fold(self, earlier: Any, later: Any) -> Any:
        """One layer of two."""
        return self._inner.fold(earlier, later)

    def apply(self, layer: Any) -> None:
        """Writes a layer, if the tensors are still those that were handed over; else HandlesChangedError."""
        with self._tensors.confirmed():
            self._inner.apply(layer)

    def share(self) -> str | None:
        """What this rank adds to a digest."""
        return self._inner.share()

    def scrub(self, version: Version) -> tuple[Scrub, Iterable[memoryview]]:
        """The request, and the stream behind it."""
        return self._inner.scrub(version)
