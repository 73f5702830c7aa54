"""How well a batch is split among workers of different speed, far from the trainer: a simulation with its own clock.

Desk and workers are the real decisions; the network is a round-trip time, the engine a rate. A worker wants one group
while it works on another, as its sidecar does.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import pytest

from sync_runtime.work.ledger import Lease
from sync_runtime.work.model import Policy
from sync_runtime.work.workers import Workers
from tests.unit.work.ledgers import Kept, version

VERSION = version(1)


class Simulated:
    """A trainer and its workers in simulated time."""

    def __init__(self, rates: dict[str, float], rtt_s: float) -> None:
        self.kept = Kept(Policy(max_inflight=64))
        self.rates, self.one_way_s = rates, rtt_s / 2
        self.workers = Workers()
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = itertools.count()
        self.waiting: dict[str, list[Lease]] = {name: [] for name in rates}
        self.doing: dict[str, Lease | None] = dict.fromkeys(rates)
        self.tokens: dict[str, int] = {}
        for name in rates:
            self.workers.connected(name, 0.0)

    def after(self, wait_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + wait_s, next(self._tie), call))

    def step(self, tokens: list[int]) -> float:
        """One batch, from its submission to its last result; how long it took."""
        began_s = self.now_s
        ids = [f"{self.now_s}-{at}" for at in range(len(tokens))]
        self.tokens |= dict(zip(ids, tokens, strict=True))
        self.kept.submit(*ids)
        for name in self.rates:
            self.after(0.0, lambda name=name: self.ask(name))  # type: ignore[misc]
        while self.kept.ledger.pending:
            at_s, _, call = heapq.heappop(self._events)
            self.now_s = at_s
            call()
            while self.kept.consume():
                pass
        self._events.clear()
        return self.now_s - began_s

    def ask(self, name: str) -> None:
        """The worker's sidecar tells what it wants."""
        want = max(0, 1 + (self.doing[name] is not None) - len(self.waiting[name]) - (self.doing[name] is not None))
        self.after(self.one_way_s, lambda: self.asked(name, want))

    def asked(self, name: str, want: int) -> None:
        self.workers.took(name, VERSION, want)
        self.hand_out()

    def hand_out(self) -> None:
        ledger = self.kept.ledger
        while (group := ledger.next_group()) is not None:
            held = ledger.held()
            chosen = self.workers.next_for(ledger.queued, held, lambda _: True, 64, self.now_s)
            if chosen is None:
                return
            self.workers.leased(chosen.name, self.now_s, had=held.get(chosen.name, 0))
            lease = self.kept.lease(chosen.name, VERSION, self.now_s)
            assert lease.number == group.number
            self.after(self.one_way_s, lambda lease=lease: self.arrived(lease))  # type: ignore[misc]

    def arrived(self, lease: Lease) -> None:
        self.waiting[lease.worker].append(lease)
        self.begin(lease.worker)

    def begin(self, name: str) -> None:
        if self.doing[name] is None and self.waiting[name]:
            lease = self.doing[name] = self.waiting[name].pop(0)
            spent_s = self.tokens[self.kept.ledger.group(lease.number).id] / self.rates[name]
            self.after(spent_s, lambda: self.done(name, lease, spent_s))
        self.ask(name)

    def done(self, name: str, lease: Lease, spent_s: float) -> None:
        tokens = self.tokens[self.kept.ledger.group(lease.number).id]
        self.doing[name] = None
        self.after(self.one_way_s, lambda: self.result(name, lease, tokens, spent_s))
        self.begin(name)

    def result(self, name: str, lease: Lease, tokens: int, spent_s: float) -> None:
        self.workers.brought(name, tokens, spent_s, self.now_s)
        assert self.kept.offer(lease).counted
        self.hand_out()


def efficiency(rates: dict[str, float], groups: int, rtt_s: float = 0.1) -> float:
    """Tokens a second of the second half of ten steps, of what all workers could do without a network."""
    crew = Simulated(rates, rtt_s)
    tokens = [[900 + 37 * (step + at) % 200 for at in range(groups)] for step in range(10)]
    spent_s = [crew.step(batch) for batch in tokens]
    ideal_s = [sum(batch) / sum(rates.values()) for batch in tokens]
    return sum(ideal_s[5:]) / sum(spent_s[5:])


@pytest.mark.parametrize("groups", [48, 96])
def test_two_to_one_is_split_nearly_ideally(groups: int) -> None:
    assert efficiency({"fast": 2000.0, "slow": 1000.0}, groups) >= 0.95


def test_a_crowd_of_mixed_workers_is_kept_busy() -> None:
    rates = {f"fast-{at}": 2000.0 for at in range(4)} | {f"slow-{at}": 1000.0 for at in range(4)}
    assert efficiency(rates, 192) >= 0.93


def test_a_very_slow_worker_does_not_hold_up_the_batch() -> None:
    alone = efficiency({"fast": 2000.0}, 24)
    both = efficiency({"fast": 2000.0, "snail": 50.0}, 24)
    assert both >= 0.9 * alone
