"""Everything of a group that should exist, in every cluster, in the order it should be made.

Pure. Roles come first and pods last, so that a pod never waits for what the next request would bring.
"""

from __future__ import annotations

from collections.abc import Iterator

from sync_runtime.contract import names
from syncgroup_operator.manifests import objects
from syncgroup_operator.manifests.inputs import Extras
from syncgroup_operator.manifests.parts import part_of
from syncgroup_operator.manifests.pods import pod
from syncgroup_operator.manifests.problems import service_accounts
from syncgroup_operator.manifests.services import members_service, trainer_service
from syncgroup_operator.planning.decision import Decision, Seat
from syncgroup_operator.planning.diff import Wanted
from syncgroup_operator.planning.observation import Observation, Slot
from syncgroup_operator.planning.stores import copies_at


def children_of(observation: Observation, decision: Decision, extras: Extras) -> tuple[Wanted, ...]:
    """Every object that should exist. A group that is being deleted wants nothing."""
    if observation.deleting:
        return ()
    seats = tuple(seat for seat in decision.seats if seat.place.cluster in observation.clusters)
    clusters = tuple(dict.fromkeys(seat.place.cluster for seat in seats))
    return (
        *_roles(observation, decision, seats, clusters, extras),
        *_services(observation, clusters, extras),
        *_config_maps(observation, decision, clusters, extras),
        *_store_secrets(observation, seats, extras),
        *_claims(observation, seats, extras),
        *(Wanted(seat.place.cluster, objects.lease(observation, seat, extras.hub_id)) for seat in seats),
        *_pods(observation, decision, seats, extras),
    )


def _roles(
    observation: Observation, decision: Decision, seats: tuple[Seat, ...], clusters: tuple[str, ...], extras: Extras
) -> Iterator[Wanted]:
    key = observation.key
    for cluster in clusters:
        there = [seat for seat in seats if seat.place.cluster == cluster]
        leases = [names.lease_name(key, *seat.slot) for seat in there]
        places = {place for place in decision.plans if place.cluster == cluster} | {seat.place for seat in there}
        plans = [names.plan_name(key, *place) for place in places]
        parts = [part_of(observation.group.spec, role) for role in dict.fromkeys(seat.slot.role for seat in there)]
        accounts = [service_accounts(part.template.spec)[0] for part in parts if part is not None]
        role = objects.member_role(observation, cluster, extras.hub_id, leases=leases, plans=plans)
        yield Wanted(cluster, role)
        yield Wanted(cluster, objects.member_role_binding(observation, cluster, extras.hub_id, accounts))


def _services(observation: Observation, clusters: tuple[str, ...], extras: Extras) -> Iterator[Wanted]:
    for cluster in clusters:
        yield Wanted(cluster, members_service(observation, cluster, extras.hub_id))
    service = trainer_service(observation, extras.hub_id)
    if service is not None:
        yield Wanted(observation.group.spec.trainer.cluster, service)


def _config_maps(
    observation: Observation, decision: Decision, clusters: tuple[str, ...], extras: Extras
) -> Iterator[Wanted]:
    for cluster in clusters if extras.trust_bundle else ():
        yield Wanted(cluster, objects.trust_config_map(observation, cluster, extras.trust_bundle, extras.hub_id))
    for place, plan in sorted(decision.plans.items()):
        if place.cluster in observation.clusters:
            yield Wanted(place.cluster, objects.plan_config_map(observation, place, plan, extras.hub_id))


def _store_secrets(observation: Observation, seats: tuple[Seat, ...], extras: Extras) -> Iterator[Wanted]:
    for cluster, data in copies_at(observation, dict.fromkeys(seat.place for seat in seats)).items():
        yield Wanted(cluster, objects.store_secret(observation, cluster, data, extras.hub_id))


def _claims(observation: Observation, seats: tuple[Seat, ...], extras: Extras) -> Iterator[Wanted]:
    if observation.group.spec.runtime.storage.type != "PersistentVolumeClaim":
        return
    for seat in seats:
        yield Wanted(seat.place.cluster, objects.spool_claim(observation, seat, extras.hub_id))


def _pods(observation: Observation, decision: Decision, seats: tuple[Seat, ...], extras: Extras) -> Iterator[Wanted]:
    # Without the bundle a pod could only wait for it.
    if observation.group.spec.suspend or not extras.trust_bundle:
        return
    fine = _fine_pods(observation, decision)
    for seat in seats:
        if (seat.place.cluster, seat.slot) in fine:
            continue
        document = pod(observation, seat, extras) if seat.create else None
        if document is not None:
            yield Wanted(seat.place.cluster, document)


def _fine_pods(observation: Observation, decision: Decision) -> set[tuple[str, Slot]]:
    """Pods that are there and stay as they are: a pod is never changed, so that their documents need not be made."""
    going = {removal.pod.uid for removal in decision.removals}
    return {
        (pod.place.cluster, pod.slot)
        for pod in observation.pods()
        if pod.labels_ours and pod.uid not in going and not pod.deleting
    }
