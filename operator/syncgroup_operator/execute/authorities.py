"""The groups' certificate authorities: one Secret each, in the operator's own namespace.

There, and not beside the group: whoever may read Secrets of a namespace could otherwise speak for the trainer, and
the operator would need to read Secrets everywhere. Read once and kept in memory; looked at again now and then, since
a Secret may be restored or deleted by people.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.names import (
    LABEL_GROUP,
    LABEL_GROUP_NAMESPACE,
    LABEL_GROUP_UID,
    GroupKey,
    ca_secret_name,
    group_labels,
)
from syncgroup_operator.errors import ConflictError, NotFoundError, OperatorError
from syncgroup_operator.identity.authority import (
    AuthorityPolicy,
    GroupAuthority,
    Rotation,
    advance,
    due,
    from_data,
    make,
    to_data,
)
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import SECRET

LOOK_AGAIN_S: Final = 1800.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Kept:
    authority: GroupAuthority
    resource_version: str
    uid: str
    read_s: float


class Authorities:
    """All groups' authorities."""

    def __init__(
        self,
        hub: Cluster,
        namespace: str,
        policy: AuthorityPolicy,
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime.datetime],
    ) -> None:
        self.policy = policy
        self._hub = hub
        self._namespace = namespace
        self._clock = clock
        self._wall_clock = wall_clock
        self._kept: dict[str, _Kept] = {}

    def known(self, group_uid: str) -> GroupAuthority | None:
        """The authority of a group, if a pass has read it."""
        kept = self._kept.get(group_uid)
        return None if kept is None else kept.authority

    async def of(self, key: GroupKey, group_uid: str, *, trusted: str, delivered: bool) -> GroupAuthority:
        """The authority of a group, made where there is none, rotated where that is due.

        `trusted` is the bundle that members have now; `delivered` says whether every cluster has the present one.
        """
        kept = self._kept.get(group_uid)
        if kept is None or self._clock() - kept.read_s > LOOK_AGAIN_S:
            kept = self._kept[group_uid] = await self._read(key, group_uid, trusted)
        now = self._wall_clock()
        step = due(kept.authority, now=now, policy=self.policy, delivered=delivered)
        if step is not Rotation.NONE:
            authority = advance(kept.authority, step, now=now, policy=self.policy)
            document = self._document(key, group_uid, authority)
            document["metadata"]["resourceVersion"] = kept.resource_version
            try:
                answer = await self._hub.replace(document)
            except ConflictError:
                del self._kept[group_uid]  # another leader was faster; the next pass reads what it wrote
                raise
            kept = self._kept[group_uid] = self._keep(authority, answer)
        return kept.authority

    async def read_all(self) -> None:
        """Reads what there is in few requests, so that the first passes after a start need none each.

        Only for whoever leads from now on: another leader may go on turning keys. What a pass has read stays; a Secret
        that cannot be read is left to its own group's pass, which tells of it.
        """
        try:
            async for page in self._hub.pages(SECRET, self._namespace, label_selector=LABEL_GROUP_UID):
                for found in page.items:
                    self._note(found)
                    await asyncio.sleep(0)  # keys take their time to be read, and passes are under way
        except OperatorError as error:
            _log.info("authorities are read one by one: %s", error)

    def _note(self, found: dict[str, Any]) -> None:
        labels = found["metadata"].get("labels") or {}
        group_uid = labels.get(LABEL_GROUP_UID, "")
        key = GroupKey(labels.get(LABEL_GROUP_NAMESPACE, ""), labels.get(LABEL_GROUP, ""))
        if group_uid not in self._kept and found["metadata"]["name"] == ca_secret_name(key):
            with contextlib.suppress(OperatorError):
                self._kept[group_uid] = self._keep(from_data(found.get("data"), group_uid), found)

    async def remove(self, key: GroupKey, group_uid: str) -> None:
        """The group is gone: so is its authority."""
        self._kept.pop(group_uid, None)
        name = ca_secret_name(key)
        try:
            found = await self._hub.get(SECRET, self._namespace, name)
            labels = found["metadata"].get("labels") or {}
            if group_labels(key, group_uid).items() <= labels.items():
                await self._hub.delete(SECRET, self._namespace, name, uid=found["metadata"]["uid"])
        except (NotFoundError, ConflictError):
            return

    async def _read(self, key: GroupKey, group_uid: str, trusted: str) -> _Kept:
        name = ca_secret_name(key)
        try:
            found = await self._hub.get(SECRET, self._namespace, name)
        except NotFoundError:
            authority = make(group_uid, now=self._wall_clock(), policy=self.policy, trusted=trusted)
            return self._keep(authority, await self._hub.create(self._document(key, group_uid, authority)))
        labels = found["metadata"].get("labels") or {}
        if labels.get(LABEL_GROUP_UID) != group_uid:
            # A namesake's, which is gone: its members are, too.
            await self._hub.delete(SECRET, self._namespace, name, uid=found["metadata"]["uid"])
            return await self._read(key, group_uid, trusted)
        return self._keep(from_data(found.get("data"), group_uid), found)

    def _keep(self, authority: GroupAuthority, found: dict[str, Any]) -> _Kept:
        metadata = found["metadata"]
        return _Kept(authority, metadata["resourceVersion"], metadata["uid"], self._clock())

    def _document(self, key: GroupKey, group_uid: str, authority: GroupAuthority) -> dict[str, Any]:
        return {
            "apiVersion": SECRET.api_version,
            "kind": SECRET.kind,
            "type": "Opaque",
            "metadata": {
                "name": ca_secret_name(key),
                "namespace": self._namespace,
                "labels": group_labels(key, group_uid),
            },
            "data": to_data(authority),
        }
