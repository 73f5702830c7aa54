"""Which seats lost their member, and of what. Pure: says what is the case, decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.observation import ClusterView, NodeView, Place, PodView, Slot
from syncgroup_operator.planning.placement import UNSCHEDULABLE_AFTER_S, node_gone
from syncgroup_operator.planning.sitting import Sitting, Work, spelled

_SILENT = frozenset({reasons.LEASE_EXPIRED, reasons.NODE_LOST, reasons.NEVER_REPORTED})
"""Losses that a whole region dies of."""
MAX_TROUBLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Loss:
    """A seat whose member is lost."""

    sitting: Sitting
    reason: str
    message: str


def loss_of(work: Work, sitting: Sitting) -> Loss | None:
    """Whether this seat needs another pod, and why. Notes when the verdict may change by itself."""
    cluster = work.cluster(sitting.place)
    if cluster is None:
        return _cluster_loss(work, sitting)
    pod, memory = sitting.pod, work.memories.get(sitting.slot)
    if pod is None:
        gone = work.was_seen(sitting.slot) and sitting.namesake is None
        return Loss(sitting, reasons.POD_DELETED, "its pod is gone") if gone else None
    if pod.deleting or (memory is not None and memory.removed_uid == pod.uid):
        return None
    ended = ended_loss(pod, cluster.nodes)
    if ended is not None:
        return Loss(sitting, *ended)
    silent = silent_loss(work, pod, cluster)
    if silent is not None:
        return Loss(sitting, *silent)
    if sitting.slot in work.asked:
        return Loss(sitting, *requested_loss(work, sitting.slot))
    return _capacity_loss(work, sitting, pod)


def ended_loss(pod: PodView, nodes: Mapping[str, NodeView]) -> tuple[str, str] | None:
    """A pod that ended by itself."""
    if pod.phase not in ("Failed", "Succeeded"):
        return None
    if node_gone(pod, nodes):
        return reasons.NODE_LOST, f"its node {pod.node} is gone"
    told = f": {pod.trouble.message or pod.trouble.reason}"[:MAX_TROUBLE_CHARACTERS] if pod.trouble else ""
    word = "failed" if pod.phase == "Failed" else "ended by itself"
    return reasons.POD_FAILED, f"its pod {word}{told}"


def silent_loss(work: Work, pod: PodView, cluster: ClusterView) -> tuple[str, str] | None:
    """A pod that nothing is heard of."""
    life = work.life(pod)
    if life.due_s is not None:
        work.watch_until_s(life.due_s)
    if not life.lost:
        return None
    if life.verdict == "NeverReported":
        return reasons.NEVER_REPORTED, f"it runs for {life.silent_s:.0f} s and never renewed its lease"
    if node_gone(pod, cluster.nodes):
        return reasons.NODE_LOST, f"no renewal for {life.silent_s:.0f} s, and its node {pod.node} is away"
    return reasons.LEASE_EXPIRED, f"no renewal for {life.silent_s:.0f} s"


def requested_loss(work: Work, slot: Slot) -> tuple[str, str]:
    """Somebody wants another pod in this seat."""
    return reasons.REQUESTED, f"request {work.asked[slot]} asks for another pod"


def with_regions(work: Work, sittings: Iterable[Sitting], losses: list[Loss]) -> list[Loss]:
    """The losses, with the region as the cause where most of its members went silent together.

    Seats that were moved away count with those that were lost: else the last one would be thought a single loss.
    """
    silent = Counter(loss.sitting.place for loss in losses if loss.reason in _SILENT)
    if not silent:
        return losses
    total: Counter[Place] = Counter()
    away: Counter[Place] = Counter()
    live: Counter[Place] = Counter()
    for sitting in sittings:
        total[sitting.home] += 1
        if sitting.place != sitting.home:
            away[sitting.home] += 1
            total[sitting.place] += 1
        if sitting.pod is not None and not work.life(sitting.pod).lost:
            live[sitting.place] += 1
    gone = {place for place, count in silent.items() if _is_gone(count, away[place], live[place], total[place])}
    return [_of_region(loss, gone) for loss in losses]


def _is_gone(silent: int, away: int, live: int, total: int) -> bool:
    return silent + away >= 2 and 2 * (silent + away) > total and silent >= live


def _of_region(loss: Loss, gone: set[Place]) -> Loss:
    if loss.reason not in _SILENT or loss.sitting.place not in gone:
        return loss
    message = f"{loss.message}; most members of {spelled(loss.sitting.place)} are silent"
    return replace(loss, reason=reasons.REGION_LOST, message=message)


def _cluster_loss(work: Work, sitting: Sitting) -> Loss | None:
    policy = work.observation.group.spec.lease
    cluster = work.observation.clusters.get(sitting.place.cluster)
    if policy.on_cluster_lost != "Replace" or cluster is None or cluster.lost_time is None:
        return None
    lost_s = clock.seconds_since(min(cluster.lost_time, work.now), work.now)
    if lost_s <= policy.lost_grace_seconds:
        work.wakes_s.append(policy.lost_grace_seconds - lost_s + 1.0)
        return None
    return Loss(sitting, reasons.CLUSTER_LOST, f"its cluster is out of reach for {lost_s:.0f} s")


def _capacity_loss(work: Work, sitting: Sitting, pod: PodView) -> Loss | None:
    if pod.unschedulable_since_s is None or pod.phase != "Pending" or len(sitting.options) == 1:
        return None
    waited_s = work.observation.now_s - pod.unschedulable_since_s
    if waited_s <= UNSCHEDULABLE_AFTER_S:
        work.wake_at_s(pod.unschedulable_since_s + UNSCHEDULABLE_AFTER_S)
        return None
    return Loss(sitting, reasons.NO_CAPACITY, f"no node had room for it in {waited_s:.0f} s")
