"""Removes what vanished groups left behind, in clusters that were away when their group was deleted.

Slow on purpose. An object goes only if its group was missing from several complete lists of this same hub, one after
the other, and if this hub made it; a hub that was restored from a backup, or an operator that sees only some
namespaces, must not take others' pods for leftovers. A few per round: whoever made a mistake has time to stop it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from sync_runtime.contract.names import (
    ANNOTATION_HUB,
    LABEL_GROUP,
    LABEL_GROUP_NAMESPACE,
    LABEL_GROUP_UID,
    GroupKey,
    store_secret_name,
)
from syncgroup_operator.errors import ApiError, ConflictError, DeniedError, NotFoundError
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.execute.remote import Remote
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import Kind

_log = logging.getLogger(__name__)
ROUNDS: Final = 3
MAX_PER_ROUND: Final = 50
COLLECTED: Final = (
    kinds.POD, kinds.LEASE, kinds.CONFIG_MAP, kinds.SERVICE, kinds.ROLE_BINDING, kinds.ROLE, kinds.VOLUME_CLAIM,
)  # fmt: skip


class Collector:
    """One round after the other; what it counted is in memory only, so that a restart begins again."""

    def __init__(self, clusters: Clusters, hub_id: str, namespace: str, watched: Collection[str]) -> None:
        self._clusters = clusters
        self._hub_id = hub_id
        self._namespace = namespace
        self._watched = frozenset(watched)
        self._missing: Counter[tuple[str, str]] = Counter()
        self._foreign: set[tuple[str, str]] = set()
        """Groups of other hubs, by cluster and uid: they are looked at once, not in every round."""
        self.removed = 0

    async def round(self) -> None:
        """Look once at every cluster; errors end the round of one cluster only."""
        try:
            living = await self._living()
        except ApiError as error:
            _log.warning("nothing is collected: %s", error)
            self._missing.clear()  # lists must be complete one after the other
            return
        if living is None:
            self._missing.clear()
            return
        for remote in self._clusters.remotes():
            await self._collect(remote, living)
        await self._collect_secrets(living)

    async def _living(self) -> frozenset[str] | None:
        """The uids of all groups in one complete list; None where this is another hub than the one we started with."""
        hub = self._clusters.hub
        if await hub_id_of(hub) != self._hub_id:
            return None
        found: set[str] = set()
        for namespace in sorted(self._watched) or [""]:
            found.update(body["metadata"]["uid"] for body in await hub.list_all(kinds.SYNC_GROUP, namespace))
        return frozenset(found)

    async def _collect(self, remote: Remote, living: frozenset[str]) -> None:
        cache, client = remote.cache, remote.client
        if cache is None or client is None or not remote.is_connected():
            return
        namespaces = sorted({allowed.remote for allowed in remote.resource.spec.allowed_namespaces})
        seen = cache.group_uids()
        self._foreign -= {key for key in self._foreign if key[0] == remote.name and key[1] not in seen}
        candidates = {uid for uid in seen if (remote.name, uid) not in self._foreign}
        for uid in self._due(remote.name, candidates, living):
            try:
                if not await self._remove(client, uid, namespaces):
                    self._foreign.add((remote.name, uid))
            except ApiError as error:
                _log.warning("leftovers of group %s in cluster %s stay for now: %s", uid, remote.name, error)

    def _due(self, place: str, seen: Collection[str], living: frozenset[str]) -> list[str]:
        """Groups that were missing often enough; one that is back, or no longer seen, starts again."""
        gone = {uid for uid in seen if uid not in living}
        for key in [key for key in self._missing if key[0] == place and key[1] not in gone]:
            del self._missing[key]
        for uid in gone:
            self._missing[place, uid] += 1
        return sorted(uid for uid in gone if self._missing[place, uid] >= ROUNDS)

    async def _remove(self, client: Cluster, uid: str, namespaces: list[str]) -> bool:
        """Remove some of what a group left; whether anything of it was ours."""
        left, ours = MAX_PER_ROUND, False
        secrets: set[tuple[str, str]] = set()
        for kind in COLLECTED:
            for namespace in namespaces:
                for body in await client.list_all(kind, namespace, label_selector=f"{LABEL_GROUP_UID}={uid}"):
                    if self._is_ours(body):
                        ours = True
                        if await self._remove_store_secret(client, uid, body, secrets):
                            left -= 1
                        left -= await self._delete(client, kind, body) if left > 0 else 0
        return ours

    async def _remove_store_secret(
        self, client: Cluster, uid: str, body: dict[str, Any], looked_at: set[tuple[str, str]]
    ) -> bool:
        """The copy of an object store's Secret beside what a group left: found by its name, since none are listed."""
        metadata, labels = body["metadata"], body["metadata"]["labels"]
        key = GroupKey(labels.get(LABEL_GROUP_NAMESPACE, ""), labels.get(LABEL_GROUP, ""))
        place = (metadata.get("namespace") or "", store_secret_name(key))
        if place in looked_at or not all(place):
            return False
        looked_at.add(place)
        try:
            found = await client.get(kinds.SECRET, *place)
        except (NotFoundError, DeniedError):  # whoever may not read it never made one
            return False
        is_its = (found["metadata"].get("labels") or {}).get(LABEL_GROUP_UID) == uid
        return bool(is_its and self._is_ours(found) and await self._delete(client, kinds.SECRET, found))

    async def _collect_secrets(self, living: frozenset[str]) -> None:
        """Authorities of groups that went without a finalizer."""
        hub = self._clusters.hub
        try:
            found = await hub.list_all(kinds.SECRET, self._namespace, label_selector=LABEL_GROUP_UID)
            by_uid = {body["metadata"]["labels"][LABEL_GROUP_UID]: body for body in found if self._is_watched(body)}
            for uid in self._due("", by_uid, living)[:MAX_PER_ROUND]:
                await self._delete(hub, kinds.SECRET, by_uid[uid])
        except ApiError as error:
            _log.warning("authorities of vanished groups stay for now: %s", error)

    def _is_ours(self, body: dict[str, Any]) -> bool:
        annotations = body["metadata"].get("annotations") or {}
        return annotations.get(ANNOTATION_HUB) == self._hub_id and self._is_watched(body)

    def _is_watched(self, body: dict[str, Any]) -> bool:
        namespace = (body["metadata"].get("labels") or {}).get(LABEL_GROUP_NAMESPACE)
        return not self._watched or namespace in self._watched

    async def _delete(self, client: Cluster, kind: Kind, body: dict[str, Any]) -> int:
        metadata = body["metadata"]
        try:
            await client.delete(kind, metadata.get("namespace") or "", metadata["name"], uid=metadata["uid"])
        except (NotFoundError, ConflictError):
            return 0
        self.removed += 1
        _log.info("removed %s %s, left by a group that is gone", kind.kind, metadata["name"])
        return 1


async def hub_id_of(hub: Cluster) -> str:
    """What tells this hub from any other: the uid of a namespace that lives as long as the cluster."""
    found = await hub.get(kinds.NAMESPACE, "", "kube-system")
    return str(found["metadata"]["uid"])
