"""From a wake-up to the first request that it caused: the operator's own share of every delay.

Counts nothing itself: `timings` does. A pass that only waits for its own earlier writes to show keeps the wake-up for
the pass after it; one that has nothing to send ends it unmeasured. From a verdict to the successor's request the time
in which the API servers were asked something is also told apart: that share is theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.timings import Timings
from syncgroup_operator.kube.connection import on_send

SPEC: Final = "spec"
CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class _WakeUp:
    why: str
    at_s: float


@dataclass(slots=True)
class _Asking:
    """For how long at least one request of a group's pass was under way."""

    under_way: int = 0
    since_s: float = 0.0
    before_s: float = 0.0

    def begin(self, now_s: float) -> None:
        if self.under_way == 0:
            self.since_s = now_s
        self.under_way += 1

    def end(self, now_s: float) -> None:
        self.under_way -= 1
        if self.under_way == 0:
            self.before_s += now_s - self.since_s

    def total_s(self, now_s: float) -> float:
        return self.before_s + (now_s - self.since_s if self.under_way else 0.0)


@dataclass(frozen=True, slots=True)
class _Verdict:
    at_s: float
    asked_s: float
    """What the group's passes had spent waiting for answers by then."""


class Reactions:
    """What woke each group since its last pass, and who waits for a successor."""

    def __init__(self, timings: Timings, clock: Callable[[], float]) -> None:
        self._timings = timings
        self._clock = clock
        self._woken: dict[GroupKey, _WakeUp] = {}
        self._urgent: set[GroupKey] = set()
        """Groups of which somebody asked for something, whatever else had woken them before."""
        self._judged: dict[GroupKey, dict[str, _Verdict]] = {}
        self._asking: dict[GroupKey, _Asking] = {}

    def woken(self, key: GroupKey, why: str) -> None:
        """Something happened to a group; the first of several counts."""
        if why == SPEC:
            self._urgent.add(key)
        if key not in self._woken:
            self._woken[key] = _WakeUp(why, self._clock())

    def is_woken(self, key: GroupKey) -> bool:
        """Whether anything happened since its last pass."""
        return key in self._woken

    def is_urgent(self, key: GroupKey) -> bool:
        """Whether somebody asked for something since its last pass."""
        return key in self._urgent

    def judged(self, key: GroupKey, member: str) -> None:
        """A member was judged lost and shall have a successor."""
        now_s = self._clock()
        verdict = _Verdict(now_s, self._asking.setdefault(key, _Asking()).total_s(now_s))
        self._judged.setdefault(key, {}).setdefault(member, verdict)

    @contextlib.contextmanager
    def timed(self, key: GroupKey, waits: Callable[[], bool]) -> Iterator[None]:
        """One pass: what it sends is timed. `waits` says afterwards whether it did not come to look at anything."""
        wake_up, urgent = self._woken.pop(key, None), key in self._urgent
        self._urgent.discard(key)
        asking = self._asking.setdefault(key, _Asking())

        def sent(verb: str, kind: str, name: str) -> Callable[[], None]:
            nonlocal wake_up
            if wake_up is not None:
                self._timings.reacted(wake_up.why, self._clock() - wake_up.at_s)
                wake_up = None
            if kind == "Pod" and verb in ("apply", "create"):
                self._succeeded(key, name)
            asking.begin(self._clock())
            return lambda: asking.end(self._clock())

        token = on_send.set(sent)
        try:
            yield
        finally:
            on_send.reset(token)
            if key not in self._judged:
                self._asking.pop(key, None)
            if wake_up is not None and waits():
                self._woken[key] = wake_up  # the first of several: it is older than what came meanwhile
                if urgent:
                    self._urgent.add(key)

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._woken.pop(key, None)
        self._urgent.discard(key)
        self._judged.pop(key, None)
        self._asking.pop(key, None)

    def _succeeded(self, key: GroupKey, member: str) -> None:
        waiting = self._judged.get(key, {})
        verdict = waiting.pop(member, None)
        if verdict is not None:
            now_s = self._clock()
            asked_s = self._asking[key].total_s(now_s) - verdict.asked_s
            self._timings.replaced(now_s - verdict.at_s, own_s=now_s - verdict.at_s - asked_s)
        if not waiting:
            self._judged.pop(key, None)
