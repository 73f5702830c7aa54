"""Who is there to work, how fast each is, and who gets the next group. Pure; times are the caller's monotonic clock.

A worker is given work while it holds less than its share of what is open, by measured tokens/s. Nothing here is
durable: a trainer's sidecar that restarts learns it anew within a few results.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sync_runtime.work.model import WorkVersion

KEPT: Final = 0.7
"""How much of the old rate stays when a new one is measured."""
UNKNOWN: Final = 0.5
"""What a worker without a rate counts for, of the mean of the others."""
RETURNED: Final = 0.5
"""What is believed of a worker's rate when it comes back after it was lost."""
MAX_REMEMBERED: Final = 1024


@dataclass(slots=True)
class Worker:
    """One worker that is connected, or was until a moment ago."""

    name: str
    version: WorkVersion | None = None
    want: int = 0
    rate: float | None = None
    """Tokens a second while it had work."""
    progress_s: float = 0.0
    """When it last came, took work while it had none, or brought a result."""
    lost_at_s: float | None = None
    """Its connection is gone; it is lost if it is not back by then."""


class Workers:
    """All workers."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._rates: dict[str, float] = {}
        """Of workers that are not there any more."""
        self._group_tokens: float | None = None
        """What a group yields, as a moving average."""

    @property
    def all(self) -> tuple[Worker, ...]:
        """Those that are not lost."""
        return tuple(self._workers.values())

    def connected(self, name: str, now_s: float) -> None:
        """A worker is there, or there again."""
        worker = self._workers.get(name)
        if worker is None:
            before = self._rates.pop(name, None)
            worker = self._workers[name] = Worker(name, rate=None if before is None else before * RETURNED)
            worker.progress_s = now_s
        worker.lost_at_s, worker.want = None, 0

    def gone(self, name: str, lost_at_s: float) -> None:
        """Its connection ended; it has until then to come back."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.lost_at_s, worker.want = lost_at_s, 0

    def lost(self, now_s: float) -> list[str]:
        """Workers that did not come back in time; they are forgotten but for their rate."""
        found = [one for one in self._workers.values() if one.lost_at_s is not None and one.lost_at_s <= now_s]
        for worker in found:
            del self._workers[worker.name]
            if worker.rate is not None:
                self._rates[worker.name] = worker.rate
        while len(self._rates) > MAX_REMEMBERED:
            del self._rates[next(iter(self._rates))]
        return [worker.name for worker in found]

    def took(self, name: str, version: WorkVersion | None, want: int) -> None:
        """What a worker runs, and how many groups more it wants."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.version, worker.want = version, want if version is not None else 0

    def leased(self, name: str, now_s: float, *, had: int) -> None:
        """It was given a group while it had so many."""
        worker = self._workers[name]
        worker.want = max(0, worker.want - 1)
        if not had:
            worker.progress_s = now_s

    def brought(self, name: str, tokens: int, busy_s: float, now_s: float) -> None:
        """A result, and for how long the worker had work in hand since its last one."""
        worker = self._workers.get(name)
        if worker is None:
            return
        worker.progress_s = now_s
        if tokens <= 0 or busy_s <= 0:
            return
        worker.rate = mixed(worker.rate, tokens / busy_s)
        self._group_tokens = mixed(self._group_tokens, tokens)

    def next_for(
        self, queued: int, held: Mapping[str, int], fits: Callable[[WorkVersion], bool], max_inflight: int, now_s: float
    ) -> Worker | None:
        """Who gets the next group; None: nobody who may have it wants it now."""
        present = [
            one
            for one in self._workers.values()
            if one.lost_at_s is None and one.version is not None and fits(one.version)
            and (one.want or held.get(one.name))
        ]  # fmt: skip
        rates = self.rates(present, held, now_s)
        share = shares(queued + sum(held.get(one.name, 0) for one in present), rates)
        able = [
            one
            for one in present
            if one.want and held.get(one.name, 0) < min(max_inflight, share[one.name])
        ]  # fmt: skip
        return min(able, key=lambda one: ((held.get(one.name, 0) + 1) / rates[one.name], one.name), default=None)

    def rates(self, present: list[Worker], held: Mapping[str, int], now_s: float) -> dict[str, float]:
        """What each is believed to do in a second; never 0."""
        known = [one.rate for one in present if one.rate is not None]
        usual = UNKNOWN * sum(known) / len(known) if known else 1.0
        found = {}
        for one in present:
            rate = usual if one.rate is None else one.rate
            silent_s = now_s - one.progress_s
            if held.get(one.name) and self._group_tokens is not None and silent_s > 0:
                rate = min(rate, self._group_tokens / silent_s)
            found[one.name] = max(rate, 1e-9)
        return found


def shares(total: int, rates: Mapping[str, float]) -> dict[str, int]:
    """A number of groups split by rate, so that the last one is done as early as can be: whole numbers that add up.

    Each gets the whole part of what is proportional; the rest go one by one to whoever would be done with it first.
    """
    whole = sum(rates.values())
    if not rates or whole <= 0:
        return dict.fromkeys(rates, 0)
    found = {name: int(total * rate / whole) for name, rate in rates.items()}
    ends = [((found[name] + 1) / rate, name) for name, rate in rates.items()]
    heapq.heapify(ends)
    for _ in range(total - sum(found.values())):
        _, name = ends[0]
        found[name] += 1
        heapq.heapreplace(ends, ((found[name] + 1) / rates[name], name))
    return found


def mixed(before: float | None, new: float) -> float:
    """A moving average with one more measurement."""
    return new if before is None else KEPT * before + (1 - KEPT) * new
