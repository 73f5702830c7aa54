"""What one pass over a SyncGroup sees: everything that a decision may rest on, as plain frozen values.

Pure. Two kinds of time: `now_s` and everything that ends in `_s` is the operator's own monotonic clock, by which death
is judged; `now` and everything that ends in `_time` is wall time, which is shown, kept across restarts, and compared
only with our own earlier writing.

`kube` fills these views from watches; nothing here knows where they come from.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.syncgroup import SyncGroup


class Place(NamedTuple):
    """A region of a cluster."""

    cluster: str
    region: str


class Slot(NamedTuple):
    """A member's seat in the group: `role` is `trainer` or the rollout's name, `index` counts from 0."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks a seat for


class ObjectKey(NamedTuple):
    """Which child object, inside one cluster. Cluster-scoped objects have an empty namespace."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """The worst thing that a pod says about itself."""

    reason: str
    """A container's waiting or terminated reason, or the scheduler's, CamelCase."""
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of the group, as far as decisions need it."""

    name: str
    namespace: str
    uid: str
    slot: Slot
    place: Place
    phase: str
    """Pending, Running, Succeeded, Failed or Unknown."""
    ready: bool
    deleting: bool
    seen_s: float
    """When the operator first saw this pod."""
    node: str | None = None
    ip: str | None = None
    template_hash: str = ""
    term: int | None = None
    """The trainer's: the term that it was created for."""
    trouble: PodTrouble | None = None
    running_since_s: float | None = None
    """When the operator first saw it Running; None counts as `seen_s`."""
    unschedulable_since_s: float | None = None
    """When the operator first saw the scheduler find no node for it."""
    labels_ours: bool = True
    """False where somebody changed a label or annotation that we set."""
    service_account: str = ""
    """What it runs as; empty: not known, and then not compared."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One member's lease. `changed_s` is when the operator saw `renew_time` change last; that alone judges."""

    name: str
    namespace: str
    slot: Slot
    place: Place
    holder: str
    """The pod's uid; empty until a member took the lease."""
    renew_time: str
    duration_s: int
    changed_s: float
    report: MemberReport | None = None
    problem: str | None = None
    """Why the report cannot be read."""
    uid: str = ""
    """The Lease's own; a deletion is bound to it."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node, for the cause of a death."""

    name: str
    ready: bool
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ChildView:
    """A child object other than a pod or a lease: its body as the API server gave it, without managed fields."""

    key: ObjectKey
    uid: str
    resource_version: str
    body: bytes
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class ClusterProblem:
    """Why a cluster of the group cannot be used."""

    reason: str
    message: str
    permanent: bool
    """True: only a change of spec, SyncCluster or Secret helps. False: it may come back by itself."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster as this group may use it."""

    name: str
    namespace: str
    """Where the group's objects live there."""
    region: str = ""
    """The region that the SyncCluster names; empty for the hub."""
    problem: ClusterProblem | None = None
    connected_s: float | None = None
    """Since when all watches of it are live without a break; None while they are not. A lease can only be judged by
    what was seen since then."""
    heard_s: float | None = None
    """When its watch of leases last proved that it lives. Silence after that may be the link's, so leases are judged as
    of this moment. None: as of now."""
    lost_time: datetime.datetime | None = None
    """When it was lost, as kept in its SyncCluster's status; survives restarts."""
    service_accounts: frozenset[str] | None = frozenset({"default"})
    """Those that templates may name. None: any of the namespace, as for every workload in the group's own."""
    shares_devices: bool = False
    """Whether the cluster has dynamic resource allocation, so that two containers may share a GPU."""
    pods: tuple[PodView, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    children: Mapping[ObjectKey, ChildView] = field(default_factory=dict)

    @property
    def reachable(self) -> bool:
        """Whether what is seen of it is the present."""
        return self.problem is None and self.connected_s is not None


@dataclass(frozen=True, slots=True)
class StoreSecret:
    """A Secret that an object store of the group names, as it was last read on the hub."""

    name: str
    data: Mapping[str, str] | None = field(default=None, repr=False)
    """Base64 by key, those that its stores read; None: there is no such Secret."""
    denied: str = ""
    """Why the operator may not read it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one pass over a group rests on."""

    group: SyncGroup
    uid: str
    generation: int
    deleting: bool
    now_s: float
    now: datetime.datetime
    clusters: Mapping[str, ClusterView]
    """Every cluster that the spec names or that still holds something of the group, by name."""
    template_hashes: Mapping[str, str] = field(default_factory=dict)
    """Per role, what a pod of the present template carries (`manifests`)."""
    default_image: str = ""
    store_secrets: Mapping[str, StoreSecret] = field(default_factory=dict)
    """Those that the group's object stores name; none where it has no store, or the pods' own identity opens them."""
    refused: frozenset[Slot] = frozenset()
    """Seats whose pod the API server refused to make when it was last asked: there surely is none, so that a trainer
    may be asked for again with the same term."""

    @property
    def key(self) -> GroupKey:
        """Which group."""
        return self.group.key

    def pods(self) -> list[PodView]:
        """All pods of the group, in every cluster that is seen."""
        return [pod for cluster in self.clusters.values() for pod in cluster.pods]

    def leases(self) -> list[LeaseView]:
        """All leases of the group."""
        return [lease for cluster in self.clusters.values() for lease in cluster.leases]
