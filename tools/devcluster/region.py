"""One running region: its programs, in the order in which they need each other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.devcluster import components, kubeconfig, pki
from tools.devcluster.api import ApiClient, wait_until
from tools.devcluster.components import Plane
from tools.devcluster.config import ClusterConfig, Region
from tools.devcluster.processes import Child
from tools.errors import ClusterError
from tools.kube.build import Toolbox

STAGES = Path(__file__).parent / "manifests" / "kwok-stages.yaml"
READY_TIMEOUT_S = 90.0


class RunningRegion:
    """The control plane of one region and, at that level, kwok. Real nodes are added by `node.Node`."""

    def __init__(
        self,
        config: ClusterConfig,
        region: Region,
        plane: Plane,
        tools: Toolbox,
        wrap: Callable[[list[str]], list[str]],
    ) -> None:
        self.config = config
        self.region = region
        self.plane = plane
        self.tools = tools
        self._wrap = wrap
        self.children: dict[str, Child] = {}
        self.timings_s: dict[str, float] = {}
        self._started = time.monotonic()

    def note(self, milestone: str) -> None:
        """Remember when something was reached, for `status` and for benchmarks."""
        self.timings_s[milestone] = round(time.monotonic() - self._started, 2)

    def write_files(self, outside_port: int) -> None:
        """Keys, kubeconfigs and configuration files."""
        plane, region = self.plane, self.region
        plane.folder.mkdir(parents=True, exist_ok=True)
        pki.write_region(plane.pki, region)
        (plane.folder / "audit-policy.yaml").write_text(components.AUDIT_POLICY)
        for user in ("admin", "controller-manager", "scheduler", "proxy", "node"):
            text = kubeconfig.with_certificate(plane.pki, name=region.name, server=plane.server, user=user)
            kubeconfig.write_private(plane.kubeconfig(user), text)
        outside = f"https://127.0.0.1:{outside_port}"
        text = kubeconfig.with_certificate(plane.pki, name=region.name, server=outside, user="admin")
        kubeconfig.write_private(plane.folder / "kubeconfig", text)
        inside = f"https://{region.node_ip}:{plane.api_port}"
        text = kubeconfig.with_certificate(plane.pki, name=region.name, server=inside, user="admin")
        kubeconfig.write_private(plane.folder / "kubeconfig.inside", text)

    def add(self, name: str, command: list[str], *, wrap: bool = True, **options: Any) -> Child:
        """Register a program of this region under `name`."""
        log = self.config.logs / f"{self.region.name}-{name}.log"
        child = Child(f"{self.region.name}/{name}", self._wrap(command) if wrap else command, log, **options)
        self.children[name] = child
        return child

    def api(self) -> ApiClient:
        """An admin's connection as the dev cluster itself makes it (never through a cut or shaped path)."""
        return ApiClient(self.plane.kubeconfig("admin"))

    async def start_plane(self) -> None:
        """etcd and API server, then what needs a ready API server (they exit where it is not)."""
        plane, tools = self.plane, self.tools
        await self.add("etcd", components.etcd(plane, tools)).start()
        await self.add("apiserver", components.apiserver(plane, tools)).start()
        await self.until(("etcd", "apiserver"), lambda api: api.request("GET", "/readyz")[0] == 200, "API server ready")
        self.note("api_ready_s")
        await self.add("controller-manager", components.controller_manager(plane, tools)).start()
        await self.add("scheduler", components.scheduler(plane, tools)).start()
        if self.config.kwok_nodes:
            await self.add("kwok", components.kwok(plane, tools, STAGES)).start()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        watched = ("etcd", "apiserver", "controller-manager", "scheduler")
        await self.until(watched, lambda api: api.request("GET", account)[0] == 200, "default service account")
        self.note("plane_ready_s")
        if self.config.kwok_nodes:
            await asyncio.to_thread(self._create_kwok_nodes)
            await self.until(("apiserver", "kwok"), self._kwok_nodes_ready, "kwok nodes ready")
            self.note("kwok_ready_s")

    async def until(self, needed: tuple[str, ...], check: Callable[[ApiClient], bool], what: str) -> None:
        """Wait for `check`, and fail at once with its log's last words if a needed program ends."""
        given_up = threading.Event()

        def wait() -> None:
            # Patience is the loop's: a stranger on our port would accept and never answer.
            api = ApiClient(self.plane.kubeconfig("admin"), timeout_s=3.0)

            def holds() -> bool:
                if given_up.is_set():
                    raise ClusterError(f"{self.region.name}: {what} is no longer waited for.")
                for name in needed:
                    self.children[name].must_run()
                return check(api)

            try:
                wait_until(holds, f"{self.region.name}: {what}", READY_TIMEOUT_S)
            finally:
                api.close()

        try:
            await asyncio.to_thread(wait)
        finally:
            given_up.set()  # the thread of a cancelled wait would otherwise hold up the end of the process

    def _create_kwok_nodes(self) -> None:
        api = self.api()
        for number in range(self.config.kwok_nodes):
            status, answer = api.request("POST", "/api/v1/nodes", kwok_node(self.region, number))
            if status not in (201, 409):
                raise ClusterError(f"A kwok node could not be created: {answer.get('message')}")
        api.close()

    def _kwok_nodes_ready(self, api: ApiClient) -> bool:
        names = (kwok_node(self.region, number)["metadata"]["name"] for number in range(self.config.kwok_nodes))
        return all(_is_ready(api, name) for name in names)

    async def stop(self) -> None:
        """End every program, newest first."""
        for child in reversed(list(self.children.values())):
            await child.kill()


def _is_ready(api: ApiClient, node: str) -> bool:
    code, answer = api.request("GET", f"/api/v1/nodes/{node}")
    conditions = answer["status"].get("conditions", []) if code == 200 else []
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def node_ready(node: str) -> Callable[[ApiClient], bool]:
    """A check for `until`: the node reports Ready."""
    return lambda api: _is_ready(api, node)


def kwok_node(region: Region, number: int) -> dict[str, Any]:
    """A node that only kwok believes in: eight GPUs, room for many pods."""
    name = f"{region.name}-kwok-{number}"
    room = {"cpu": "256", "memory": "2Ti", "pods": "512", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ti"}
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": region.name,
        "topology.kubernetes.io/zone": f"{region.name}-{'abc'[number % 3]}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": room, "capacity": room},
    }


def describe(region: RunningRegion) -> dict[str, Any]:
    """What `status` says of a region."""
    return {
        "components": {
            name: {"pid": child.pid, "exit_code": child.exit_code, "log": str(child.log)}
            for name, child in region.children.items()
        },
        "timings": dict(region.timings_s),
    }
