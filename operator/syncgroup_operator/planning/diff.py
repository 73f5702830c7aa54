"""Wanted objects against seen ones: what to apply and what to delete.

Pure. Knows documents as plain JSON values, not how they are sent.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sync_runtime.contract import names
from syncgroup_operator.planning.covering import covers
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.leases import life_of
from syncgroup_operator.planning.observation import (
    ChildView,
    ClusterView,
    LeaseView,
    ObjectKey,
    Observation,
    PodView,
    Slot,
)
from syncgroup_operator.planning.placement import node_gone

Document: TypeAlias = Mapping[str, Any]
"""A Kubernetes object as JSON values, with apiVersion, kind and metadata."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that should exist, in the words of server-side apply: only what the operator owns."""

    cluster: str
    document: Document

    @property
    def key(self) -> ObjectKey:
        """Which object."""
        return key_of(self.document)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole document."""

    cluster: str
    document: Document
    instead_of: str = ""
    """The uid of a pod of the same name that is given up: it goes at once, and this one is created in its stead."""

    @property
    def key(self) -> ObjectKey:
        """Which object."""
        return key_of(self.document)


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly the object that was seen."""

    cluster: str
    key: ObjectKey
    uid: str
    grace_s: int | None = None
    """None: the object's own grace. 0: at once."""


@dataclass(frozen=True, slots=True)
class Relabel:
    """Labels and annotations set again on a pod that lives, and nothing else of it: a merge patch of its metadata."""

    cluster: str
    key: ObjectKey
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


Action: TypeAlias = Apply | Relabel | Delete

_CLAIM = "PersistentVolumeClaim"
_OF_ONE_POD = frozenset({names.ANNOTATION_TEMPLATE_HASH, names.ANNOTATION_TERM})
"""Annotations that say what a pod was made from; a later document must not rewrite history."""


def key_of(document: Document) -> ObjectKey:
    """Which object a document is about."""
    metadata = document["metadata"]
    return ObjectKey(str(document["kind"]), str(metadata.get("namespace", "")), str(metadata["name"]))


def is_kept(observation: Observation, cluster: str, key: ObjectKey) -> bool:
    """Whether an object is none of the diff's business: the hub's own record of the group, and its authority.

    Both belong to the group by owner reference and go with it. Without the record, terms would begin anew while
    members of older ones may still run.
    """
    if cluster != names.LOCAL_CLUSTER:
        return False
    record = ObjectKey("ConfigMap", observation.key.namespace, names.state_name(observation.key))
    authority = ObjectKey("Secret", observation.key.namespace, names.ca_secret_name(observation.key))
    return key in (record, authority)


def diff(wanted: Iterable[Wanted], observation: Observation, decision: Decision) -> tuple[Action, ...]:
    """What to do so that what is seen becomes what is wanted: creations in the order given, deletions last.

    Nothing is planned for a cluster that cannot be reached.
    """
    if observation.deleting:
        return tuple(_delete_all(observation))
    reachable = {name: cluster for name, cluster in observation.clusters.items() if cluster.reachable}
    seen_pods = {(name, pod.namespace, pod.name): pod for name, one in reachable.items() for pod in one.pods}
    seen_leases = {(name, one.namespace, one.name) for name, cluster in reachable.items() for one in cluster.leases}
    given_up = {removal.pod.uid for removal in decision.removals if removal.force}
    actions: list[Action] = []
    kept: set[tuple[str, ObjectKey]] = set()
    for want in wanted:
        if want.cluster not in reachable:
            continue
        key = want.key
        kept.add((want.cluster, key))
        if key.kind == "Pod":
            pod = seen_pods.get((want.cluster, key.namespace, key.name))
            actions += _for_pod(want, pod, given_up)
        elif key.kind == "Lease":
            if (want.cluster, key.namespace, key.name) not in seen_leases:
                actions.append(Apply(want.cluster, want.document))
        else:
            actions += _for_child(want, reachable[want.cluster].children.get(key))
    succeeded = {action.instead_of for action in actions if isinstance(action, Apply)}
    actions += _removed_pods(observation, decision, succeeded)
    actions += _unwanted(observation, reachable, kept)
    return tuple(actions)


def _for_pod(want: Wanted, pod: PodView | None, given_up: Container[str]) -> Iterator[Action]:
    """A pod is never changed, but for labels and annotations that somebody took off it."""
    if pod is None:
        yield Apply(want.cluster, want.document)
    elif pod.uid in given_up:
        yield Apply(want.cluster, want.document, instead_of=pod.uid)
    elif not pod.labels_ours and not pod.deleting:
        metadata = want.document["metadata"]
        annotations = {name: text for name, text in metadata.get("annotations", {}).items() if name not in _OF_ONE_POD}
        yield Relabel(want.cluster, want.key, pod.uid, dict(metadata.get("labels", {})), annotations)


def _for_child(want: Wanted, seen: ChildView | None) -> Iterator[Action]:
    if seen is None or (not seen.deleting and not covers(want.document, body_of(seen.body))):
        yield Apply(want.cluster, want.document)


def _removed_pods(observation: Observation, decision: Decision, succeeded: Container[str]) -> Iterator[Action]:
    for removal in decision.removals:
        if removal.pod.uid in succeeded:
            continue
        cluster = observation.clusters.get(removal.pod.place.cluster)
        if cluster is not None and cluster.reachable:
            yield _delete_pod(cluster.name, removal.pod, 0 if removal.force else None)


def _unwanted(
    observation: Observation, reachable: Mapping[str, ClusterView], kept: set[tuple[str, ObjectKey]]
) -> Iterator[Action]:
    """Objects of the group that nobody wants any more. Claims stay: a member's spool outlives its seat."""
    for name, cluster in sorted(reachable.items()):
        for key, child in sorted(cluster.children.items()):
            wanted = (name, key) in kept or child.deleting or key.kind == _CLAIM
            if not wanted and not is_kept(observation, name, key):
                yield Delete(name, key, child.uid)
        for lease in sorted(cluster.leases, key=lambda lease: lease.name):
            key = ObjectKey("Lease", lease.namespace, lease.name)
            if (name, key) not in kept and lease.slot not in _running(cluster):
                yield Delete(name, key, lease.uid)


def _running(cluster: ClusterView) -> set[Slot]:
    """Seats with a pod there: while it runs it renews its lease, and would miss it."""
    return {pod.slot for pod in cluster.pods}


def _delete_all(observation: Observation) -> Iterator[Action]:
    for name, cluster in sorted(observation.clusters.items()):
        if not cluster.reachable:
            continue
        lives = {lease.holder: lease for lease in cluster.leases}
        for pod in sorted(cluster.pods, key=lambda pod: pod.name):
            if not pod.deleting:
                yield _delete_pod(name, pod, None)
            elif node_gone(pod, cluster.nodes) or _is_silent(pod, lives, cluster, observation):
                yield _delete_pod(name, pod, 0)
        for key, child in sorted(cluster.children.items()):
            if not child.deleting and not is_kept(observation, name, key):
                yield Delete(name, key, child.uid)
        for lease in sorted(cluster.leases, key=lambda lease: lease.name):
            yield Delete(name, ObjectKey("Lease", lease.namespace, lease.name), lease.uid)


def _is_silent(pod: PodView, lives: Mapping[str, LeaseView], cluster: ClusterView, observation: Observation) -> bool:
    lease = lives.get(pod.uid)
    return life_of(pod, lease, cluster, observation.now_s, observation.group.spec.lease).lost


def _delete_pod(cluster: str, pod: PodView, grace_s: int | None) -> Delete:
    return Delete(cluster, ObjectKey("Pod", pod.namespace, pod.name), pod.uid, grace_s)


def body_of(body: bytes) -> Mapping[str, Any]:
    """An object as the API server gave it."""
    read = json.loads(body)
    return read if isinstance(read, dict) else {}
