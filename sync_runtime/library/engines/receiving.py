"""Workers that a framework tells when to take new weights, and that hand on whole tensors.

Of all workers at one sidecar the first follows the trainer, with a copy in host memory; the others read that copy. An
update is a round: everybody is told its number before weights are sent. Knows no framework.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from sync_runtime.errors import LocalError, SidecarLostError
from sync_runtime.library.engines.contents import Read
from sync_runtime.library.engines.handover import HandedEngine, all_names
from sync_runtime.library.engines.host_copy import HostCopy, HostView
from sync_runtime.library.engines.mapped import Content
from sync_runtime.library.subscriber import Subscriber
from sync_runtime.library.version import Version

Mark = tuple[str, int]
"""Lineage and number of a version, as frameworks carry it between processes."""
_TURN_S = 1.0
_OVER = "another update has begun: this one's version is not waited for any more"


def mark_of(version: Version | None) -> Mark | None:
    """A version's name."""
    return None if version is None else (version.lineage, version.seq)


class Receiver:
    """The first worker at a sidecar: its copy follows the trainer, version by version as it is asked for them."""

    source: str | None = None
    """Nobody else's copy."""

    def __init__(self, content: Content, read: Read, copy: HostCopy, options: dict[str, Any]) -> None:
        self._copy = copy
        self._handed = HandedEngine(content, memory=copy.tensors())
        self._handed.fill(read)
        self._round = 0
        self._before: tuple[Mark | None, ...] = ()
        self._subscriber = Subscriber(self._handed, engine="handover", **options)

    @property
    def version(self) -> Version | None:
        """What the copy is."""
        return self._subscriber.version

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The copy."""
        return self._handed.items()

    def begin(self, number: int, after: Mark | None) -> None:
        """A new round: whoever still waits in an older one gives up, and what is here already is not what comes."""
        self._before = (after, mark_of(self._subscriber.version), mark_of(self._subscriber.staged))
        self._round = number

    def switch(self, step: int | None, wait_s: float) -> None:
        """Waits for the round's version and takes it; raises LocalError where it does not come."""
        mine = self._round
        try:
            self._follow(mine, step, wait_s)
        except Exception:
            if mine == self._round:
                self._copy.say(mine, whole=False)
            raise
        self._copy.say(mine, whole=True)

    def close(self) -> None:
        """Hangs up; the others have no copy any more."""
        self._round = 0
        self._subscriber.close()
        self._copy.close()

    def _follow(self, mine: int, step: int | None, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            if mine != self._round:
                raise LocalError(_OVER)
            if self._is_due(self._subscriber.version, step):
                return
            if time.monotonic() >= deadline:
                raise LocalError(f"the version of step {step} did not come within {wait_s:.3g} s: look at the trainer")
            self._subscriber.wait(timeout=_TURN_S)
            try:
                self._subscriber.activate()
            except SidecarLostError:
                time.sleep(_TURN_S)  # it comes back, or the deadline does

    def _is_due(self, version: Version | None, step: int | None) -> bool:
        if version is None or (step is not None and version.step != step):
            return False
        # A trainer that came back may send a step again, in its line of versions or in a new one.
        return not any(old is not None and version.lineage == old[0] and version.seq <= old[1] for old in self._before)


class Reader:
    """Another worker at that sidecar."""

    version: Version | None = None
    """The first worker knows."""

    def __init__(self, content: Content, source: str) -> None:
        self.source = source
        self._ties, self._view = content.ties, HostView(content, source)
        self._round = 0

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The first worker's copy."""
        return all_names(self._view.tensors(), self._ties)

    def begin(self, number: int, after: Mark | None) -> None:
        """A new round."""
        del after
        self._round = number

    def switch(self, step: int | None, wait_s: float) -> None:
        """Waits until the first worker has the round's version; raises LocalError where it does not get it."""
        del step
        mine = self._round

        def check() -> None:
            if mine != self._round:
                raise LocalError(_OVER)

        self._view.wait(mine, wait_s, check)

    def close(self) -> None:
        """Whoever waits gives up."""
        self._round = 0
