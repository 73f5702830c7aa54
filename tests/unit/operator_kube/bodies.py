"""Bodies as an API server gives them."""

from __future__ import annotations

from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from tests.unit.membership.reports import report

GROUP = GroupKey("team", "demo")
UID = "0a1b"
CLUSTER = "eu"


def labels(role: str = "west", index: int = 0, region: str = "eu-west", uid: str = UID) -> dict[str, str]:
    return names.member_labels(GROUP, uid, role=role, index=index, cluster=CLUSTER, region=region)


def metadata(name: str, uid: str = "u-1", **changes: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "7", "labels": labels()} | changes


def pod(role: str = "west", index: int = 0, uid: str = "u-1", status: Any = None, **changes: Any) -> dict[str, Any]:
    name = names.member_name(GROUP, role, index)
    annotations = {names.ANNOTATION_TEMPLATE_HASH: "abc", names.ANNOTATION_TERM: "3"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, uid, labels=labels(role, index), annotations=annotations),
        "spec": {"nodeName": "node-1", "serviceAccountName": "workers"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        if status is None
        else status,
    } | changes


def lease(renewed: str = "2027-01-31T12:00:00.000000Z", holder: str = "u-1", **report_changes: Any) -> dict[str, Any]:
    name = names.lease_name(GROUP, "west", 0)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata(name, "l-1", annotations={names.ANNOTATION_REPORT: report(**report_changes).to_json()}),
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 30},
    }


def config_map(version: str = "7", **changes: Any) -> dict[str, Any]:
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("plan", "c-1", resourceVersion=version),
        "data": {"plan.json": "{}"},
    }
    return document | changes


def node(name: str = "node-1", ready: str = "True") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/region": "eu-west"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
