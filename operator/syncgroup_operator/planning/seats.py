"""Which members exist, where, which pods go and why, and who is replaced when. Pure.

A seat is a member's place in the group; pods come and go in it. Seats follow the spec; a seat moves only when its
member was lost and its place is the cause, and then stays where it is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from sync_runtime.contract.names import TRAINER_ROLE
from sync_runtime.contract.rollout import Rollout
from syncgroup_operator import reasons
from syncgroup_operator.planning.damping import UNDER_WAY_S, back_off_s, under_way
from syncgroup_operator.planning.decision import Note, Seat
from syncgroup_operator.planning.losses import Loss, loss_of, with_regions
from syncgroup_operator.planning.memory import SlotMemory
from syncgroup_operator.planning.observation import Place, PodView, Slot
from syncgroup_operator.planning.placement import node_gone, places_of, reachable, successor_place
from syncgroup_operator.planning.sitting import Sitting, Work, pods_by_slot, sit, spelled
from syncgroup_operator.planning.updates import is_available, roll


def homes_of(rollouts: list[Rollout]) -> dict[Slot, Place]:
    """Every rollout's seats and where they belong."""
    return {
        Slot(rollout.name, index): Place(rollout.cluster, rollout.region)
        for rollout in rollouts
        for index in range(rollout.replicas)
    }


def seat_rollouts(work: Work, relays: Container[str]) -> None:
    """Decide about every rollout's seats; what comes out is in the notebook."""
    spec = work.observation.group.spec
    pods = pods_by_slot(work.observation)
    sittings = {rollout.name: _sit_rollout(work, rollout, pods) for rollout in spec.rollouts}
    everyone = [sitting for group in sittings.values() for sitting in group]
    if spec.suspend:
        _rest(work, everyone)
    else:
        for sitting in everyone:
            _recover(work, sitting)
        _replace_lost(work, everyone)
        for rollout in spec.rollouts:
            roll(work, rollout, sittings[rollout.name], relays)
    for sitting in everyone:
        work.seats.append(_seat(work, sitting, suspended=spec.suspend))
    _dismiss(work, pods, {sitting.slot: sitting for sitting in everyone})
    _note_removals(work)


def _sit_rollout(work: Work, rollout: Rollout, pods: Mapping[Slot, list[PodView]]) -> list[Sitting]:
    options = places_of(rollout)
    found = []
    for index in range(rollout.replicas):
        slot = Slot(rollout.name, index)
        memory = work.memories.get(slot)
        if memory is not None and memory.place not in options:  # its place left the spec
            work.note_seen(slot, seen=False)
            work.memories[slot] = memory = SlotMemory(options[0])
        elif memory is None:
            memory = _adopted(work, slot, options, pods.get(slot, []))
        place = memory.place if memory is not None else options[0]
        found.append(sit(slot, options, place, pods.get(slot, ())))
    return found


def _adopted(work: Work, slot: Slot, options: tuple[Place, ...], pods: list[PodView]) -> SlotMemory | None:
    """A member in a fallback that the state does not know of: a hub restored from an older backup finds it so."""
    if work.was_seen(slot) or any(pod.place == options[0] for pod in pods) or work.cluster(options[0]) is None:
        return None
    alive = (pod for pod in pods if not pod.deleting and not work.life(pod).lost and work.cluster(pod.place))
    places = {pod.place for pod in alive}
    found = next((place for place in options if place in places), None)
    if found is not None:
        work.memories[slot] = SlotMemory(found)
    return work.memories.get(slot)


def _recover(work: Work, sitting: Sitting) -> None:
    """What is forgotten once the seat's member serves, and what its presence says."""
    memory, pod = work.memories.get(sitting.slot), sitting.pod
    if pod is None or work.cluster(sitting.place) is None:
        return
    given_up = memory is not None and memory.removed_uid == pod.uid
    if not pod.deleting and not given_up:
        work.note_seen(sitting.slot, seen=True)
    if memory is None or given_up or not is_available(work, pod):
        return
    memory = replace(memory, replacing_since=None, removed_uid=None)
    if memory.not_before is not None and memory.not_before > work.now:
        work.wake_at(memory.not_before)  # until then a member that dies again is one that never settled
    else:
        memory = SlotMemory(memory.place)
    work.memories[sitting.slot] = memory


def _rest(work: Work, sittings: list[Sitting]) -> None:
    """A suspended group keeps the places of its members and nothing else of what happened to them."""
    for sitting in sittings:
        if sitting.slot in work.memories:
            work.memories[sitting.slot] = SlotMemory(work.memories[sitting.slot].place)
        work.note_seen(sitting.slot, seen=False)


def _replace_lost(work: Work, sittings: list[Sitting]) -> None:
    found = [loss for loss in (loss_of(work, sitting) for sitting in sittings) if loss is not None]
    losses = with_regions(work, sittings, found)
    silent = {loss.sitting.place for loss in losses if loss.reason == reasons.REGION_LOST}

    def usable(place: Place) -> bool:
        return place not in silent and reachable(work.observation, place)

    def patience(loss: Loss) -> tuple[int, Slot]:
        memory = work.memories.get(loss.sitting.slot)
        return (memory.attempts if memory else 0, loss.sitting.slot)

    for loss in sorted(losses, key=patience):  # a hopeless seat must not use up what others need
        slot = loss.sitting.slot
        memory = work.memories.get(slot, SlotMemory(loss.sitting.home))
        options, place = loss.sitting.options, loss.sitting.place
        target = successor_place(options, place, loss.reason, memory.attempts, usable)
        if target is not None:
            _replace(work, loss, memory, target)
    if work.waiting:
        _wake_for_waiting(work)


def _replace(work: Work, loss: Loss, memory: SlotMemory, target: Place) -> None:
    slot = loss.sitting.slot
    counted = under_way(memory.replacing_since, work.now)
    if memory.not_before is not None and memory.not_before > work.now:
        work.waiting[slot] = loss.reason
        work.wake_at(memory.not_before)
    elif not work.budget.allows(counted=counted):
        work.waiting[slot] = loss.reason
    else:
        work.budget.take(counted=counted)
        pause_s = back_off_s(memory.attempts + 1)
        work.replaced(loss.sitting, target, loss.reason, loss.message, backs_off_s=pause_s)


def _wake_for_waiting(work: Work) -> None:
    release_s = work.budget.next_release_s()
    if release_s is not None:
        work.wakes_s.append(release_s + 1.0)
    for memory in work.memories.values():
        if memory.replacing_since is not None and under_way(memory.replacing_since, work.now):
            elapsed_s = (work.now - memory.replacing_since).total_seconds()
            work.wakes_s.append(UNDER_WAY_S - elapsed_s + 1.0)
    if work.replacements:
        message = f"{len(work.waiting)} more members are lost and wait for lease.maxConcurrentReplacements, "
        work.notes.append(Note("Normal", reasons.DAMPED, message + "lease.maxReplacementsPerHour or their back-off"))


def _seat(work: Work, sitting: Sitting, *, suspended: bool) -> Seat:
    slot = sitting.slot
    memory = work.memories.get(slot, SlotMemory(sitting.home))
    avoid = memory.avoid_nodes
    if suspended or work.cluster(memory.place) is None:
        return Seat(slot, memory.place, create=False, avoid_nodes=avoid)
    moved = memory.place != sitting.place
    if moved and memory.place.cluster != sitting.place.cluster:
        # Of the new cluster nothing was asked for yet; a namesake there is a stray and goes first.
        here = [pod for pod in work.observation.clusters[memory.place.cluster].pods if pod.slot == slot]
    else:
        here = [pod for pod in (sitting.pod, sitting.namesake) if pod is not None]
    if here:
        leaving = moved or any(
            pod.place != memory.place or pod.deleting or pod.uid in work.removals or pod.uid == memory.removed_uid
            for pod in here
        )
        # Who is given up goes without grace, so that the successor need not wait for another pass.
        given_up = all(pod.uid in work.removals and work.removals[pod.uid].force for pod in here)
        return Seat(slot, memory.place, create=given_up or not leaving, avoid_nodes=avoid)
    return Seat(slot, memory.place, create=slot not in work.waiting, avoid_nodes=avoid)


def _dismiss(work: Work, pods: Mapping[Slot, list[PodView]], sittings: Mapping[Slot, Sitting]) -> None:
    """Pods that have no seat, or not this one, or whose seat gave them up before."""
    suspended = work.observation.group.spec.suspend
    for slot, claims in pods.items():
        if slot.role == TRAINER_ROLE:
            continue
        sitting = sittings.get(slot)
        for pod in claims:
            cluster = work.cluster(pod.place)
            if cluster is None or pod.uid in work.removals:
                continue
            life = work.life(pod)
            hopeless = life.lost or node_gone(pod, cluster.nodes)
            if pod.deleting and life.due_s is not None:
                work.wake_at_s(life.due_s)
            memory = work.memories.get(slot, SlotMemory(sitting.home)) if sitting is not None else None
            if memory is None:
                work.remove(pod, reasons.SCALED_DOWN, "its seat is no longer in the spec", force=hopeless)
            elif suspended:
                work.remove(pod, reasons.SUSPENDED, "the group is suspended", force=hopeless)
            elif pod.place != memory.place:
                message = f"its seat is in {spelled(memory.place)} now"
                work.remove(pod, reasons.SLOT_TAKEN, message, force=True)
            elif pod.uid == memory.removed_uid:
                force = hopeless or pod.uid not in work.polite
                work.remove(pod, reasons.SLOT_TAKEN, "it was given up, and its successor waits", force=force)
            elif pod.deleting and hopeless:
                work.remove(pod, reasons.POD_DELETED, "it was deleted, and nobody is left to end it", force=True)


def _note_removals(work: Work) -> None:
    """One event per reason; replacements have told of themselves already."""
    told = {replacement.member for replacement in work.replacements}
    by_reason: dict[str, list[str]] = {}
    for removal in work.removals.values():
        if removal.pod.name not in told and not removal.pod.deleting:
            by_reason.setdefault(removal.reason, []).append(removal.pod.name)
    for reason, members in sorted(by_reason.items()):
        shown = ", ".join(sorted(members)[:5]) + (" and others" if len(members) > 5 else "")
        noun = "1 pod is" if len(members) == 1 else f"{len(members)} pods are"
        work.notes.append(Note("Normal", reason, f"{noun} removed: {shown}"))
