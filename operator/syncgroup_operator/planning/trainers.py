"""The trainer's one seat: when its pod is made, for which term, and when it is replaced. Pure.

Two trainers must never publish under one term. A term is allocated before a pod is asked for, is used once, and a lost
trainer is fenced off by a new one before anything is done about its pod. What cannot be reached is left alone. One
that has itself seen a later term than its own will never publish again, whatever our state says: it is lost, too.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, replace

from sync_runtime.contract import names
from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.damping import MAX_ATTEMPTS, back_off_s
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.losses import ended_loss, requested_loss, silent_loss
from syncgroup_operator.planning.memory import SlotMemory
from syncgroup_operator.planning.observation import ChildView, ClusterView, Observation, Place, PodView, Slot
from syncgroup_operator.planning.placement import node_gone
from syncgroup_operator.planning.sitting import Sitting, Work, pods_by_slot, sit
from syncgroup_operator.planning.state import GroupState
from syncgroup_operator.planning.updates import is_available, is_outdated

TRAINER: Slot = Slot(names.TRAINER_ROLE, 0)
CREATION_ALLOWANCE_S = 15.0
"""From asking for a pod to seeing it. If it is not seen by then, another one is asked for, with another term."""
MAX_BELIEVED = 2**50
"""A larger number in an annotation or report is no count of ours."""


@dataclass(frozen=True, slots=True)
class TermState:
    """The part of the group's state that fences trainers."""

    term: int
    open: bool
    """Allocated, and no pod with it was seen yet."""
    asked: datetime.datetime | None
    """When a pod for the open term was first asked for."""


def trainer_place(observation: Observation) -> Place:
    """Where the trainer is; it never moves."""
    return Place(observation.group.spec.trainer.cluster, observation.group.spec.trainer.region)


def seat_trainer(work: Work, state: GroupState, seen_term: int) -> TermState:
    """Decide about the trainer's seat. `seen_term`: the largest term found anywhere outside the state."""
    place = trainer_place(work.observation)
    sitting = sit(TRAINER, (place,), place, pods_by_slot(work.observation).get(TRAINER, ()))
    term = TermState(state.term, state.term_open, clock.past(state.term_time, work.now))
    cluster = work.cluster(place)
    if cluster is None:
        work.seats.append(Seat(TRAINER, place, create=False, term=term.term))
        return term
    pod = sitting.pod
    if pod is not None and pod.term is not None and (not pod.deleting or pod.term > term.term):
        term = _observed(term, pod)  # one that ends, too: after it nobody may be left who knows of its term
    if work.observation.group.spec.suspend:
        return _stop(work, sitting, term)
    if pod is not None and not _is_given_up(work, pod, term):
        _recover(work, pod)
    if pod is not None:
        term = _keep_or_replace(work, sitting, pod, cluster, term=term, seen_term=seen_term)
    elif not _may_begin(work, sitting):
        work.seats.append(Seat(TRAINER, place, create=False, term=term.term))
    else:
        term = _begin(work, sitting, term, seen_term)
    return term


def terms_seen(observation: Observation) -> int:
    """The largest term in annotations and reports: a hub restored from an older backup must not use one again."""
    pods = (pod.term or 0 for pod in observation.pods())
    reports = (lease.report.term for lease in observation.leases() if lease.report is not None)
    plans = (annotated(child, names.ANNOTATION_TERM) for child in plan_children(observation))
    return max((number for number in (*pods, *reports, *plans) if number <= MAX_BELIEVED), default=0)


def revisions_seen(observation: Observation) -> int:
    """The largest plan revision in annotations and reports."""
    reports = (lease.report.plan_revision for lease in observation.leases() if lease.report is not None)
    plans = (annotated(child, names.ANNOTATION_PLAN_REVISION) for child in plan_children(observation))
    return max((number for number in (*reports, *plans) if number <= MAX_BELIEVED), default=0)


def plan_children(observation: Observation) -> list[ChildView]:
    """The ConfigMaps that are seen; which of them hold plans, their annotations tell."""
    clusters = observation.clusters.values()
    return [child for cluster in clusters for child in cluster.children.values() if child.key.kind == "ConfigMap"]


def annotated(child: ChildView, annotation: str) -> int:
    """A number that an object carries; 0 if it has none. A quote inside a JSON string would be escaped."""
    found = re.search(rb'"' + re.escape(annotation).encode() + rb'": ?"(\d{1,16})"', child.body)
    return int(found[1]) if found else 0


def _observed(term: TermState, pod: PodView) -> TermState:
    """A pod that carries the term uses it; one that carries a later one is from after our state was written."""
    if pod.term is None or pod.term < term.term or pod.term > MAX_BELIEVED:
        return term
    return TermState(pod.term, open=False, asked=None)


def _is_given_up(work: Work, pod: PodView, term: TermState) -> bool:
    memory = work.memories.get(TRAINER)
    removed = memory is not None and memory.removed_uid == pod.uid
    return removed or (pod.term is not None and pod.term < term.term)


def _stop(work: Work, sitting: Sitting, term: TermState) -> TermState:
    pod = sitting.pod
    if pod is not None:
        work.remove(pod, reasons.SUSPENDED, "the group is suspended", force=work.life(pod).lost)
    work.note_seen(TRAINER, seen=False)
    work.seats.append(Seat(TRAINER, sitting.place, create=False, term=term.term))
    return term


def _recover(work: Work, pod: PodView) -> None:
    memory = work.memories.get(TRAINER)
    if not pod.deleting:
        work.note_seen(TRAINER, seen=True)
    if memory is None or not is_available(work, pod):
        return
    if memory.not_before is not None and memory.not_before > work.now:
        work.wake_at(memory.not_before)
        work.memories[TRAINER] = SlotMemory(
            memory.place, memory.avoid_nodes, memory.attempts, memory.not_before, None, None
        )
    else:
        del work.memories[TRAINER]


def _keep_or_replace(
    work: Work, sitting: Sitting, pod: PodView, cluster: ClusterView, *, term: TermState, seen_term: int
) -> TermState:
    keep = Seat(TRAINER, sitting.place, create=False, term=term.term)
    hopeless = work.life(pod).lost or node_gone(pod, cluster.nodes)
    if _is_given_up(work, pod, term):
        force = hopeless or pod.uid not in work.polite
        work.remove(pod, reasons.SLOT_TAKEN, "a newer term was given out", force=force)
        work.note_seen(TRAINER, seen=False)
    elif pod.deleting:
        if hopeless:
            work.remove(pod, reasons.POD_DELETED, "it was deleted, and nobody is left to end it", force=True)
    elif pod.phase == "Succeeded":  # training is done; what it published stays until somebody decides otherwise
        keep = Seat(TRAINER, sitting.place, create=True, term=term.term)
    elif (
        loss := ended_loss(pod, cluster.nodes)
        or silent_loss(work, pod, cluster)
        or _fenced_loss(work, pod)
        or (requested_loss(work, TRAINER) if TRAINER in work.asked else None)
    ) is not None:
        if _allowed(work, loss[0]):
            term = _allocated(term, seen_term)
            work.replaced(sitting, sitting.place, *loss, backs_off_s=_next_pause_s(work))
            keep = Seat(TRAINER, sitting.place, create=False, term=term.term)
    elif is_outdated(work, pod):
        work.remove(pod, reasons.TEMPLATE_CHANGED, "its template changed")
        work.note_seen(TRAINER, seen=False)
    else:
        keep = Seat(TRAINER, sitting.place, create=True, term=term.term)
    work.seats.append(keep)
    return term


def _fenced_loss(work: Work, pod: PodView) -> tuple[str, str] | None:
    """A trainer that knows of its own successor: after a hub was restored from a backup, the only one who does."""
    report = work.life(pod).report
    if report is None or pod.term is None or not pod.term < report.term <= MAX_BELIEVED:
        return None
    return reasons.FENCED, f"it was made for term {pod.term} and has seen term {report.term}: it may not publish"


def _may_begin(work: Work, sitting: Sitting) -> bool:
    """Whether an absent pod may be made now; one that was seen and is gone was lost."""
    if not work.was_seen(TRAINER):
        return True
    if not _allowed(work, reasons.POD_DELETED):
        return False
    work.replaced(sitting, sitting.place, reasons.POD_DELETED, "its pod is gone", backs_off_s=_next_pause_s(work))
    return True


def _begin(work: Work, sitting: Sitting, term: TermState, seen_term: int) -> TermState:
    """Ask for a pod, once per term: one that was asked for may have run, even if nobody saw it."""
    refused = TRAINER in work.observation.refused
    memory = work.memories.get(TRAINER, SlotMemory(sitting.place))
    if term.open and term.asked is not None and not refused:
        # Every term is a new plan for everybody: where pods are refused for hours, not every few seconds.
        patience_s = max(CREATION_ALLOWANCE_S, back_off_s(memory.attempts))
        waited_s = clock.seconds_since(term.asked, work.now)
        if waited_s <= patience_s:
            work.wakes_s.append(patience_s - waited_s + 1.0)
            work.seats.append(Seat(TRAINER, sitting.place, create=False, term=term.term))
            return term
        memory = replace(memory, attempts=min(memory.attempts + 1, MAX_ATTEMPTS))
        work.memories[TRAINER] = memory
        term = _allocated(term, seen_term)
    elif not term.open:
        term = _allocated(term, seen_term)
    seat = Seat(TRAINER, sitting.place, create=True, avoid_nodes=memory.avoid_nodes, term=term.term)
    work.seats.append(seat)
    return TermState(term.term, open=True, asked=work.now)


def _allocated(term: TermState, seen_term: int) -> TermState:
    return TermState(max(term.term, seen_term) + 1, open=True, asked=None)


def _allowed(work: Work, reason: str) -> bool:
    """The trainer waits for its own back-off alone: without it the others have nothing to do."""
    memory = work.memories.get(TRAINER)
    if work.budget.forbidden:
        work.waiting[TRAINER] = reason
        return False
    if memory is not None and memory.not_before is not None and memory.not_before > work.now:
        work.waiting[TRAINER] = reason
        work.wake_at(memory.not_before)
        return False
    return True


def _next_pause_s(work: Work) -> float:
    memory = work.memories.get(TRAINER)
    return back_off_s((memory.attempts if memory else 0) + 1)
