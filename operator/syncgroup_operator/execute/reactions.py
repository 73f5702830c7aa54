"""From a wake-up to the first request that it caused: the operator's own share of every delay.

Counts nothing itself: `timings` does. A pass that only waits for its own earlier writes to show keeps the wake-up for
the pass after it; one that has nothing to send ends it unmeasured.
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


class Reactions:
    """What woke each group since its last pass, and who waits for a successor."""

    def __init__(self, timings: Timings, clock: Callable[[], float]) -> None:
        self._timings = timings
        self._clock = clock
        self._woken: dict[GroupKey, _WakeUp] = {}
        self._judged: dict[GroupKey, dict[str, float]] = {}

    def woken(self, key: GroupKey, why: str) -> None:
        """Something happened to a group; the first of several counts."""
        if key not in self._woken:
            self._woken[key] = _WakeUp(why, self._clock())

    def is_woken(self, key: GroupKey) -> bool:
        """Whether anything happened since its last pass."""
        return key in self._woken

    def judged(self, key: GroupKey, member: str) -> None:
        """A member was judged lost and shall have a successor."""
        self._judged.setdefault(key, {}).setdefault(member, self._clock())

    @contextlib.contextmanager
    def timed(self, key: GroupKey, waits: Callable[[], bool]) -> Iterator[None]:
        """One pass: what it sends is timed. `waits` says afterwards whether it did not come to look at anything."""
        wake_up = self._woken.pop(key, None)

        def sent(verb: str, kind: str, name: str) -> None:
            nonlocal wake_up
            if wake_up is not None:
                self._timings.reacted(wake_up.why, self._clock() - wake_up.at_s)
                wake_up = None
            if kind == "Pod" and verb in ("apply", "create"):
                self._succeeded(key, name)

        token = on_send.set(sent)
        try:
            yield
        finally:
            on_send.reset(token)
            if wake_up is not None and waits():
                self._woken[key] = wake_up  # the first of several: it is older than what came meanwhile

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._woken.pop(key, None)
        self._judged.pop(key, None)

    def _succeeded(self, key: GroupKey, member: str) -> None:
        waiting = self._judged.get(key, {})
        judged_s = waiting.pop(member, None)
        if judged_s is not None:
            self._timings.replaced(self._clock() - judged_s)
        if not waiting:
            self._judged.pop(key, None)
