"""What a worker's sidecar has in hand: groups that wait for a worker, that are being worked on, results on their way.

Pure bookkeeping; times are the caller's. Knows neither connections nor engines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from sync_runtime.transport.work_messages import Result, Task
from sync_runtime.work.model import WorkVersion
from sync_runtime.work.workers import mixed

MAX_AHEAD = 8
"""Groups that are taken ahead at most."""
_KEPT_GAPS = 8
ACTIVE_S = 0.5
"""A worker that asked so lately will ask again: what it wants stays ordered between two requests."""


@dataclass(slots=True)
class Held:
    """A group in hand."""

    task: Task
    version: WorkVersion
    since_s: float
    owner: Hashable = None
    """Who works on it; None: it waits."""
    revoked: str | None = None
    """Why its lease ended, if it did."""

    @property
    def lease(self) -> str:
        """The name of its lease."""
        return self.task.head.lease


class Tasks:
    """All groups in hand."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self.outbox: dict[str, Result] = {}
        """Results without a verdict."""
        self.asking = 0
        """Workers that wait for a group."""
        self._asked_s = float("-inf")
        self._ordered_s: float | None = None
        self._gaps_s: deque[float] = deque(maxlen=_KEPT_GAPS)
        """How long the last groups took from being ordered to their arrival."""
        self._service_s: float | None = None
        """How long one is worked on, as a moving average."""
        self._busy_since_s: float | None = None
        self._busy_s = 0.0

    @property
    def waiting(self) -> list[Held]:
        """Groups that nobody works on yet, oldest first."""
        return [one for one in self._held.values() if one.owner is None]

    @property
    def in_hand(self) -> list[Held]:
        """Groups that somebody works on."""
        return [one for one in self._held.values() if one.owner is not None]

    def leases(self) -> list[str]:
        """All that the trainer may still hear of."""
        return [*(one.lease for one in self._held.values() if one.revoked is None), *self.outbox]

    def ordered(self, now_s: float) -> None:
        """The trainer was told that groups are wanted."""
        self._ordered_s = now_s

    def arrived(self, held: Held) -> None:
        """A group was leased to us."""
        self._held[held.lease] = held
        if self._ordered_s is not None:
            self._gaps_s.append(held.since_s - self._ordered_s)
            self._ordered_s = None

    def get(self, lease: str) -> Held | None:
        """One in hand."""
        return self._held.get(lease)

    def asked(self, now_s: float) -> None:
        """A worker asks, or will in a moment: it has just asked, or finished something."""
        self._asked_s = now_s

    def want(self, now_s: float, version: WorkVersion) -> int:
        """How many groups more are wanted: one per worker that asks, and some ahead while somebody works."""
        in_hand = len(self.in_hand)
        recently = now_s - self._asked_s < ACTIVE_S and not in_hand
        ahead = self.ahead if in_hand else 0
        there = sum(one.version.is_same(version) for one in self.waiting)
        return max(0, max(self.asking, int(recently)) + ahead - there)

    @property
    def ahead(self) -> int:
        """As many as are done while one is on its way here, and one at least."""
        if not self._gaps_s or not self._service_s:
            return 1
        return min(MAX_AHEAD, 1 + int(min(self._gaps_s) / self._service_s))

    def give(self, held: Held, owner: Hashable, now_s: float) -> None:
        """Somebody begins to work on a group."""
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        held.owner, held.since_s = owner, now_s

    def drop(self, lease: str, now_s: float) -> Held | None:
        """A group is out of our hands."""
        held = self._held.pop(lease, None)
        if held is None or held.owner is None:
            return held
        self._service_s = mixed(self._service_s, now_s - held.since_s)
        if not self.in_hand and self._busy_since_s is not None:
            self._busy_s += now_s - self._busy_since_s
            self._busy_since_s = None
        return held

    def take_busy_s(self, now_s: float) -> float:
        """For how long there was work since the last time this was asked."""
        spent_s, self._busy_s = self._busy_s, 0.0
        if self._busy_since_s is not None:
            spent_s += now_s - self._busy_since_s
            self._busy_since_s = now_s
        return spent_s

    def unfit(self, useful: Iterable[WorkVersion], now_s: float, keep_s: float) -> Iterable[Held]:
        """Waiting groups of other versions than these, or that nobody has asked for in a while."""
        idle = not self.in_hand and not self.asking and now_s - self._asked_s > keep_s
        versions = tuple(useful)
        return [one for one in self.waiting if idle or not any(one.version.is_same(version) for version in versions)]
