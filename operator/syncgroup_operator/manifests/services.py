"""How members and trainer are reached: a headless Service for names, and the one that relays dial.

Both publish addresses of pods that are not ready: a member must reach its parent to become ready at all. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from sync_runtime.contract import names
from sync_runtime.contract.trainer import Exposure
from syncgroup_operator.manifests.metadata import metadata_of
from syncgroup_operator.planning.observation import Observation

Document = dict[str, Any]

EXPOSED_PORT_NAME: Final = "sync-exposed"


def members_service(observation: Observation, cluster: str, hub_id: str) -> Document:
    """Headless: gives every member of a cluster its DNS name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(observation, cluster, names.members_service_name(observation.key), hub_id),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.group_labels(observation.key, observation.uid),
            "ports": [_port(names.DATA_PORT_NAME, names.DATA_PORT)],
        },
    }


def trainer_service(observation: Observation, hub_id: str) -> Document | None:
    """What relays dial; None with exposure External, where somebody else provides the way."""
    trainer = observation.group.spec.trainer
    exposure = trainer.exposure
    if exposure.type == "External" or trainer.cluster not in observation.clusters:
        return None
    spec: Document = {
        "type": exposure.type,
        "publishNotReadyAddresses": True,
        "selector": {
            **names.group_labels(observation.key, observation.uid),
            names.LABEL_ROLE: names.TRAINER_ROLE,
        },
        "ports": _trainer_ports(exposure),
    }
    if exposure.source_ranges:
        spec["loadBalancerSourceRanges"] = list(exposure.source_ranges)
    metadata = metadata_of(
        observation, trainer.cluster, names.trainer_service_name(observation.key), hub_id,
        labels={names.LABEL_ROLE: names.TRAINER_ROLE}, annotations=exposure.annotations,
    )  # fmt: skip
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _trainer_ports(exposure: Exposure) -> list[Document]:
    """The data port for the trainer's own cluster, and the port that others were promised where that is another."""
    data = _port(names.DATA_PORT_NAME, names.DATA_PORT)
    if exposure.port is None:
        return [data]
    if exposure.type == "NodePort":
        return [{**data, "nodePort": exposure.port}]
    return [data] if exposure.port == names.DATA_PORT else [data, _port(EXPOSED_PORT_NAME, exposure.port)]


def _port(name: str, number: int) -> Document:
    return {"name": name, "port": number, "targetPort": names.DATA_PORT, "protocol": "TCP"}
