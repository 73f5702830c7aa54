"""What the operator would plan for a SyncGroup, and why, as text. Needs no cluster.

The spec stands in for what would be seen: all clusters are reachable, no pod exists yet, and links are what a file says
they are, or not measured. The same planner that runs in the operator decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import Count, DnsLabel, ListAtomic
from sync_runtime.contract.names import LOCAL_CLUSTER
from sync_runtime.contract.plan import LinkPlan, MemberPlan, Plan
from sync_runtime.contract.reports import LinkReport
from sync_runtime.contract.status import PPM
from sync_runtime.contract.stores import address_of
from sync_runtime.contract.sync import MIB, ObjectStore
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator.planning.decide import decide, group_places
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.links import learn, pair_of
from syncgroup_operator.planning.observation import ClusterView, Observation, Place
from syncgroup_operator.planning.placement import places_of
from syncgroup_operator.planning.state import GroupState

_UID = "00000000-0000-0000-0000-000000000000"
_WHEN = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_SHOWN_CHAINS = 20
"""Different lists of parents per place; a thousand lines explain nothing."""


class MeasuredLink(Model):
    """One link of a file with measurements."""

    from_cluster: DnsLabel = Field(LOCAL_CLUSTER, description="Cluster of the sender.")
    from_region: DnsLabel = Field(description="Region of the sender.")
    to_cluster: DnsLabel = Field(LOCAL_CLUSTER, description="Cluster of the receiver.")
    to_region: DnsLabel = Field(description="Region of the receiver.")
    capacity_bits_per_second: Annotated[Count, Field(ge=1)] = Field(description="What the link carries.")
    rtt_micros: Annotated[Count, Field(ge=1)] = Field(description="Round-trip time.")
    loss_ppm: Annotated[int, Field(ge=0, le=PPM)] = Field(0, description="Retransmitted per million bytes sent.")
    congestion_control: Annotated[str, Field(min_length=1, max_length=16)] = Field(
        "cubic", description="Congestion control of the nodes."
    )


class LinkFile(Model):
    """A file with measurements."""

    links: Annotated[list[MeasuredLink], Field(max_length=512), ListAtomic()] = Field(description="The links.")


def explain(group: SyncGroup, links: Sequence[MeasuredLink] = ()) -> list[str]:
    """The plan and why, line by line."""
    observation = offline_observation(group)
    places = group_places(observation)
    reports = {pair_of(report): report for report in map(_report, links)}
    learned = learn({}, reports, group.spec.sync, places, _WHEN)
    decision = decide(observation, GroupState(group_uid=_UID, links=list(learned.values())))
    unknown = sorted({place for pair in reports for place in pair if place not in places})
    return [
        *_head(group, decision),
        *_rollouts(group),
        *(line for place, plan in sorted(decision.plans.items()) for line in _place(place, plan)),
        *_leases(group),
        *(f"note: the file names {place.cluster}/{place.region}, which is no place of this group" for place in unknown),
    ]


def offline_observation(group: SyncGroup) -> Observation:
    """What would be seen of a group in clusters that are all there and hold nothing of it yet."""
    spec = group.spec
    places = {Place(spec.trainer.cluster, spec.trainer.region)}
    places |= {place for rollout in spec.rollouts for place in places_of(rollout)}
    namespace = group.key.namespace
    clusters = {
        place.cluster: ClusterView(name=place.cluster, namespace=namespace, connected_s=0.0) for place in places
    }
    return Observation(group=group, uid=_UID, generation=1, deleting=False, now_s=0.0, now=_WHEN, clusters=clusters)


def _report(link: MeasuredLink) -> LinkReport:
    return LinkReport(
        from_cluster=link.from_cluster,
        from_region=link.from_region,
        to_cluster=link.to_cluster,
        to_region=link.to_region,
        peer="file",
        payloads=1,
        rate_bits_per_second=link.capacity_bits_per_second,
        capacity_bits_per_second=link.capacity_bits_per_second,
        rtt_micros=link.rtt_micros,
        min_rtt_micros=link.rtt_micros,
        loss_ppm=link.loss_ppm,
        streams=0,
        bucket_bytes=0,
        utilisation_percent=100,
        codec="Fast",
        congestion_control=link.congestion_control,
    )


def _head(group: SyncGroup, decision: Decision) -> Iterator[str]:
    trainer = group.spec.trainer
    seats = len(decision.seats) - 1
    yield f"SyncGroup {group.key.namespace}/{group.key.name}: 1 trainer, {seats} members, {len(decision.plans)} plans"
    if group.spec.suspend:
        yield "suspended: no pod is made until spec.suspend is false"
    yield f"trainer in {trainer.cluster}/{trainer.region}, exposed by {trainer.exposure.type}"


def _rollouts(group: SyncGroup) -> Iterator[str]:
    for rollout in group.spec.rollouts:
        home, *fallbacks = places_of(rollout)
        told = ", then ".join(f"{place.cluster}/{place.region}" for place in fallbacks)
        where = f"; if node, capacity or region fails: {told}" if told else "; replaced in its own region only"
        yield f"rollout {rollout.name}: {rollout.replicas} members in {home.cluster}/{home.region}{where}"


def _place(place: Place, plan: Plan) -> Iterator[str]:
    yield ""
    rollouts = [member for member in plan.members if member.role == "Rollout"]
    yield f"{place.cluster}/{place.region}: {len(rollouts)} members, plan {plan.revision}"
    following = _following(plan, rollouts)
    yield from _feeding(plan)
    if plan.object_store is not None:
        yield from _store(plan, plan.object_store, following)
    elif plan.trainer is None:
        yield "  the trainer's address is not known yet: set spec.trainer.exposure.host, or wait for its Service"
    elif rollouts:
        yield f"  the trainer is dialled at {plan.trainer.host}:{plan.trainer.port}"
    yield from _relays(rollouts, following)
    for link in plan.links:
        yield from _link(link, place)


def _following(plan: Plan, rollouts: Sequence[MemberPlan]) -> list[str]:
    """Who follows the object store: whoever would dial the trainer, or nobody."""
    if plan.object_store is None:
        return []
    relays = {endpoint.member for endpoint in plan.endpoints}
    return [member.name for member in rollouts if not member.parents or member.parents[0] not in relays]


def _feeding(plan: Plan) -> Iterator[str]:
    """Every store that the trainer puts versions into."""
    trainer = next((member.name for member in plan.members if member.role == "Trainer"), None)
    stores = [*([] if plan.object_store is None else [plan.object_store]), *(f.object_store for f in plan.feeds or ())]
    for store in stores if trainer is not None else ():
        yield f"  {trainer} puts every version into {_opened(plan, store)}"


def _store(plan: Plan, store: ObjectStore, following: Sequence[str]) -> Iterator[str]:
    if following:
        who = following[0] if len(following) == 1 else f"{following[0]} and {len(following) - 1} more"
        yield f"  {who} {'follows' if len(following) == 1 else 'follow'} {_opened(plan, store)}"


def _opened(plan: Plan, store: ObjectStore) -> str:
    address, secret = address_of(store, plan.group_namespace, plan.group_name), store.secret_ref
    opened = "the pods' own cloud identity" if secret is None else f"a copy of Secret {secret.name}"
    return f"{address}, opened with {opened}"


def _relays(rollouts: Sequence[MemberPlan], following: Sequence[str]) -> Iterator[str]:
    relays = [member.name for member in rollouts if member.relay]
    if relays:
        yield f"  relays, so that the region receives every byte once: {', '.join(relays)}"
    elif rollouts and not following:
        yield "  no relay: the trainer's own region dials it directly"
    alike: dict[tuple[str, ...], list[str]] = {}
    for member in rollouts:
        if member.name in following:
            continue
        alike.setdefault(tuple(member.parents), []).append(member.name)
    for parents, members in list(alike.items())[:_SHOWN_CHAINS]:
        who = f"{members[0]} dials" if len(members) == 1 else f"{members[0]} and {len(members) - 1} more dial"
        yield f"  {who} {_chain(parents)}"
    if len(alike) > _SHOWN_CHAINS:
        yield f"  and {sum(map(len, list(alike.values())[_SHOWN_CHAINS:]))} more members dial others of these relays"


def _chain(parents: Iterable[str]) -> str:
    return ", else ".join(parents) or "nobody yet"


def _link(link: LinkPlan, place: Place) -> Iterator[str]:
    own = (link.from_cluster, link.from_region) == place
    title = "link within the place" if own else f"link from {link.from_cluster}/{link.from_region}"
    sizes = link.bucket_bytes
    yield (
        f"  {title}: {link.codec}, {link.streams.seed} streams ({link.streams.min} to {link.streams.max}), "
        f"buckets of {sizes.seed / MIB:g} MiB ({sizes.min / MIB:g} to {sizes.max / MIB:g})"
    )
    if link.message:
        yield f"    {link.message}"


def _leases(group: SyncGroup) -> Iterator[str]:
    lease = group.spec.lease
    yield ""
    yield (
        f"a member is lost {lease.duration_seconds} s after its last renewal; at most "
        f"{lease.max_concurrent_replacements} are replaced at once and {lease.max_replacements_per_hour} in an hour"
    )
    held = (
        f"its members are placed elsewhere after {lease.lost_grace_seconds} s"
        if lease.on_cluster_lost == "Replace"
        else "its members keep their places"
    )
    yield f"a cluster that cannot be reached: {held}"
