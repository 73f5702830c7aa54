"""Groups at rest: every member is alive, nothing was left to do, and nothing has happened since.

A lease that is renewed wakes nobody, but its end must be judged, so each group has an appointment for the moment its
oldest lease would run out. Nearly always it was renewed meanwhile. That is seen here from the leases alone, without a
pass: a pass over a group reads and plans everything. Whatever happens to a group ends its rest, and so does an end that
was set when it began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sync_runtime.contract.names import GroupKey
from syncgroup_operator.planning.decision import Vigil
from syncgroup_operator.planning.sitting import WAKE_SLACK_S


class LeaseTimes(Protocol):
    """What is asked of a cluster's cache."""

    def connected_s(self, namespace: str) -> float | None:
        """Since when nothing was missed there."""

    def lease_changed_s(self, namespace: str, name: str) -> float | None:
        """When a lease was last seen to change."""


@dataclass(frozen=True, slots=True)
class _Rest:
    vigils: tuple[Vigil, ...]
    connections: tuple[tuple[str, str, float | None], ...]
    """Cluster, namespace, and since when it was watched without a gap: after a gap leases count anew."""
    until_s: float


class Resting:
    """Which groups are at rest, and until when."""

    def __init__(self, caches: Callable[[str], LeaseTimes | None], clock: Callable[[], float]) -> None:
        self._caches = caches
        self._clock = clock
        self._rests: dict[GroupKey, _Rest] = {}

    def begin(
        self,
        key: GroupKey,
        connections: Mapping[str, tuple[str, float | None]],
        vigils: tuple[Vigil, ...],
        until_s: float | None,
    ) -> None:
        """A pass found nothing to do.

        `connections` are the clusters that it saw, each with the namespace and since when that is watched without a
        gap; `until_s` is when something other than a lease will be due.
        """
        found = tuple((name, namespace, since_s) for name, (namespace, since_s) in connections.items())
        self._rests[key] = _Rest(vigils, found, math.inf if until_s is None else until_s)

    def limit(self, key: GroupKey, after_s: float) -> None:
        """The rest ends then at the latest: everything is looked at again now and then."""
        rest = self._rests.get(key)
        if rest is not None:
            until_s = min(rest.until_s, self._clock() + after_s)
            self._rests[key] = _Rest(rest.vigils, rest.connections, until_s)

    def end(self, key: GroupKey) -> None:
        """Something happened, or the group is gone."""
        self._rests.pop(key, None)

    def goes_on_s(self, key: GroupKey) -> float | None:
        """For how long the group certainly needs no pass; None: it needs one now."""
        rest, now_s = self._rests.get(key), self._clock()
        if rest is None or now_s >= rest.until_s or not self._connected(rest):
            return None
        due_s = rest.until_s
        for vigil in rest.vigils:
            cache = self._caches(vigil.cluster)
            changed_s = None if cache is None else cache.lease_changed_s(vigil.namespace, vigil.lease)
            if changed_s is None or now_s > changed_s + vigil.lasts_s:
                return None
            due_s = min(due_s, changed_s + vigil.lasts_s + WAKE_SLACK_S)
        return due_s - now_s

    def _connected(self, rest: _Rest) -> bool:
        for name, namespace, since_s in rest.connections:
            cache = self._caches(name)
            if cache is None or since_s is None or cache.connected_s(namespace) != since_s:
                return False
        return True
