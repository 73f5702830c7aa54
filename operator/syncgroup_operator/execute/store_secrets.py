"""The Secrets of object stores: those that a group names, on the hub, and our copies of them where its members are.

They are read by name, now and then, and never listed or watched: that would show the operator every Secret of every
namespace. A copy that was read is a child like any other from then on, so that the plan applies, keeps and deletes it.
Nothing is read for a group that neither has a store with a Secret nor had one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sync_runtime.contract.names import LABEL_GROUP_UID, GroupKey
from sync_runtime.contract.stores import fed_stores, used_keys
from syncgroup_operator.errors import ApiError, DeniedError, NotFoundError
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.kube.kinds import SECRET
from syncgroup_operator.kube.views import child_view
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.observation import ChildView, Observation, StoreSecret
from syncgroup_operator.planning.stores import copy_key, secret_names

LOOK_AGAIN_S: Final = 60.0
"""A rotated Secret is where members are after this, and what the kubelet needs besides."""
LOOK_SOON_S: Final = 5.0
"""While something is wrong with it, or with the store: somebody is probably mending it."""


@dataclass(slots=True)
class _Kept:
    secrets: dict[str, StoreSecret]
    mark: tuple[object, ...]
    """What it was read for: another spec or another cluster is another reading."""
    due_s: float
    copies: dict[str, ChildView] = field(default_factory=dict)


class StoreSecrets:
    """What was last read for every group with a store."""

    def __init__(self, clusters: Clusters, clock: Callable[[], float]) -> None:
        self._clusters = clusters
        self._clock = clock
        self._kept: dict[GroupKey, _Kept] = {}

    async def seen(self, observation: Observation, holders: Iterable[str]) -> Observation:
        """The observation with the group's Secrets and their copies. `holders`: clusters that may have one from before.

        Raises ApiError where the hub does not answer and nothing is known from before.
        """
        key = observation.key
        names = {name for name in holders if name in observation.clusters}
        if secret_names(observation.group.spec.sync, key):
            names |= {name for name, cluster in observation.clusters.items() if cluster.namespace}
        if not names:
            self._kept.pop(key, None)
            return observation
        connections = tuple((name, observation.clusters[name].connected_s) for name in sorted(names))
        mark = (observation.uid, observation.generation, connections)
        kept = self._kept.get(key)
        if kept is None or kept.mark != mark or self._clock() >= kept.due_s:
            kept = self._kept[key] = await self._read(observation, names, mark, kept)
        return _with(observation, kept)

    def due_s(self, key: GroupKey) -> float | None:
        """After how long the group's Secrets are to be read again; None: never."""
        kept = self._kept.get(key)
        return None if kept is None else max(kept.due_s - self._clock(), 0.0)

    def with_next_look(self, observation: Observation, decision: Decision) -> Decision:
        """Secrets are not watched, so that a look is due by itself: soon where members say that the store is ill."""
        status = observation.group.status
        if status is not None and status.store is not None and status.store.reason is not None:
            self.look_soon(observation.key)
        due_s = self.due_s(observation.key)
        if due_s is None:
            return decision
        wake_s, besides_s = decision.wake_after_s, decision.wake_besides_s
        return replace(
            decision,
            wake_after_s=due_s if wake_s is None else min(wake_s, due_s),
            wake_besides_s=due_s if besides_s is None else min(besides_s, due_s),
        )

    def look_soon(self, key: GroupKey) -> None:
        """Something is wrong: the next look is sooner."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.due_s = min(kept.due_s, self._clock() + LOOK_SOON_S)

    def changed(self, key: GroupKey) -> None:
        """A pass wrote or deleted a copy: what was read is old."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.due_s = self._clock()

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._kept.pop(key, None)

    async def _read(
        self, observation: Observation, names: set[str], mark: tuple[object, ...], before: _Kept | None
    ) -> _Kept:
        known = {} if before is None else before.secrets
        wanted = [] if observation.deleting else secret_names(observation.group.spec.sync, observation.key)
        secrets = {name: await self._source(observation, name, known.get(name)) for name in wanted}
        kept = _Kept(secrets, mark, self._clock() + LOOK_AGAIN_S)
        for name in sorted(names):
            copy = await self._copy(observation, name, None if before is None else before.copies.get(name))
            if copy is not None:
                kept.copies[name] = copy
        return kept

    async def _source(self, observation: Observation, name: str, before: StoreSecret | None) -> StoreSecret:
        """One Secret, as much of it as the stores that name it read."""
        try:
            found = await self._clusters.hub.get(SECRET, observation.key.namespace, name)
        except NotFoundError:
            return StoreSecret(name)
        except DeniedError as error:
            return StoreSecret(name, denied=str(error))
        except ApiError:
            if before is None:
                raise
            return before
        data = {key: value for key, value in _mapping(found.get("data")).items() if isinstance(value, str)}
        stores = fed_stores(observation.group.spec.sync, observation.key)
        urls = [store.url for store in stores if store.secret_ref is not None and store.secret_ref.name == name]
        return StoreSecret(name, {key: data[key] for url in urls for key in used_keys(url, data)})

    async def _copy(self, observation: Observation, name: str, before: ChildView | None) -> ChildView | None:
        """Our own copy; what somebody else has put under its name is none."""
        cluster, client = observation.clusters[name], self._clusters.client(name)
        if client is None or not cluster.reachable:
            return before
        key = copy_key(observation, cluster)
        try:
            found = await client.get(SECRET, key.namespace, key.name)
        except (NotFoundError, DeniedError):  # where it may not be read it may not be written, and that is told
            return None
        except ApiError:
            return before
        labels = _mapping(_mapping(found.get("metadata")).get("labels"))
        return child_view(found) if labels.get(LABEL_GROUP_UID) == observation.uid else None


def _with(observation: Observation, kept: _Kept) -> Observation:
    clusters = dict(observation.clusters)
    for name, copy in kept.copies.items():
        cluster = clusters[name]
        clusters[name] = replace(cluster, children={**cluster.children, copy.key: copy})
    return replace(observation, clusters=clusters, store_secrets=kept.secrets)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
