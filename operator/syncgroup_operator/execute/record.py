"""The group's state on the hub: one ConfigMap, changed only by compare-and-swap.

Term and plan revision are given out here before anything else is written. A replica whose view is old, or one of two
leaders, loses the swap and looks again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import (
    STATE_PLAN_REVISION_KEY,
    STATE_TERM_KEY,
    GroupKey,
    group_labels,
    state_name,
)
from syncgroup_operator.errors import ConflictError, NotFoundError, StateError
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import CONFIG_MAP
from syncgroup_operator.planning.observation import ChildView
from syncgroup_operator.planning.state import GroupState

STATE_KEY: Final = "state.json"


@dataclass(frozen=True, slots=True)
class Record:
    """A group's state, and which version of its ConfigMap that was; None: there is none yet."""

    state: GroupState
    resource_version: str | None = None


class Records:
    """The states of all groups: what the cache shows, or what this replica wrote since."""

    def __init__(self, hub: Cluster) -> None:
        self._hub = hub
        self._written: dict[GroupKey, Record] = {}

    def read(self, key: GroupKey, uid: str, seen: ChildView | None) -> Record:
        """The newest known state of a group; raises StateError where it cannot be read."""
        written = self._written.get(key)
        if written is not None and written.state.group_uid == uid:
            if seen is not None and seen.resource_version == written.resource_version:
                del self._written[key]  # the cache has caught up
            return written
        if seen is None:
            return Record(GroupState(group_uid=uid))
        return Record(parse_state(json.loads(seen.body), key, uid), seen.resource_version)

    async def write(self, key: GroupKey, before: Record, state: GroupState, owner: Mapping[str, Any]) -> Record:
        """Swap the state; raises ConflictError where somebody else was faster, after which the next look is fresh."""
        document = state_document(key, state, owner)
        try:
            if before.resource_version is None:
                answer = await self._hub.create(document)
            else:
                document["metadata"]["resourceVersion"] = before.resource_version
                answer = await self._hub.replace(document)
        except (ConflictError, NotFoundError) as error:
            await self._look_again(key, state.group_uid)
            raise ConflictError(f"the state of {key.name} was changed by somebody else: looking again") from error
        record = Record(state, answer["metadata"]["resourceVersion"])
        self._written[key] = record
        return record

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._written.pop(key, None)

    async def _look_again(self, key: GroupKey, uid: str) -> None:
        try:
            found = await self._hub.get(CONFIG_MAP, key.namespace, state_name(key))
        except NotFoundError:
            self._written[key] = Record(GroupState(group_uid=uid))
            return
        self._written[key] = Record(parse_state(found, key, uid), found["metadata"]["resourceVersion"])


def state_document(key: GroupKey, state: GroupState, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The ConfigMap; term and revision stand beside the document, for people."""
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": state_name(key),
            "namespace": key.namespace,
            "labels": group_labels(key, state.group_uid),
            "ownerReferences": [dict(owner)],
        },
        "data": {
            STATE_TERM_KEY: str(state.term),
            STATE_PLAN_REVISION_KEY: str(state.revision),
            STATE_KEY: state.to_json(),
        },
    }


def parse_state(body: Mapping[str, Any], key: GroupKey, uid: str) -> GroupState:
    """The state in a ConfigMap; of a namesake that is gone only the numbers count. Raises StateError."""
    text = (body.get("data") or {}).get(STATE_KEY)
    if not isinstance(text, str):
        raise StateError(
            f"ConfigMap {state_name(key)} has no {STATE_KEY}; restore it, or delete it while no trainer runs"
        )
    try:
        state = GroupState.from_json(text)
    except ContractError as error:
        raise StateError(f"ConfigMap {state_name(key)} cannot be read: {error}") from error
    if state.group_uid != uid:
        return GroupState(group_uid=uid, term=state.term, revision=state.revision)
    return state
