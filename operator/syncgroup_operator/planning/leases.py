"""Who is alive, judged by the operator's own clock since it saw a lease change. Pure.

Old and unreachable are different facts: of a cluster whose watches are not live nothing is known, and after they came
back a lease must be watched for its whole duration before it can be called expired. A link that was cut looks like many
deaths until a watch notices; so a lease is judged as of the last moment at which the watch is known to have lived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sync_runtime.contract.policies import LeasePolicy
from sync_runtime.contract.reports import MemberReport
from syncgroup_operator.planning.decision import Vigil
from syncgroup_operator.planning.observation import ClusterView, LeaseView, Observation, PodView, Slot

Verdict = Literal["Live", "Unknown", "Expired", "NeverReported"]

STARTUP_ALLOWANCE_S = 300.0
"""From Running to the first renewal: the sidecar starts first, but needs a certificate and its plan."""
PROOF_S = 1.0
"""How soon to look again at a lease that ran out in silence."""
MAX_DURATION_S = 3600
"""The contract's own limit: a member cannot grant itself a longer life."""


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of one pod's life."""

    verdict: Verdict
    silent_s: float = 0.0
    """How long the lease has not changed under our eyes."""
    due_s: float | None = None
    """When, on the monotonic clock, the verdict turns to the worse unless something is heard."""
    report: MemberReport | None = None
    taken: bool = False
    """Whether this pod holds its lease: it was alive once."""

    @property
    def lost(self) -> bool:
        """Whether its seat needs another pod."""
        return self.verdict in ("Expired", "NeverReported")


UNSEEN = Life("Unknown")


def vigils_of(observation: Observation, lives: Mapping[str, Life]) -> tuple[Vigil, ...] | None:
    """The leases of all pods where every one of them is alive; None where one is not."""
    vigils: list[Vigil] = []
    policy = observation.group.spec.lease
    for name, cluster in observation.clusters.items():
        leases = {lease.slot: lease for lease in cluster.leases}
        for pod in cluster.pods:
            life = lives.get(pod.uid, UNSEEN)
            lease = leases.get(pod.slot)
            if life.verdict != "Live" or pod.deleting or lease is None:
                return None
            vigils.append(Vigil(name, lease.namespace, lease.name, duration_s(lease, policy)))
    return tuple(sorted(vigils, key=lambda vigil: (vigil.cluster, vigil.namespace, vigil.lease)))


def judge(observation: Observation) -> Mapping[str, Life]:
    """The life of every pod of the group, by its uid."""
    policy = observation.group.spec.lease
    lives: dict[str, Life] = {}
    for cluster in observation.clusters.values():
        leases: dict[Slot, LeaseView] = {lease.slot: lease for lease in cluster.leases}
        for pod in cluster.pods:
            lives[pod.uid] = life_of(pod, leases.get(pod.slot), cluster, observation.now_s, policy)
    return lives


def life_of(pod: PodView, lease: LeaseView | None, cluster: ClusterView, now_s: float, policy: LeasePolicy) -> Life:
    """The life of one pod. A lease that another pod holds says nothing about this one."""
    taken = lease if lease is not None and lease.holder == pod.uid else None
    report = taken.report if taken is not None else None
    if not cluster.reachable or cluster.connected_s is None:
        return Life("Unknown", report=report, taken=taken is not None)
    if taken is None:
        return _unreported(pod, cluster, max(_started_s(pod), cluster.connected_s), now_s)
    since_s = max(taken.changed_s, cluster.connected_s)
    due_s = since_s + duration_s(taken, policy)
    silent_s = max(now_s - since_s, 0.0)
    if now_s > due_s:
        if _is_proven(cluster, due_s):
            return Life("Expired", silent_s, report=report, taken=True)
        due_s = now_s + PROOF_S
    # The first sight of a lease is no renewal: it may be years old.
    return Life("Live" if taken.changed_s > cluster.connected_s else "Unknown", silent_s, due_s, report, taken=True)


def duration_s(lease: LeaseView, policy: LeasePolicy) -> float:
    """What the spec asks for, or what the member still lives by until it has the new plan."""
    return float(max(policy.duration_seconds, min(lease.duration_s, MAX_DURATION_S)))


def _unreported(pod: PodView, cluster: ClusterView, since_s: float, now_s: float) -> Life:
    if pod.phase != "Running":
        return UNSEEN
    due_s = since_s + STARTUP_ALLOWANCE_S
    if now_s <= due_s:
        return Life("Unknown", now_s - since_s, due_s)
    if _is_proven(cluster, due_s):
        return Life("NeverReported", now_s - since_s)
    return Life("Unknown", now_s - since_s, now_s + PROOF_S)


def _started_s(pod: PodView) -> float:
    return pod.seen_s if pod.running_since_s is None else pod.running_since_s


def _is_proven(cluster: ClusterView, due_s: float) -> bool:
    """Whether the watch lived past that moment, so that silence until then was the member's own."""
    return cluster.heard_s is None or cluster.heard_s > due_s
