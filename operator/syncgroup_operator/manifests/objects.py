"""The small objects of a group in a cluster: plan, trust, the store's credentials, the members' role, claims, leases.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.contract.plan import Plan
from syncgroup_operator.manifests.metadata import metadata_of
from syncgroup_operator.planning.decision import Seat
from syncgroup_operator.planning.observation import Observation, Place

Document = dict[str, Any]

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
LEASE_GROUP: Final = "coordination.k8s.io"
LEASE_VERBS: Final = ("get", "update", "patch")
PLAN_VERBS: Final = ("get", "list", "watch")
"""A watch of one object by its name is a watch that a role can restrict by that name."""


def member_role(
    observation: Observation, cluster: str, hub_id: str, *, leases: Iterable[str], plans: Iterable[str]
) -> Document:
    """What members may do: renew their own group's leases, read their plans. Nothing can be created with it."""
    rules = [
        _rule(LEASE_GROUP, "leases", leases, LEASE_VERBS),
        _rule("", "configmaps", plans, PLAN_VERBS),
    ]
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": metadata_of(observation, cluster, names.member_role_name(observation.key), hub_id),
        # A rule without names would allow all of them.
        "rules": [rule for rule in rules if rule["resourceNames"]],
    }


def member_role_binding(observation: Observation, cluster: str, hub_id: str, accounts: Iterable[str]) -> Document:
    """Gives that role to the service accounts that the templates name."""
    namespace = observation.clusters[cluster].namespace
    name = names.member_role_name(observation.key)
    subjects = [
        {"kind": "ServiceAccount", "name": account, "namespace": namespace} for account in sorted(set(accounts))
    ]
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": metadata_of(observation, cluster, name, hub_id),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name},
        "subjects": subjects,
    }


def plan_config_map(observation: Observation, place: Place, plan: Plan, hub_id: str) -> Document:
    """The plan for one cluster and region."""
    metadata = metadata_of(
        observation, place.cluster, names.plan_name(observation.key, place.cluster, place.region), hub_id,
        labels={names.LABEL_CLUSTER: place.cluster, names.LABEL_REGION: place.region},
        annotations={
            names.ANNOTATION_TERM: str(plan.term),
            names.ANNOTATION_PLAN_REVISION: str(plan.revision),
        },
    )  # fmt: skip
    return _config_map(metadata, names.PLAN_KEY, plan.to_json())


def trust_config_map(observation: Observation, cluster: str, bundle: str, hub_id: str) -> Document:
    """The certificates that members trust; the kubelet brings a change of it into running pods."""
    metadata = metadata_of(observation, cluster, names.trust_bundle_name(observation.key), hub_id)
    return _config_map(metadata, names.CA_CERTIFICATE_KEY, bundle)


def store_secret(observation: Observation, cluster: str, data: Mapping[str, str], hub_id: str) -> Document:
    """The copy of the object store's credentials; the kubelet brings a change of it into running pods."""
    # Whether a key went away cannot be seen from those that are wanted, so that their names are wanted too.
    metadata = metadata_of(
        observation, cluster, names.store_secret_name(observation.key), hub_id,
        annotations={names.ANNOTATION_KEYS: ",".join(sorted(data))},
    )  # fmt: skip
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": dict(data)}


def spool_claim(observation: Observation, seat: Seat, hub_id: str) -> Document:
    """The spool of one seat; not its pod's, so that a successor in the same cluster finds it."""
    storage = observation.group.spec.runtime.storage
    spec: Document = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size_bytes)}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    name = names.spool_claim_name(observation.key, seat.slot.role, seat.slot.index)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _seat_metadata(observation, seat, name, hub_id),
        "spec": spec,
    }


def lease(observation: Observation, seat: Seat, hub_id: str) -> Document:
    """A lease that nobody holds yet: members may take theirs, but not create one."""
    name = names.lease_name(observation.key, seat.slot.role, seat.slot.index)
    return {
        "apiVersion": f"{LEASE_GROUP}/v1",
        "kind": "Lease",
        "metadata": _seat_metadata(observation, seat, name, hub_id),
    }


def _seat_metadata(observation: Observation, seat: Seat, name: str, hub_id: str) -> Document:
    labels = names.member_labels(
        observation.key, observation.uid, role=seat.slot.role, index=seat.slot.index, cluster=seat.place.cluster,
        region=seat.place.region,
    )  # fmt: skip
    return metadata_of(observation, seat.place.cluster, name, hub_id, labels=labels)


def _config_map(metadata: Document, key: str, text: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}


def _rule(group: str, resource: str, allowed: Iterable[str], verbs: tuple[str, ...]) -> Document:
    return {
        "apiGroups": [group],
        "resources": [resource],
        "resourceNames": sorted(set(allowed)),
        "verbs": list(verbs),
    }
