"""The loop of trainer and workers as arithmetic: what a run gives when the times of weights on their way are known.

The rules are those of the real programs (rl_trainer, rl_worker): workers take the next prompt group when they are free
and at most `MAX_STALENESS` versions behind; a step starts when its groups are done and trains beside them; a version
leaves for a region when the one before has arrived there. Without any delay this is the ideal that everything is
compared with. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.bench.rl_replay import AHEAD_STEPS, MAX_STALENESS, WARM_UP_STEPS, Replay

Delays = Callable[[int], Sequence[float]]
"""Of a version: seconds until each region has it, from the moment it may leave."""


@dataclass
class Outcome:
    """When each step started training, what each worker did by then, and how old the weights were."""

    started_s: list[float] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    """By worker, so far, at the start of each step."""
    lags: list[int] = field(default_factory=list)
    """Of the results counted: versions between the newest one and theirs, when they came."""

    @property
    def step_s(self) -> float:
        """Mean time of a step, after those that warm up."""
        counted = self.started_s[WARM_UP_STEPS - 1 :]
        return (counted[-1] - counted[0]) / (len(counted) - 1)

    def tokens_per_s(self, replay: Replay) -> float:
        """Of the steps that count."""
        return replay.group_tokens * replay.groups_per_step / self.step_s

    @property
    def split(self) -> list[float]:
        """Each worker's share of the tokens, after the steps that warm up."""
        first, last = self.tokens[WARM_UP_STEPS - 1], self.tokens[-1]
        done = [after - before for before, after in zip(first, last, strict=True)]
        return [one / sum(done) for one in done]

    @property
    def lag(self) -> float:
        """Mean."""
        return sum(self.lags) / len(self.lags)


def always(delay_s: float, regions: int) -> Delays:
    """The same for every version and region; 0 is no network."""
    return lambda version: [delay_s] * regions


class Loop:
    """One run, event by event."""

    def __init__(self, replay: Replay, speeds: Sequence[float], delays: Delays) -> None:
        self._replay, self._speeds, self._delays = replay, speeds, delays
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._now_s = 0.0
        self._published = 0
        self._free_s = [0.0] * len(speeds)
        """When a region has what is on its way to it."""
        self._held = [0] * len(speeds)
        self._idle = set(range(len(speeds)))
        self._taken = self._done = 0
        self._training = False
        self._tokens = [0] * len(speeds)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Until the last step has started."""
        self._wake()
        while len(self._outcome.started_s) < self._replay.total_steps:
            self._now_s, _, act = heapq.heappop(self._events)
            act()
            self._train()
            self._wake()
        return self._outcome

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        self._count += 1  # events of one moment in the order in which they were made
        heapq.heappush(self._events, (at_s, self._count, act))

    def _wake(self) -> None:
        allowed = self._replay.groups_per_step * (len(self._outcome.started_s) + AHEAD_STEPS)
        for worker in sorted(self._idle):
            if self._taken < allowed and self._published - self._held[worker] <= MAX_STALENESS:
                self._taken += 1
                self._idle.discard(worker)
                self._sample(worker, self._held[worker])

    def _sample(self, worker: int, version: int) -> None:
        def end() -> None:
            self._done += 1
            self._tokens[worker] += self._replay.group_tokens
            self._outcome.lags.append(self._published - version)
            self._idle.add(worker)

        self._at(self._now_s + self._replay.group_tokens / self._speeds[worker], end)

    def _train(self) -> None:
        needed = self._replay.groups_per_step * (len(self._outcome.started_s) + 1)
        if self._training or self._done < needed:
            return
        self._training = True
        self._outcome.started_s.append(self._now_s)
        self._outcome.tokens.append(list(self._tokens))
        self._at(self._now_s + self._replay.train_s, self._publish)

    def _publish(self) -> None:
        self._training = False
        self._published += 1
        for worker, delay_s in enumerate(self._delays(self._published)):
            self._free_s[worker] = max(self._now_s, self._free_s[worker]) + delay_s
            self._at(self._free_s[worker], partial(self._arrive, worker, self._published))

    def _arrive(self, worker: int, version: int) -> None:
        self._held[worker] = max(self._held[worker], version)
