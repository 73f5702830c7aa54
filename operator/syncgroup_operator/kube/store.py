"""What is known of one cluster, by group: pods, leases, children and nodes, kept small.

Takes bodies and says which groups a change matters to. A lease renewed with the same report matters to nobody: it only
moves the moment of its last sign of life. Does no input or output and reads no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from syncgroup_operator.kube.views import (
    Body,
    LeaseRow,
    child_view,
    group_uid_of,
    lease_row,
    node_view,
    pod_view,
)
from syncgroup_operator.planning.observation import ChildView, NodeView, ObjectKey, PodView

Key = tuple[str, str]
"""Namespace and name."""


class Why(Enum):
    """What a group is woken for."""

    POD = "pod"
    LEASE = "lease"
    """A lease came, went, changed hands, or is renewed again after it had run out."""
    REPORT = "report"
    CHILD = "child"
    NODE = "node"


Wakes = Iterable[tuple[str, Why]]
NOBODY: Final[Wakes] = ()


@dataclass(slots=True)
class Group:
    """Everything of one group in one cluster."""

    uid: str
    pods: dict[Key, PodView] = field(default_factory=dict)
    leases: dict[Key, LeaseRow] = field(default_factory=dict)
    children: dict[ObjectKey, ChildView] = field(default_factory=dict)


class Store:
    """One cluster's objects by group."""

    def __init__(self, cluster: str) -> None:
        self.groups: dict[str, Group] = {}
        self.nodes: Mapping[str, NodeView] = MappingProxyType({})
        """A new mapping with every change, so that a pass may keep the one it saw."""
        self._cluster = cluster
        self._durations: Counter[int] = Counter()
        """How many leases last how long."""
        self._pods: dict[Key, Group] = {}
        self._leases: dict[Key, Group] = {}
        self._children: dict[ObjectKey, Group] = {}

    def holder_uid(self, key: ObjectKey) -> str | None:
        """The uid of the group that holds the object of this name."""
        by_kind = {"Pod": self._pods, "Lease": self._leases}
        place = (key.namespace, key.name)
        group = by_kind[key.kind].get(place) if key.kind in by_kind else self._children.get(key)
        return None if group is None else group.uid

    # --- pods ---------------------------------------------------------------------------------------------------------

    def put_pod(self, body: Body, now_s: float) -> Wakes:
        """A pod that is there."""
        key = _key(body)
        owner = self._pods.get(key)
        before = owner.pods.get(key) if owner is not None else None
        view = pod_view(body, self._cluster, now_s, before)
        group_uid = group_uid_of(body)
        if view is None or group_uid is None:
            return self.drop_pod(body)
        if view == before and owner is not None and owner.uid == group_uid:
            return NOBODY
        wakes = self._move(self._pods, lambda group: group.pods, key, group_uid, Why.POD)
        self._pods[key].pods[key] = view
        return wakes

    def drop_pod(self, body: Body) -> Wakes:
        """A pod that is gone."""
        key = _key(body)
        owner = self._pods.pop(key, None)
        if owner is None:
            return NOBODY
        owner.pods.pop(key, None)
        self._forget_empty(owner)
        return ((owner.uid, Why.POD),)

    # --- leases -------------------------------------------------------------------------------------------------------

    def put_lease(self, body: Body, now_s: float) -> Wakes:
        """A lease that is there, or was renewed."""
        key = _key(body)
        owner = self._leases.get(key)
        before = owner.leases.get(key) if owner is not None else None
        row, group_uid = lease_row(body, self._cluster, now_s, before), group_uid_of(body)
        if row is None or group_uid is None:
            return self.drop_lease(body)
        self._lasts(before, row)
        if owner is not None and before is not None and owner.uid == group_uid:
            owner.leases[key] = row
            why = _why_lease(before, row)
            return ((owner.uid, why),) if why is not None else NOBODY
        wakes = self._move(self._leases, lambda group: group.leases, key, group_uid, Why.LEASE)
        self._leases[key].leases[key] = row
        return wakes

    def lease_changed_s(self, namespace: str, name: str) -> float | None:
        """When a lease was last renewed, by our own clock; None where there is none."""
        owner = self._leases.get((namespace, name))
        row = None if owner is None else owner.leases.get((namespace, name))
        return None if row is None else row.changed_s

    def drop_lease(self, body: Body) -> Wakes:
        """A lease that is gone."""
        key = _key(body)
        owner = self._leases.pop(key, None)
        if owner is None:
            return NOBODY
        self._lasts(owner.leases.pop(key, None), None)
        self._forget_empty(owner)
        return ((owner.uid, Why.LEASE),)

    @property
    def shortest_lease_s(self) -> int | None:
        """The least time that a held lease lasts without renewal; None where nobody holds one."""
        return min(self._durations, default=None)

    def _lasts(self, before: LeaseRow | None, after: LeaseRow | None) -> None:
        if before is not None and after is not None and before.duration_s == after.duration_s:
            return
        if before is not None and before.duration_s:
            self._durations[before.duration_s] -= 1
            if not self._durations[before.duration_s]:
                del self._durations[before.duration_s]
        if after is not None and after.duration_s:
            self._durations[after.duration_s] += 1

    # --- children -----------------------------------------------------------------------------------------------------

    def put_child(self, body: Body) -> Wakes:
        """Any other object of a group."""
        group_uid, view = group_uid_of(body), child_view(body)
        if view is None:
            return NOBODY
        if group_uid is None:
            return self.drop_child(view.key)
        owner = self._children.get(view.key)
        if owner is not None and owner.uid == group_uid:
            before = owner.children[view.key]
            if (before.uid, before.resource_version) == (view.uid, view.resource_version):
                return NOBODY  # a list repeats what is known
        wakes = self._move(self._children, lambda group: group.children, view.key, group_uid, Why.CHILD)
        self._children[view.key].children[view.key] = view
        return wakes

    def drop_child(self, key: ObjectKey) -> Wakes:
        """It is gone."""
        owner = self._children.pop(key, None)
        if owner is None:
            return NOBODY
        owner.children.pop(key, None)
        self._forget_empty(owner)
        return ((owner.uid, Why.CHILD),)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put_node(self, body: Body) -> Wakes:
        """A node; its heartbeats change nothing that is looked at."""
        view = node_view(body)
        if view is None or self.nodes.get(view.name) == view:
            return NOBODY
        self.nodes = MappingProxyType({**self.nodes, view.name: view})
        return self._on_node(view.name)

    def drop_node(self, name: str) -> Wakes:
        """It is gone."""
        if name not in self.nodes:
            return NOBODY
        self.nodes = MappingProxyType({key: view for key, view in self.nodes.items() if key != name})
        return self._on_node(name)

    # ------------------------------------------------------------------------------------------------------------------

    def forget_namespace(self, namespace: str) -> None:
        """It is no longer watched."""
        for key in [key for key in self._pods if key[0] == namespace]:
            self.drop_pod(_body(key))
        for key in [key for key in self._leases if key[0] == namespace]:
            self.drop_lease(_body(key))
        for child in [child for child in self._children if child.namespace == namespace]:
            self.drop_child(child)

    def _on_node(self, name: str) -> Wakes:
        return [
            (group.uid, Why.NODE)
            for group in self.groups.values()
            if any(pod.node == name for pod in group.pods.values())
        ]

    def _move(
        self, index: dict[Any, Group], rows: Callable[[Group], dict[Any, Any]], key: Any, group_uid: str, why: Why
    ) -> Wakes:
        """Put a key under a group; an object that changed groups wakes both."""
        group = self.groups.get(group_uid)
        if group is None:
            group = self.groups[group_uid] = Group(group_uid)
        owner = index.get(key)
        index[key] = group
        if owner is None or owner is group:
            return ((group_uid, why),)
        rows(owner).pop(key, None)
        self._forget_empty(owner)
        return ((owner.uid, why), (group_uid, why))

    def _forget_empty(self, group: Group) -> None:
        if not (group.pods or group.leases or group.children):
            self.groups.pop(group.uid, None)


def _why_lease(before: LeaseRow, after: LeaseRow) -> Why | None:
    fixed = (before.uid, before.holder, before.slot, before.place, before.duration_s)
    if fixed != (after.uid, after.holder, after.slot, after.place, after.duration_s):
        return Why.LEASE
    if after.changed_s - before.changed_s > before.duration_s:
        return Why.LEASE  # somebody may have judged it dead
    return Why.REPORT if before.report_json != after.report_json else None


def _key(body: Body) -> Key:
    metadata = body.get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _body(key: Key) -> Body:
    return {"metadata": {"namespace": key[0], "name": key[1]}}
