"""The groups' authorities in Secrets of a real API server: read in few requests, never a wrong one."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable

import pytest

from sync_runtime.contract.names import GroupKey, ca_secret_name
from syncgroup_operator.execute.authorities import Authorities
from syncgroup_operator.identity.authority import AuthorityPolicy
from syncgroup_operator.kube.access import KubeconfigFile
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import SECRET
from syncgroup_operator.kube.limits import ClientLimits
from tools.devcluster.client import RegionHandle

pytestmark = pytest.mark.cluster
GROUPS = 30
LIMITS = ClientLimits(requests_per_s=10_000, burst=10_000, page_size=10)


def authorities(hub: Cluster, namespace: str) -> Authorities:
    return Authorities(
        hub, namespace, AuthorityPolicy(), time.monotonic, lambda: datetime.datetime.now(datetime.UTC)
    )  # fmt: skip


def test_a_new_leader_reads_all_authorities_in_few_requests(region: RegionHandle, namespace: str) -> None:
    keys = {GroupKey("rl", f"group-{number}"): f"uid-{number}" for number in range(GROUPS)}

    async def scenario(hub: Cluster) -> None:
        first = authorities(hub, namespace)
        made = {uid: await first.of(key, uid, trusted="", delivered=False) for key, uid in keys.items()}
        await _copy_as(hub, namespace, GroupKey("rl", "group-0"), "copied", uid="uid-copied")
        await _break(hub, namespace, GroupKey("rl", "group-1"))
        asked = hub.requests["get", "Secret", 200]
        second = authorities(hub, namespace)
        await second.read_all()
        assert hub.requests["get", "Secret", 200] == asked, "page by page, none alone"
        for uid, authority in made.items():
            found = second.known(uid)
            if uid == "uid-1":
                assert found is None, "what cannot be read is left to its group's pass"
            else:
                assert found is not None
                assert found.bundle == authority.bundle
        assert second.known("uid-copied") is None, "a Secret under another name is nobody's authority"

    asyncio.run(_with_hub(region, scenario))


async def _with_hub(region: RegionHandle, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    hub = Cluster("local", KubeconfigFile(region.kubeconfig), LIMITS)
    try:
        await scenario(hub)
    finally:
        await hub.close()
        await asyncio.sleep(0.1)


async def _copy_as(hub: Cluster, namespace: str, key: GroupKey, name: str, *, uid: str) -> None:
    found = await hub.get(SECRET, namespace, ca_secret_name(key))
    labels = {label: uid if value.startswith("uid-") else value for label, value in found["metadata"]["labels"].items()}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    await hub.create(
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": found["data"]}
    )


async def _break(hub: Cluster, namespace: str, key: GroupKey) -> None:
    found = await hub.get(SECRET, namespace, ca_secret_name(key))
    await hub.replace({**found, "kind": "Secret", "apiVersion": "v1", "data": {"other": "eA=="}})
