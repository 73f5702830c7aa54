"""Requests of the spec: which are begun now, which are over, and what the status says of each. Pure.

A request is begun once: its id is in the group's state from the same write on that the rest of the pass rests upon, so
that neither a restart nor a second leader begins it again. What is left to do of it is then seen from the world: a pod
that is still there, a member that has not answered yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sync_runtime.contract.names import TRAINER_ROLE
from sync_runtime.contract.requests import Request, RequestProgress, RequestStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.observation import Observation, Slot
from syncgroup_operator.planning.sitting import Work, pods_by_slot
from syncgroup_operator.planning.state import MAX_REQUEST_STATES, GroupState, RequestState
from syncgroup_operator.planning.updates import is_available

_SHOWN = 3
_UNPROVEN = ("Starting", "Joining", "Draining")
"""States of members that prove their weights before they serve, or are on their way out: no scrub waits for them."""


class Settled(NamedTuple):
    """Requests after a pass."""

    requests: list[RequestState]
    scrubs: int
    """Number of the latest scrub."""


def pending_replacements(requests: Iterable[Request], state: GroupState, seats: Mapping[str, Slot]) -> dict[Slot, str]:
    """Seats whose member is to be replaced, with the request's id. `seats`: every member's by its name."""
    begun = {entry.id for entry in state.requests}
    found: dict[Slot, str] = {}
    for request in requests:
        slot = seats.get(request.member or "")
        if request.type == "Replace" and request.id not in begun and slot is not None:
            found.setdefault(slot, request.id)
    return found


def polite_uids(state: GroupState) -> frozenset[str]:
    """Pods that go because somebody asked for it: they end in their own time."""
    return frozenset(entry.pod_uid for entry in state.requests if entry.pod_uid is not None)


def settle(work: Work, state: GroupState, seats: Mapping[str, Slot]) -> Settled:
    """After the seats were decided: what was begun in this pass, and what is over."""
    known = {entry.id: entry for entry in state.requests}
    scrubs = state.scrubs
    for request in work.observation.group.spec.requests:
        if request.id in known:
            continue
        if request.type == "Scrub":
            scrubs += 1
            known[request.id] = _begun(work, request, number=scrubs)
        elif (slot := seats.get(request.member or "")) is None:
            message = f"the group has no member {request.member}: see `kubectl syncgroup top`"
            known[request.id] = _begun(work, request, over=True, refused=True, message=message)
        elif (begun := _replacing(work, request, slot)) is not None:
            known[request.id] = begun
    entries = [entry if entry.over else _looked_at(work, entry, seats) for entry in known.values()]
    return Settled(_kept(entries, work.observation), scrubs)


def request_statuses(observation: Observation, decision: Decision) -> list[RequestStatus]:
    """For the status: one line per request of the spec."""
    known = {entry.id: entry for entry in decision.state.requests}
    return [_status(request, known.get(request.id), observation) for request in observation.group.spec.requests]


def _replacing(work: Work, request: Request, slot: Slot) -> RequestState | None:
    """The request as one that is begun, if its member's pod goes in this pass, or is gone already."""
    if work.observation.group.spec.suspend:
        return None
    pods = pods_by_slot(work.observation).get(slot, ())
    if any(work.cluster(pod.place) is None for pod in pods):
        return None
    going = next((pod for pod in pods if pod.uid in work.removals or pod.deleting), None)
    memory = work.memories.get(slot)
    if going is None and memory is not None:
        going = next((pod for pod in pods if pod.uid == memory.removed_uid), None)
    if going is not None:
        return _begun(work, request, pod_uid=going.uid)
    sitting = next((seat for seat in work.seats if seat.slot == slot), None)
    absent = not pods and slot not in work.waiting and sitting is not None and work.cluster(sitting.place) is not None
    return _begun(work, request) if absent else None


def _begun(
    work: Work,
    request: Request,
    *,
    pod_uid: str | None = None,
    number: int | None = None,
    over: bool = False,
    refused: bool = False,
    message: str | None = None,
) -> RequestState:
    return RequestState(
        id=request.id, type=request.type, member=request.member, begun_time=clock.written(work.now), pod_uid=pod_uid,
        number=number, over=over, refused=refused, message=message,
    )  # fmt: skip


def _looked_at(work: Work, entry: RequestState, seats: Mapping[str, Slot]) -> RequestState:
    return _scrub(work, entry) if entry.type == "Scrub" else _replacement(work, entry, seats)


def _replacement(work: Work, entry: RequestState, seats: Mapping[str, Slot]) -> RequestState:
    slot = seats.get(entry.member or "")
    if slot is None:
        return entry.model_copy(update={"over": True, "message": "the member's seat is no longer in the spec"})
    pods = pods_by_slot(work.observation).get(slot, ())
    successor = next((pod for pod in pods if pod.uid != entry.pod_uid and is_available(work, pod)), None)
    if successor is None or any(pod.uid == entry.pod_uid for pod in pods):
        return entry
    where = f"{successor.place.cluster}/{successor.place.region}" + (f" on {successor.node}" if successor.node else "")
    return entry.model_copy(update={"over": True, "message": f"its successor serves in {where}"})


def _scrub(work: Work, entry: RequestState) -> RequestState:
    """Over once every member that serves has answered; one that starts later proves its weights anyway."""
    answers = _answers(work, entry.number or 0)
    if not answers or None in answers.values():
        return entry
    failed = sorted(name for name, result in answers.items() if result == "Failed")
    told = f"the weights of all {len(answers)} members that serve are what they should be"
    if failed:
        shown = ", ".join(failed[:_SHOWN]) + (" and others" if len(failed) > _SHOWN else "")
        told = f"the weights of {len(failed)} of {len(answers)} members were wrong, and are mended: {shown}"
    return entry.model_copy(update={"over": True, "message": told})


def _answers(work: Work, number: int) -> dict[str, str | None]:
    """What every rollout with live weights has answered to a scrub; None: nothing yet."""
    found: dict[str, str | None] = {}
    for pod in work.observation.pods():
        life = work.life(pod)
        report = life.report
        if pod.slot.role == TRAINER_ROLE or pod.deleting or work.cluster(pod.place) is None or life.lost:
            continue
        if report is None or report.state in _UNPROVEN:
            continue
        answer = report.scrub_answer
        found[pod.name] = answer.result if answer is not None and answer.request >= number else None
    return found


def _kept(entries: list[RequestState], observation: Observation) -> list[RequestState]:
    """Those of the spec, and of the others the latest, as many as there is room for."""
    wanted = {request.id for request in observation.group.spec.requests}
    others = [entry.id for entry in entries if entry.id not in wanted]
    room = MAX_REQUEST_STATES - sum(entry.id in wanted for entry in entries)
    forgotten = set(others[: max(len(others) - room, 0)])
    return [entry for entry in entries if entry.id not in forgotten]


def _status(request: Request, entry: RequestState | None, observation: Observation) -> RequestStatus:
    if entry is None:
        return RequestStatus(
            id=request.id, type=request.type, member=request.member, state="Waiting", message=_why_waiting(observation)
        )
    ended: RequestProgress = "Refused" if entry.refused else "Done"
    running = (
        "members compare their weights" if request.type == "Scrub" else "its pod goes, and its successor is awaited"
    )
    return RequestStatus(
        id=request.id, type=request.type, member=request.member, begun_time=entry.begun_time,
        state=ended if entry.over else "Running", message=entry.message or running,
    )  # fmt: skip


def _why_waiting(observation: Observation) -> str:
    if observation.group.spec.suspend:
        return "the group is suspended: spec.suspend"
    if observation.group.spec.lease.max_replacements_per_hour == 0:
        return "spec.lease.maxReplacementsPerHour is 0: members are never replaced"
    return (
        f"{reasons.DAMPED}: it waits for spec.lease.maxConcurrentReplacements, spec.lease.maxReplacementsPerHour, the "
        "member's own back-off, or its cluster"
    )
