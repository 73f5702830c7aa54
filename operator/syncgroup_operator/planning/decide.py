"""One pass over a SyncGroup in one function: what is seen and remembered in, what to do and to remember out. Pure.

The same observation and state always give the same decision, in whatever order the views came. The decision's state
must be stored, by compare-and-swap, before anything else of it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping

from sync_runtime.contract.names import LOCAL_CLUSTER, member_name
from syncgroup_operator.planning import clock
from syncgroup_operator.planning.damping import Budget
from syncgroup_operator.planning.decision import Decision, Seat
from syncgroup_operator.planning.diff import is_kept
from syncgroup_operator.planning.leases import judge, vigils_of
from syncgroup_operator.planning.links import Adoption, adopt, learn, read_links, reported_links
from syncgroup_operator.planning.memory import read_seen, read_slots, write_seen, write_slots
from syncgroup_operator.planning.observation import ChildView, ClusterView, ObjectKey, Observation, Place, Slot
from syncgroup_operator.planning.placement import places_of
from syncgroup_operator.planning.plans import PlanSet, plan_all
from syncgroup_operator.planning.requests import Settled, pending_replacements, polite_uids, settle
from syncgroup_operator.planning.seats import homes_of, seat_rollouts
from syncgroup_operator.planning.sitting import WAKE_SLACK_S, Work
from syncgroup_operator.planning.state import GroupState
from syncgroup_operator.planning.stores import copies_wanted
from syncgroup_operator.planning.trainers import (
    TRAINER,
    TermState,
    revisions_seen,
    seat_trainer,
    terms_seen,
    trainer_place,
)


def decide(observation: Observation, state: GroupState) -> Decision:
    """What one pass decides about a group."""
    if state.group_uid != observation.uid:  # a namesake of an earlier group: its terms and seats are not ours
        state = GroupState(group_uid=observation.uid)
    if observation.deleting:
        return _farewell(observation, state)
    work = _begin(observation, state)
    seen_term = terms_seen(observation)
    term = seat_trainer(work, state, seen_term)
    relays = {name for place in state.places for name in place.heads}
    seat_rollouts(work, relays)
    places = group_places(observation)
    reports = reported_links(work.lives.values(), places, relays)
    known = read_links(state.links)
    learned = learn(known, reports, observation.group.spec.sync, places, observation.now)
    adoption = adopt(known, learned, clock.past(state.links_time, observation.now), observation.now)
    if adoption.wait_s is not None:
        work.wakes_s.append(adoption.wait_s + WAKE_SLACK_S)
    where = {seat.slot: seat.place for seat in work.seats}
    settled = settle(work, state, _seats_by_name(observation, state))
    planned = plan_all(
        observation, work.lives, where, state, adoption.links, term=term.term,
        seen_revision=revisions_seen(observation), scrub_request=settled.scrubs,
    )  # fmt: skip
    return Decision(
        state=_remember(work, state, term=term, planned=planned, adoption=adoption, settled=settled),
        seats=tuple(sorted(work.seats, key=_trainer_first)),
        removals=tuple(sorted(work.removals.values(), key=lambda one: (one.pod.slot, one.pod.place, one.pod.uid))),
        plans=planned.plans,
        replacements=tuple(work.replacements),
        expired=tuple(sorted(uid for uid, life in work.lives.items() if life.verdict == "Expired")),
        damped=len(work.waiting),
        notes=tuple(work.notes),
        wake_after_s=min((*work.wakes_s, *work.silences_s), default=None),
        wake_besides_s=min(work.wakes_s, default=None),
        vigils=vigils_of(observation, work.lives),
    )


def hold(observation: Observation, state: GroupState) -> Decision:
    """The decision for a group that cannot go on until somebody changes something: what runs, runs on."""
    if state.group_uid != observation.uid:
        state = GroupState(group_uid=observation.uid)
    if observation.deleting:
        return _farewell(observation, state)
    homes = {TRAINER: trainer_place(observation), **homes_of(observation.group.spec.rollouts)}
    memories = read_slots(state, observation.now)
    seats = [
        Seat(slot, memories[slot].place if slot in memories else home, create=False, term=_term(slot, state))
        for slot, home in homes.items()
    ]
    return Decision(state=state, seats=tuple(sorted(seats, key=_trainer_first)))


def group_places(observation: Observation) -> set[Place]:
    """Every place that the spec names."""
    rollouts = (place for rollout in observation.group.spec.rollouts for place in places_of(rollout))
    return {trainer_place(observation), *rollouts}


def holds_something(cluster: ClusterView) -> bool:
    """Whether anything of the group is left there."""
    return bool(cluster.pods or cluster.leases or cluster.children)


def _begin(observation: Observation, state: GroupState) -> Work:
    memories = read_slots(state, observation.now)
    replacing = (memory.replacing_since for slot, memory in memories.items() if slot != TRAINER)
    budget = Budget.of(observation.group.spec.lease, state.replacements, replacing, observation.now)
    seats = _seats_by_name(observation, state)
    asked = pending_replacements(observation.group.spec.requests, state, seats)
    return Work(
        observation, judge(observation), memories, read_seen(state), budget, asked=asked, polite=polite_uids(state)
    )


def _seats_by_name(observation: Observation, state: GroupState) -> dict[str, Slot]:
    """Every member's seat by the member's name; where nobody asks for anything, nothing is computed."""
    if not observation.group.spec.requests and all(entry.over for entry in state.requests):
        return {}
    slots = (TRAINER, *homes_of(observation.group.spec.rollouts))
    return {member_name(observation.key, *slot): slot for slot in slots}


def _remember(
    work: Work, state: GroupState, *, term: TermState, planned: PlanSet, adoption: Adoption, settled: Settled
) -> GroupState:
    observation = work.observation
    spec = observation.group.spec
    homes = {TRAINER: trainer_place(observation), **homes_of(spec.rollouts)}
    sizes = {TRAINER.role: 1, **{rollout.name: rollout.replicas for rollout in spec.rollouts}}
    return state.model_copy(
        update={
            "term": term.term,
            "term_open": term.open,
            "term_time": None if term.asked is None else clock.written(term.asked),
            "revision": planned.revision,
            "plan_digest": planned.digest,
            "slots": write_slots(work.memories, homes),
            "seen": write_seen(work.seen, sizes),
            "places": list(planned.places),
            "trainer_host": planned.outside.host if planned.outside else None,
            "trainer_port": planned.outside.port if planned.outside else None,
            "links": list(adoption.links.values()),
            "links_time": None if adoption.since is None else clock.written(adoption.since),
            "replacements_total": state.replacements_total + len(work.replacements),
            "replacements": work.budget.counts(),
            "clusters": _touched(observation, state, {seat.place.cluster for seat in work.seats}),
            "store_clusters": copies_wanted(observation, state, {seat.place for seat in work.seats}),
            "requests": settled.requests,
            "scrubs": settled.scrubs,
        }
    )


def _touched(observation: Observation, state: GroupState, wanted: set[str]) -> list[str]:
    """Clusters that hold something of the group, or may: what cannot be seen stays on the list."""

    def may_hold(name: str) -> bool:
        cluster = observation.clusters.get(name)
        return cluster is None or not cluster.reachable or holds_something(cluster)

    seen = {name for name, cluster in observation.clusters.items() if holds_something(cluster)}
    return sorted({*wanted, *seen, *(name for name in state.clusters if may_hold(name))})


def _farewell(observation: Observation, state: GroupState) -> Decision:
    """The group goes: no seats, no plans, and `state.clusters` says who still holds something."""
    left = [name for name in _touched(observation, state, set()) if name != LOCAL_CLUSTER or _is_left(observation)]
    return Decision(state=state.model_copy(update={"clusters": left}))


def _is_left(observation: Observation) -> bool:
    """The hub's own record of the group and its authority go with the group itself, not before."""
    cluster = observation.clusters.get(LOCAL_CLUSTER)
    return cluster is None or bool(cluster.pods or cluster.leases or _others(observation, cluster))


def _others(observation: Observation, cluster: ClusterView) -> Mapping[ObjectKey, ChildView]:
    return {key: child for key, child in cluster.children.items() if not is_kept(observation, cluster.name, key)}


def _trainer_first(seat: Seat) -> tuple[bool, Slot]:
    return seat.slot != TRAINER, seat.slot


def _term(slot: Slot, state: GroupState) -> int | None:
    return state.term if slot == TRAINER else None
