"""The plan documents of a group, one per cluster and region, and their number. Pure.

An equal plan keeps its number: the digest of all of them without it decides. A number that was seen anywhere is never
given out again, whatever the state says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sync_runtime.contract import names
from sync_runtime.contract.plan import FedStore, LeasePlan, MemberPlan, Plan, TelemetryPlan
from sync_runtime.contract.stores import address_of, fed_stores, keys_prefix, store_at
from sync_runtime.contract.sync import ObjectStore
from syncgroup_operator.planning.endpoints import Address, member_endpoint, outside_address, trainer_endpoint
from syncgroup_operator.planning.leases import UNSEEN, Life
from syncgroup_operator.planning.links import Pair, link_plan
from syncgroup_operator.planning.nesting import Trees, route_all
from syncgroup_operator.planning.observation import Observation, Place, PodView, Slot
from syncgroup_operator.planning.placement import reachable
from syncgroup_operator.planning.routes import Candidate, Routes, candidate
from syncgroup_operator.planning.sitting import pods_by_slot
from syncgroup_operator.planning.state import GroupState, LinkMemory, PlaceState
from syncgroup_operator.planning.trainers import TRAINER, trainer_place

SLOWER_BY = 2.0
"""A member joins traces instead of another only if it is slower by this factor: each swap is a new plan."""


@dataclass(frozen=True, slots=True)
class PlanSet:
    """All plans of a group."""

    plans: Mapping[Place, Plan]
    places: tuple[PlaceState, ...]
    digest: str
    revision: int
    outside: Address | None
    """The trainer's address for other clusters."""


def plan_all(
    observation: Observation,
    lives: Mapping[str, Life],
    seats: Mapping[Slot, Place],
    state: GroupState,
    links: Mapping[Pair, LinkMemory],
    *,
    term: int,
    seen_revision: int,
    scrub_request: int = 0,
) -> PlanSet:
    """The plans for these seats. `links`: what was learned; `seen_revision`: the largest found outside the state."""
    remembered = Address(state.trainer_host, state.trainer_port) if state.trainer_host and state.trainer_port else None
    outside = outside_address(observation, remembered)
    before = {Place(entry.cluster, entry.region): entry for entry in state.places}
    members = _members(observation, lives, seats)
    trees = _trees(observation, members, before, exposed=outside is not None)
    drafts: dict[Place, Plan] = {}
    kept: list[PlaceState] = []
    for place in sorted(members):
        cluster = observation.clusters.get(place.cluster)
        if cluster is None or not cluster.namespace:
            kept += [before[place]] if place in before else []
            continue
        old = before.get(place, PlaceState(cluster=place.cluster, region=place.region))
        routes = trees.routes[place]
        sampled = _sampled(observation, members[place], routes, old.sampled)
        kept.append(PlaceState(cluster=place.cluster, region=place.region, heads=list(routes.heads), sampled=sampled))
        plan = _plan(observation, place, trees, sampled, links, term=term, outside=outside)
        drafts[place] = plan.model_copy(update={"scrub_request": scrub_request}) if scrub_request else plan
    digest = digest_of(drafts)
    revision = state.revision
    if digest != state.plan_digest or seen_revision > state.revision:
        revision = max(state.revision, seen_revision) + 1
    plans = {place: plan.model_copy(update={"revision": revision}) for place, plan in drafts.items()}
    return PlanSet(plans, tuple(kept), digest, revision, outside)


def digest_of(plans: Mapping[Place, Plan]) -> str:
    """Of all plans without their number."""
    total = hashlib.sha256()
    for place in sorted(plans):
        plan = plans[place]
        total.update((plan if plan.revision == 0 else plan.model_copy(update={"revision": 0})).to_json().encode())
        total.update(b"\0")
    return total.hexdigest()


def _members(
    observation: Observation, lives: Mapping[str, Life], seats: Mapping[Slot, Place]
) -> dict[Place, list[Candidate]]:
    """The rollouts of every place that has any, and the trainer's place."""
    pods = pods_by_slot(observation)
    newest = _newest_seq(observation, lives, pods)
    found: dict[Place, list[Candidate]] = {trainer_place(observation): []}
    for slot, place in seats.items():
        if slot == TRAINER:
            continue
        pod = next((one for one in pods.get(slot, ()) if one.place == place), None)
        life = lives.get(pod.uid, UNSEEN) if pod is not None else UNSEEN
        name = names.member_name(observation.key, slot.role, slot.index)
        known = candidate(name, slot, pod, life, now_s=observation.now_s, newest_seq=newest)
        found.setdefault(place, []).append(known)
    return found


def _newest_seq(observation: Observation, lives: Mapping[str, Life], pods: Mapping[Slot, list[PodView]]) -> int | None:
    """What the trainer published last."""
    reports = (lives[pod.uid].report for pod in pods.get(TRAINER, ()) if pod.uid in lives)
    seqs = [report.version.seq for report in reports if report is not None and report.version is not None]
    return max(seqs, default=None)


def _trees(
    observation: Observation,
    members: Mapping[Place, list[Candidate]],
    before: Mapping[Place, PlaceState],
    *,
    exposed: bool,
) -> Trees:
    return route_all(
        members,
        {place: state.heads for place, state in before.items()},
        home=trainer_place(observation),
        trainer=names.member_name(observation.key, *TRAINER),
        exposed=exposed,
        held={place for place in members if not reachable(observation, place)},
        stored={place for place in members if store_at(observation.group.spec.sync, *place) is not None},
    )


def _sampled(observation: Observation, members: list[Candidate], routes: Routes, before: list[str]) -> list[str]:
    """Who joins traces besides the relays: the slowest, but no swap without need."""
    wanted = observation.group.spec.telemetry.sampled_members_per_region
    others = {member.name: member for member in members if member.name not in routes.relays}
    kept = [name for name in before if name in others][:wanted]
    by_slowness = sorted(
        (member for name, member in others.items() if name not in kept),
        key=lambda member: (member.rank, -_sync_millis(member), member.slot),
    )
    kept += [member.name for member in by_slowness[: wanted - len(kept)]]
    waiting = [member for member in by_slowness if member.name not in kept]
    if waiting and kept:
        slowest, fastest = waiting[0], min((others[name] for name in kept), key=lambda m: (_sync_millis(m), m.slot))
        if _sync_millis(fastest) and _sync_millis(slowest) > SLOWER_BY * _sync_millis(fastest):
            kept[kept.index(fastest.name)] = slowest.name
    return kept


def _sync_millis(member: Candidate) -> int:
    """0 where it is not known."""
    return member.sync_millis if member.sync_millis < 2**53 else 0


def _plan(
    observation: Observation,
    place: Place,
    trees: Trees,
    sampled: list[str],
    links: Mapping[Pair, LinkMemory],
    *,
    term: int,
    outside: Address | None,
) -> Plan:
    spec, key, home = observation.group.spec, observation.key, trainer_place(observation)
    routes, host = trees.routes[place], trees.hosts.get(place)
    dialled = {parent for parents in routes.parents.values() for parent in parents}
    heads = [(name, place) for name in routes.heads]
    heads += [(name, host) for name in trees.routes[host].heads] if host is not None else []
    members = [
        MemberPlan(name=name, role="Rollout", relay=name in routes.relays, parents=list(parents))
        for name, parents in sorted(routes.parents.items())
    ]
    if place == home:
        members.insert(0, MemberPlan(name=names.member_name(key, *TRAINER), role="Trainer"))
    store = store_at(spec.sync, *place)
    dials_trainer = store is None or place == home or spec.work.mode == "Leased"  # work is leased over a connection
    nearby = {place} if store is not None else {home, place, host or place}
    senders = sorted(nearby if routes.parents else set())
    pairs = [Pair(sender, place) for sender in senders]
    return Plan(
        format_version=1,
        group_uid=observation.uid,
        group_namespace=key.namespace,
        group_name=key.name,
        cluster=place.cluster,
        region=place.region,
        term=term,
        revision=0,
        trainer=trainer_endpoint(observation, place, outside) if dials_trainer else None,
        transport="Streams" if store is None else "ObjectStore",
        object_store=store,
        store_keys=None if store is None else keys_prefix(spec.sync, store),
        feeds=_feeds(observation, store) if place == home else None,
        max_staleness=spec.sync.max_staleness,
        anchor_every=spec.sync.anchor_every,
        retention=spec.sync.retention,
        members=members,
        endpoints=[member_endpoint(observation, name, where) for name, where in heads if name in dialled],
        links=[link_plan(pair, links.get(pair), spec.sync) for pair in pairs],
        lease=LeasePlan(
            duration_seconds=spec.lease.duration_seconds, renew_interval_seconds=spec.lease.renew_interval_seconds
        ),
        work=spec.work,
        telemetry=TelemetryPlan(endpoint=spec.telemetry.endpoint, sampled_members=sorted(sampled)),
    )


def _feeds(observation: Observation, own: ObjectStore | None) -> list[FedStore] | None:
    """The stores that the trainer feeds besides the one that its own place follows."""
    sync, key = observation.group.spec.sync, observation.key
    known = None if own is None else address_of(own, *key)
    others = [store for store in fed_stores(sync, key) if address_of(store, *key) != known]
    return [FedStore(object_store=store, keys=keys_prefix(sync, store)) for store in others] or None
