"""Where members are dialled: names inside a cluster, the trainer's exposed address from outside. Pure.

No pod address is in a plan: names stay when a pod is replaced.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from sync_runtime.contract import names, patterns
from sync_runtime.contract.names import DATA_PORT
from sync_runtime.contract.plan import Endpoint
from syncgroup_operator.planning.observation import ObjectKey, Observation, Place
from syncgroup_operator.planning.trainers import TRAINER, trainer_place

MAX_HOST_LENGTH = 253


class Address(NamedTuple):
    """What is dialled."""

    host: str
    port: int


def member_endpoint(observation: Observation, member: str, place: Place) -> Endpoint:
    """A member as others of its cluster dial it."""
    service = names.members_service_name(observation.key)
    host = f"{member}.{service}.{observation.clusters[place.cluster].namespace}.svc"
    return Endpoint(member=member, cluster=place.cluster, region=place.region, host=host, port=DATA_PORT)


def trainer_endpoint(observation: Observation, place: Place, outside: Address | None) -> Endpoint | None:
    """The trainer as the members of a place dial it. `outside`: its address for other clusters, as far as known."""
    member = names.member_name(observation.key, *TRAINER)
    home = trainer_place(observation)
    if place.cluster != home.cluster:
        address = outside
    elif observation.group.spec.trainer.exposure.type == "External":  # there is no Service
        return member_endpoint(observation, member, home)
    else:
        namespace = observation.clusters[home.cluster].namespace
        address = Address(f"{names.trainer_service_name(observation.key)}.{namespace}.svc", DATA_PORT)
    if address is None:
        return None
    return Endpoint(member=member, cluster=home.cluster, region=home.region, host=address.host, port=address.port)


def outside_address(observation: Observation, remembered: Address | None) -> Address | None:
    """The trainer's address for other clusters: from the spec, from its Service, else what was known last.

    What was known is kept while nothing better is: a Service out of sight for a moment must not cut everybody off.
    """
    exposure = observation.group.spec.trainer.exposure
    if exposure.type == "ClusterIP":
        return None
    service = _service(observation)
    host, port = exposure.host, exposure.port
    if exposure.type == "LoadBalancer":
        host, port = host or _ingress(service), port or DATA_PORT
    elif exposure.type == "NodePort":
        port = port or _node_port(service)
    if host is None or port is None:
        return remembered
    return Address(host, port)


def _service(observation: Observation) -> dict[str, Any]:
    cluster = observation.clusters.get(observation.group.spec.trainer.cluster)
    if cluster is None:
        return {}
    key = ObjectKey("Service", cluster.namespace, names.trainer_service_name(observation.key))
    child = cluster.children.get(key)
    body = json.loads(child.body) if child is not None else {}
    return body if isinstance(body, dict) else {}


def _ingress(service: dict[str, Any]) -> str | None:
    for entry in service.get("status", {}).get("loadBalancer", {}).get("ingress", None) or ():
        host = entry.get("hostname") or entry.get("ip")
        if isinstance(host, str) and len(host) <= MAX_HOST_LENGTH and re.fullmatch(patterns.HOST, host):
            return host
    return None


def _node_port(service: dict[str, Any]) -> int | None:
    for entry in service.get("spec", {}).get("ports", None) or ():
        port = entry.get("nodePort")
        if isinstance(port, int) and entry.get("name", names.DATA_PORT_NAME) == names.DATA_PORT_NAME:
            return port
    return None
