"""What the caches must show before the next pass over a group may rely on them.

A watch shows our own writes a moment after we made them. A pass in between would see the pod that it just created as
missing, and one that it just removed as alive. Every wait has an end: a write that never shows was undone by somebody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.act import Done
from syncgroup_operator.planning.observation import ClusterView, Observation

PATIENCE_S: Final = 5.0
LOOK_AGAIN_S: Final = 0.25
"""Where nothing wakes the group before: what the watch shows does."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    until_s: float
    done: tuple[Done, ...]


class Expectations:
    """Writes that are not yet seen, by group."""

    def __init__(self) -> None:
        self._waiting: dict[GroupKey, _Waiting] = {}

    def expect(self, key: GroupKey, done: Iterable[Done], now_s: float) -> None:
        """A pass did this."""
        found = tuple(done)
        if found:
            self._waiting[key] = _Waiting(now_s + PATIENCE_S, found)

    def met(self, key: GroupKey, observation: Observation) -> bool:
        """Whether the caches show what the last pass did, or never will."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return True
        left = tuple(done for done in waiting.done if not _shows(observation.clusters.get(done.cluster), done))
        if not left or observation.now_s >= waiting.until_s:
            del self._waiting[key]
            return True
        self._waiting[key] = _Waiting(waiting.until_s, left)
        return False

    def pending(self, key: GroupKey) -> bool:
        """Whether a write is still to be seen."""
        return key in self._waiting

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._waiting.pop(key, None)


def _shows(view: ClusterView | None, done: Done) -> bool:
    if view is None or not view.reachable or done.key.namespace != view.namespace:
        return True
    if done.key.kind == "Pod":
        found = next((pod for pod in view.pods if pod.name == done.key.name), None)
        uid, deleting = ("", False) if found is None else (found.uid, found.deleting)
    elif done.key.kind == "Lease":
        return done.deleted or any(lease.name == done.key.name for lease in view.leases)
    else:
        child = view.children.get(done.key)
        if child is not None and not done.deleted:
            return child.resource_version == done.resource_version or child.uid != done.uid
        uid, deleting = ("", False) if child is None else (child.uid, child.deleting)
    return (uid != done.uid or deleting) if done.deleted else uid == done.uid
