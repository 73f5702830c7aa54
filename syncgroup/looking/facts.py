"""What was read of a SyncGroup and what belongs to it, as plain values. Pure; every foreign value may be missing.

Ages are by this machine's clock against what members wrote by theirs: they are shown, and nothing is decided by them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.plan import Plan
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.status import Condition, RegionStatus, SyncGroupStatus
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.kube.troubles import trouble_of
from syncgroup_operator.kube.views import read_report
from syncgroup_operator.planning.clock import read
from syncgroup_operator.planning.observation import PodTrouble

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodFact:
    """One pod of the group, where this person may see it."""

    name: str
    namespace: str
    phase: str
    ready: bool
    deleting: bool
    node: str = ""
    trouble: PodTrouble | None = None


@dataclass(frozen=True, slots=True)
class MemberFact:
    """One member: its seat, and what its pod and its lease say."""

    name: str
    role: str
    index: int
    cluster: str
    region: str
    pod: PodFact | None = None
    report: MemberReport | None = None
    lease_age_s: float | None = None
    """Since its lease was renewed; None: it never was, or nobody here may see it."""
    lease_duration_s: int | None = None


@dataclass(frozen=True, slots=True)
class EventFact:
    """Something that was told about the group."""

    type: str
    reason: str
    note: str
    age_s: float | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class ClusterFact:
    """A SyncCluster that the group uses."""

    name: str
    connected: str
    """True, False or Unknown."""
    reason: str
    message: str
    lost_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Everything that is known of one group."""

    group: SyncGroup
    generation: int
    deleting: bool = False
    members: Sequence[MemberFact] = ()
    events: Sequence[EventFact] = ()
    clusters: Sequence[ClusterFact] = ()
    plans: Sequence[Plan] = ()
    """The plans in force, where this person may see them."""
    unseen: Sequence[str] = ()
    """What could not be read, in sentences: a person with few rights still gets an answer."""
    status: SyncGroupStatus = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.group.status or SyncGroupStatus())

    @property
    def name(self) -> str:
        """As a person would say it."""
        return f"{self.group.key.namespace}/{self.group.key.name}"

    def condition(self, kind: str) -> Condition | None:
        """One condition."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    def members_at(self, region: RegionStatus) -> list[MemberFact]:
        """The rollouts of one row of the status."""
        place = (region.cluster, region.region)
        return [one for one in self.members if (one.cluster, one.region) == place and one.role != names.TRAINER_ROLE]


def pod_fact(body: Body) -> PodFact:
    """A pod."""
    status, metadata = _mapping(body.get("status")), _mapping(body.get("metadata"))
    ready = any(
        isinstance(one, dict) and one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
    return PodFact(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        phase=str(status.get("phase", "Unknown")),
        ready=ready,
        deleting="deletionTimestamp" in metadata,
        node=str(_mapping(body.get("spec")).get("nodeName", "")),
        trouble=trouble_of(status, ready=ready),
    )


def member_facts(
    group: SyncGroup, pods: Iterable[Body], leases: Iterable[Body], now: datetime.datetime
) -> list[MemberFact]:
    """Every seat of the spec, and every pod that has none; the trainer first."""
    pods_by_name = {str(_mapping(body.get("metadata")).get("name", "")): body for body in pods}
    leases_by_name = {str(_mapping(body.get("metadata")).get("name", "")): body for body in leases}
    seats = dict(_seats(group))
    for name, body in {**leases_by_name, **pods_by_name}.items():
        labels = _mapping(_mapping(body.get("metadata")).get("labels"))
        role, index = labels.get(names.LABEL_ROLE), str(labels.get(names.LABEL_INDEX, ""))
        if isinstance(role, str) and index.isascii() and index.isdigit():
            place = (str(labels.get(names.LABEL_CLUSTER, "")), str(labels.get(names.LABEL_REGION, "")))
            if name in pods_by_name or name in seats:
                seats[name] = (role, int(index[:6]), *place)
    found = [_member(name, seat, pods_by_name.get(name), leases_by_name.get(name), now) for name, seat in seats.items()]
    return sorted(found, key=lambda one: (one.role != names.TRAINER_ROLE, one.cluster, one.region, one.role, one.index))


def event_fact(body: Body, now: datetime.datetime) -> EventFact:
    """An Event of either API."""
    series = _mapping(body.get("series"))
    when = series.get("lastObservedTime") or body.get("eventTime") or body.get("deprecatedLastTimestamp")
    when = when or body.get("lastTimestamp") or _mapping(body.get("metadata")).get("creationTimestamp")
    count = series.get("count") or body.get("deprecatedCount") or body.get("count") or 1
    return EventFact(
        type=str(body.get("type", "Normal")),
        reason=str(body.get("reason", "")),
        note=str(body.get("note") or body.get("message") or ""),
        age_s=age_of(when, now),
        count=count if isinstance(count, int) else 1,
    )


def cluster_fact(body: Body, now: datetime.datetime) -> ClusterFact:
    """A SyncCluster."""
    status = _mapping(body.get("status"))
    conditions = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    connected = next((one for one in conditions if one.get("type") == "Connected"), {})
    return ClusterFact(
        name=str(_mapping(body.get("metadata")).get("name", "")),
        connected=str(connected.get("status", "Unknown")),
        reason=str(connected.get("reason", "")),
        message=str(connected.get("message", "the operator has not looked at it yet")),
        lost_age_s=age_of(status.get("lostTime"), now),
    )


def plan_fact(body: Body) -> Plan | None:
    """The plan in a ConfigMap; None: it holds none, or one of another release."""
    text = _mapping(body.get("data")).get(names.PLAN_KEY)
    try:
        return Plan.from_json(text) if isinstance(text, str) else None
    except ContractError:
        return None


def age_of(when: object, now: datetime.datetime) -> float | None:
    """How long ago a written time was; None where it is none."""
    if not isinstance(when, str):
        return None
    try:
        return max((now - read(when)).total_seconds(), 0.0)
    except ValueError:
        return None


def clusters_of(group: SyncGroup) -> set[str]:
    """Every cluster that the spec names, without the hub's own."""
    spec = group.spec
    fallbacks = {place.cluster for rollout in spec.rollouts for place in rollout.placement.fallback}
    return ({spec.trainer.cluster} | {one.cluster for one in spec.rollouts} | fallbacks) - {names.LOCAL_CLUSTER}


def _seats(group: SyncGroup) -> Iterable[tuple[str, tuple[str, int, str, str]]]:
    spec, key = group.spec, group.key
    trainer = names.member_name(key, names.TRAINER_ROLE, 0)
    yield trainer, (names.TRAINER_ROLE, 0, spec.trainer.cluster, spec.trainer.region)
    for rollout in spec.rollouts:
        for index in range(rollout.replicas):
            name = names.member_name(key, rollout.name, index)
            yield name, (rollout.name, index, rollout.cluster, rollout.region)


def _member(
    name: str, seat: tuple[str, int, str, str], pod: Body | None, lease: Body | None, now: datetime.datetime
) -> MemberFact:
    role, index, cluster, region = seat
    spec = _mapping(None if lease is None else lease.get("spec"))
    metadata = _mapping(None if lease is None else lease.get("metadata"))
    text = _mapping(metadata.get("annotations")).get(names.ANNOTATION_REPORT)
    duration = spec.get("leaseDurationSeconds")
    return MemberFact(
        name=name,
        role=role,
        index=index,
        cluster=cluster,
        region=region,
        pod=None if pod is None else pod_fact(pod),
        report=read_report(text)[0] if isinstance(text, str) and spec.get("holderIdentity") else None,
        lease_age_s=age_of(spec.get("renewTime"), now) if spec.get("holderIdentity") else None,
        lease_duration_s=duration if isinstance(duration, int) else None,
    )


def _mapping(value: object) -> Body:
    return value if isinstance(value, dict) else {}
