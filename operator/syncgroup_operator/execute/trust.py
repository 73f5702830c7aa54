"""The bundle that members trust, as clusters show it."""

from __future__ import annotations

import json

from sync_runtime.contract.names import CA_CERTIFICATE_KEY, trust_bundle_name
from syncgroup_operator.kube.kinds import CONFIG_MAP
from syncgroup_operator.planning.observation import ClusterView, ObjectKey, Observation


def bundle_seen(observation: Observation) -> str:
    """Any bundle that members have now; empty where there is none."""
    found = (_bundle_in(observation, cluster) for cluster in observation.clusters.values())
    return next((bundle for bundle in found if bundle), "")


def bundle_delivered(observation: Observation, bundle: str) -> bool:
    """Whether every cluster with members has exactly this bundle; one that is away has not."""
    used = [cluster for cluster in observation.clusters.values() if cluster.pods or not cluster.reachable]
    return bool(used) and all(_bundle_in(observation, cluster) == bundle for cluster in used)


def _bundle_in(observation: Observation, cluster: ClusterView) -> str:
    child = cluster.children.get(ObjectKey(CONFIG_MAP.kind, cluster.namespace, trust_bundle_name(observation.key)))
    if child is None:
        return ""
    found = (json.loads(child.body).get("data") or {}).get(CA_CERTIFICATE_KEY)
    return found if isinstance(found, str) else ""
