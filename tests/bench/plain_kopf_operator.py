"""What many would write first: an operator that reacts to edges, as a baseline.

`on.create` and `on.update` make the hub's pods and leases of a group; leases and pods are watched by `on.event`. No
remote clusters, no plans, no certificates, no judgement: it does less than ours, on the same hub and the same events.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
from typing import Any

import kopf
from kubernetes.aio import client, config

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey

CONFLICT = 409
LABELS = {names.LABEL_GROUP_UID: kopf.PRESENT}
renewals: dict[str, str] = {}
phases: dict[str, str] = {}


@functools.cache
def api() -> client.ApiClient:
    """One client for all handlers."""
    return client.ApiClient()


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """As the documentation shows it."""
    settings.posting.enabled = False
    await config.load_kube_config()  # type: ignore[no-untyped-call]


@kopf.on.create(names.API_GROUP, names.API_VERSION, names.SYNCGROUP_PLURAL)
@kopf.on.update(names.API_GROUP, names.API_VERSION, names.SYNCGROUP_PLURAL)
async def make_members(spec: Mapping[str, Any], namespace: str | None, name: str, uid: str, **_: Any) -> None:
    """Every pod and lease of the hub's rollouts; what is there already is a conflict."""
    key = GroupKey(namespace or "", name)
    for rollout in spec["rollouts"]:
        if rollout.get("cluster", names.LOCAL_CLUSTER) != names.LOCAL_CLUSTER:
            continue
        for index in range(rollout["replicas"]):
            metadata = {
                "name": names.member_name(key, rollout["name"], index),
                "namespace": namespace,
                "labels": names.member_labels(
                    key, uid, role=rollout["name"], index=index, cluster=names.LOCAL_CLUSTER, region=rollout["region"]
                ),
            }
            pod = {"metadata": metadata, "spec": rollout["template"]["spec"]}
            await _create(client.CoordinationV1Api(api()).create_namespaced_lease, {"metadata": metadata})
            await _create(client.CoreV1Api(api()).create_namespaced_pod, pod)


async def _create(create: Any, body: Mapping[str, Any]) -> None:
    try:
        await create(body["metadata"]["namespace"], body)
    except client.ApiException as error:
        if error.status != CONFLICT:
            raise


@kopf.on.event("leases", labels=LABELS)
async def lease_seen(name: str, body: kopf.Body, **_: Any) -> None:
    """Remember the last sign of life."""
    renewals[name] = str(body.get("spec", {}).get("renewTime"))


@kopf.on.event("pods", labels=LABELS)
async def pod_seen(name: str, status: Mapping[str, Any], **_: Any) -> None:
    """Remember the phase."""
    phases[name] = str(status.get("phase"))


if __name__ == "__main__":
    asyncio.run(kopf.operator(namespaces=[os.environ["BENCH_NAMESPACE"]], standalone=True))
