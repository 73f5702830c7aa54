"""A small world to plan for: clusters with pods and leases, two clocks, and an operator that forgets all but its state.

It does what real clusters do as far as decisions can tell: pods start, take their lease and renew it, die silently or
with their node, get deleted politely or at once. Only `observe` looks through the operator's eyes.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field, replace
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.plan import Plan
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.planning.decide import decide
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.observation import (
    ChildView,
    ClusterProblem,
    ClusterView,
    LeaseView,
    NodeView,
    ObjectKey,
    Observation,
    Place,
    PodView,
    Slot,
)
from syncgroup_operator.planning.state import GroupState

UID = "5c1c0a9e-0000-4000-8000-000000000001"
START = datetime.datetime(2027, 1, 31, 12, tzinfo=datetime.UTC)
DURATION_S = 40
START_S = 5.0
"""A pod is ready and has its lease after so long."""


def group(*rollouts: dict[str, Any], trainer: dict[str, Any] | None = None, **spec: Any) -> SyncGroup:
    """A SyncGroup `ml/grpo` with these rollouts; each needs a name, the rest has defaults."""
    template = {"spec": {"containers": [{"name": "main", "image": "a"}]}}
    exposure = {"type": "External", "host": "trainer.example", "port": 7443}
    return SyncGroup.parse(
        {
            "apiVersion": "syncgroup.dev/v1alpha1",
            "kind": "SyncGroup",
            "metadata": {"name": "grpo", "namespace": "ml"},
            "spec": {
                "trainer": {"region": "us", "template": template, "exposure": exposure, **(trainer or {})},
                "rollouts": [{"region": "eu", "template": template, **rollout} for rollout in rollouts],
                **spec,
            },
        }
    )


@dataclass
class Pod:
    """A pod as it really is."""

    uid: str
    slot: Slot
    place: Place
    born_s: float
    node: str
    template: str
    term: int | None
    dead: bool = False
    phase: str = "Running"
    starts: bool = True
    deleting_s: float | None = None
    unschedulable: bool = False
    renewals: int = 0


@dataclass
class Cluster:
    """A cluster as it really is, and since when the operator sees it."""

    connected_s: float | None = 0.0
    lost_time: datetime.datetime | None = None
    pods: dict[Slot, Pod] = field(default_factory=dict)
    down_nodes: set[str] = field(default_factory=set)


@dataclass
class World:
    """Everything, and the operator's memory in one text."""

    group: SyncGroup
    now_s: float = 1000.0
    now: datetime.datetime = START
    clusters: dict[str, Cluster] = field(default_factory=dict)
    template: str = "v1"
    state: str = ""
    deleting: bool = False
    writes_plans: bool = True
    next_uid: int = 0
    num_asked: int = 0
    children: dict[str, dict[ObjectKey, ChildView]] = field(default_factory=dict)
    reports: dict[Slot, dict[str, Any]] = field(default_factory=dict)
    plans: dict[Place, Plan] = field(default_factory=dict)
    _told: dict[tuple[Slot, Place, str], MemberReport] = field(default_factory=dict)
    _heard: dict[tuple[str, Slot], tuple[str, int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.group.spec
        fallbacks = (place.cluster for rollout in spec.rollouts for place in rollout.placement.fallback)
        homes = (rollout.cluster for rollout in spec.rollouts)
        for name in sorted({"local", spec.trainer.cluster, *homes, *fallbacks}):
            self.clusters.setdefault(name, Cluster(connected_s=self.now_s))
        self.state = self.state or GroupState(group_uid=UID).to_json()

    # ---------------------------------------------------------------------------------------------- the operator's side

    def observe(self) -> Observation:
        return Observation(
            group=self.group,
            uid=UID,
            generation=1,
            deleting=self.deleting,
            now_s=self.now_s,
            now=self.now,
            clusters={name: self._view(name, cluster) for name, cluster in self.clusters.items()},
            template_hashes=dict.fromkeys(self.roles(), self.template),
        )

    def decide(self) -> Decision:
        return decide(self.observe(), GroupState.from_json(self.state))

    def step(self) -> Decision:
        """One pass: decide, remember, act."""
        decision = self.decide()
        self.state = decision.state.to_json()
        self.act(decision)
        return decision

    def act(self, decision: Decision) -> None:
        for removal in decision.removals:
            cluster = self.clusters[removal.pod.place.cluster]
            pod = cluster.pods.get(removal.pod.slot)
            if cluster.connected_s is None or pod is None or pod.uid != removal.pod.uid:
                continue
            if removal.force:
                del cluster.pods[removal.pod.slot]
            elif pod.deleting_s is None:
                pod.deleting_s = self.now_s
        for seat in decision.seats:
            cluster = self.clusters[seat.place.cluster]
            if seat.create and cluster.connected_s is not None and seat.slot not in cluster.pods:
                self.make_pod(seat.slot, seat.place, term=seat.term)
        self.plans = dict(decision.plans)
        for place, plan in decision.plans.items():
            if self.writes_plans and self.clusters[place.cluster].connected_s is not None:
                self._write_plan(place, plan)

    def settle(self, seconds: float = 60.0, passes: int = 12) -> Decision:
        """Time passes, and the operator with it."""
        for _ in range(passes):
            self.pass_time(seconds / passes)
            decision = self.step()
        return decision

    def restart(self) -> None:
        """The operator forgets everything but its state; its clock starts elsewhere."""
        self._heard.clear()
        for cluster in self.clusters.values():
            if cluster.connected_s is not None:
                cluster.connected_s = self.now_s

    # ------------------------------------------------------------------------------------------------ the world's side

    def make_pod(self, slot: Slot, place: Place, term: int | None = None) -> Pod:
        self.next_uid += 1
        uid = f"uid-{self.next_uid}"
        pod = Pod(uid, slot, place, self.now_s, f"node-{self.next_uid}", self.template, term)
        self.clusters[place.cluster].pods[slot] = pod
        return pod

    def pass_time(self, seconds: float, *, wall_jump_s: float = 0.0) -> None:
        self.now_s += seconds
        self.now += datetime.timedelta(seconds=seconds + wall_jump_s)
        for cluster in self.clusters.values():
            for slot, pod in list(cluster.pods.items()):
                if pod.deleting_s is not None and not pod.dead and self.now_s - pod.deleting_s >= 1.0:
                    del cluster.pods[slot]
                elif self.is_up(pod):
                    pod.renewals += 1

    def is_up(self, pod: Pod) -> bool:
        started = pod.starts and self.now_s - pod.born_s >= START_S
        return started and not pod.dead and pod.phase == "Running" and not pod.unschedulable

    def pod(self, role: str, index: int, cluster: str | None = None) -> Pod:
        slot = Slot(role, index)
        homes = [self.clusters[cluster]] if cluster else list(self.clusters.values())
        return next(one.pods[slot] for one in homes if slot in one.pods)

    def cut(self, cluster: str) -> None:
        self.clusters[cluster].connected_s = None
        self.clusters[cluster].lost_time = self.now

    def mend(self, cluster: str) -> None:
        self.clusters[cluster].connected_s = self.now_s
        self.clusters[cluster].lost_time = None

    def roles(self) -> list[str]:
        return ["trainer", *(rollout.name for rollout in self.group.spec.rollouts)]

    def change(self, **spec: Any) -> None:
        """Edit the spec, by its camelCase names."""
        document = self.group.to_document()
        document["spec"] = {**document["spec"], **spec}
        self.group = SyncGroup.parse(document)
        self.__post_init__()

    # -------------------------------------------------------------------------------------------------------- the views

    def _write_plan(self, place: Place, plan: Plan) -> None:
        key = ObjectKey("ConfigMap", "ml", names.plan_name(self.group.key, *place))
        annotations = {
            names.ANNOTATION_TERM: str(plan.term),
            names.ANNOTATION_PLAN_REVISION: str(plan.revision),
        }
        metadata = {"name": key.name, "namespace": key.namespace, "annotations": annotations}
        body = {"kind": key.kind, "metadata": metadata, "data": {names.PLAN_KEY: plan.to_json()}}
        child = ChildView(key, f"uid-{key.name}", "1", json.dumps(body).encode())
        self.children.setdefault(place.cluster, {})[key] = child

    def _view(self, name: str, cluster: Cluster) -> ClusterView:
        reachable = cluster.connected_s is not None
        problem = None if reachable else ClusterProblem("Unreachable", "connection refused", permanent=False)
        pods = sorted(cluster.pods.values(), key=lambda pod: pod.slot) if reachable else []
        nodes = {pod.node: NodeView(pod.node, ready=pod.node not in cluster.down_nodes) for pod in pods}
        return ClusterView(
            name=name,
            namespace="ml",
            problem=problem,
            connected_s=cluster.connected_s,
            lost_time=cluster.lost_time,
            pods=tuple(self._pod_view(pod) for pod in pods),
            leases=tuple(self._lease_view(name, pod, cluster) for pod in pods),
            nodes=nodes,
            children=self.children.get(name, {}) if reachable else {},
        )

    def _pod_view(self, pod: Pod) -> PodView:
        up = self.is_up(pod)
        return PodView(
            name=names.member_name(self.group.key, *pod.slot),
            namespace="ml",
            uid=pod.uid,
            slot=pod.slot,
            place=pod.place,
            phase="Pending" if pod.unschedulable else pod.phase,
            # A dead node's pods stay as they were: nobody is left to say otherwise.
            ready=up or (pod.dead and pod.renewals > 0 and pod.phase == "Running"),
            deleting=pod.deleting_s is not None,
            seen_s=pod.born_s,
            node=None if pod.unschedulable else pod.node,
            template_hash=pod.template,
            term=pod.term,
            unschedulable_since_s=pod.born_s if pod.unschedulable else None,
        )

    def _lease_view(self, name: str, pod: Pod, cluster: Cluster) -> LeaseView:
        key = (name, pod.slot)
        before = self._heard.get(key)
        if before is None or before[:2] != (pod.uid, pod.renewals):
            first = before is None and cluster.connected_s == self.now_s
            self._heard[key] = (
                pod.uid,
                pod.renewals,
                min(self.now_s, cluster.connected_s or 0.0) if first else self.now_s,
            )
        return LeaseView(
            name=names.lease_name(self.group.key, *pod.slot),
            namespace="ml",
            slot=pod.slot,
            place=pod.place,
            holder=pod.uid if pod.renewals else "",
            renew_time=str(pod.renewals),
            duration_s=self.group.spec.lease.duration_seconds,
            changed_s=self._heard[key][2],
            report=self._report(pod) if pod.renewals else None,
            uid=f"lease-{pod.uid}",
        )

    def _report(self, pod: Pod) -> MemberReport:
        told = (pod.slot, pod.place, repr(self.reports.get(pod.slot)))
        if told not in self._told:
            self._told[told] = self._new_report(pod)
        return self._told[told]

    def _new_report(self, pod: Pod) -> MemberReport:
        fields = {
            "state": "Serving",
            "term": 0,
            "planRevision": 0,
            **self.reports.get(pod.slot, {}),
        }
        return MemberReport.parse(
            {
                "formatVersion": 1,
                "groupUid": UID,
                "member": names.member_name(self.group.key, *pod.slot),
                "role": "Trainer" if pod.slot.role == "trainer" else "Rollout",
                "cluster": pod.place.cluster,
                "region": pod.place.region,
                "runtimeVersion": "0.1.0",
                "maxPlanFormat": 1,
                **fields,
            }
        )


def fill(world: World) -> Decision:
    """A group that runs and is at rest."""
    world.step()
    return world.settle(30.0, passes=6)


def shuffled(observation: Observation, order: list[int]) -> Observation:
    """The same, in another order."""

    def turned(items: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = [order[index % len(order)] if order else 0 for index in range(len(items))]
        return tuple(item for _, _, item in sorted(zip(keys, range(len(items)), items, strict=True), reverse=True))

    clusters = {
        name: replace(cluster, pods=turned(cluster.pods), leases=turned(cluster.leases))
        for name, cluster in turned(tuple(observation.clusters.items()))
    }
    return replace(observation, clusters=clusters)
