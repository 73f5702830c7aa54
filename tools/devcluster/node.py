"""The real node of a region: containerd, kubelet, kube-proxy and DNS in namespaces of their own.

One process holds the node's namespaces; killing it is what a power cut is to a machine. Runs inside the bubble only.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

from tools.devcluster import bubble, cgroups, components, hostpackages, nodefiles
from tools.devcluster.api import ApiClient
from tools.devcluster.balancer import Balancer
from tools.devcluster.config import Level
from tools.devcluster.processes import only_child_of, program_name
from tools.devcluster.region import RunningRegion, node_ready
from tools.errors import ClusterError

PREPARE_TIMEOUT_S = 30.0
# Each node sees its own /var/log and container state: kubelet and the shims use these paths whatever they are told.
NODE_MOUNTS = """
mount --make-rshared / &&
mount -t tmpfs -o mode=755 node-log /var/log &&
mkdir -p /var/log/containers /var/log/pods /var/lib/cni /run/containerd &&
mount -t tmpfs -o mode=755 node-cni /var/lib/cni &&
mount -t tmpfs -o mode=755 node-run /run/containerd &&
mount --bind "$1" "$2" &&
exec "$0"
"""


class Node:
    """Starts and restarts the node of one region."""

    def __init__(self, running: RunningRegion) -> None:
        self._running = running
        self._tools = running.tools
        self._cgroup = running.config.cgroup(running.region) if running.config.level is Level.LIMITS else None
        self._disk = running.plane.folder / "node"
        state = Path("/run/devcluster") / str(running.region.index)
        self._files = nodefiles.NodeFiles(
            plane=running.plane,
            folder=state / "disk",  # `_disk` under a short name: the kubelet makes sockets in it
            state=state,
            tools=running.tools,
            cgroup=self._cgroup,
        )
        self.init_pid: int | None = None
        self._balancer = Balancer(running.region, running.plane.kubeconfig("admin"))

    async def prepare(self) -> None:
        """Everything that needs no API server: namespaces, containerd, images."""
        for folder in (self._disk, self._files.folder):
            folder.mkdir(parents=True, exist_ok=True)
        bubble.bind(self._disk, self._files.folder)
        self._files.write(snapshotter=_snapshotter(self._files.folder))
        if self._cgroup is not None:
            cgroups.make(self._cgroup)
        await self._start_init()
        await self._start_containerd()
        self._running.note("containerd_ready_s")

    async def _start_init(self) -> None:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        folders = [str(self._files.folder / "kubelet"), str(self._files.kubelet_root)]
        child = self._running.add("node", [*unshare, "sh", "-c", NODE_MOUNTS, self._tools["pause"], *folders])
        await child.start()
        self.init_pid = await self._wait_for_init(child.pid)

    async def _wait_for_init(self, pid: int | None) -> int:
        """The node's first process, once its mounts are made: it is then called pause."""
        child, deadline = self._running.children["node"], time.monotonic() + PREPARE_TIMEOUT_S
        while pid is not None and time.monotonic() < deadline:
            init = only_child_of(pid)
            if init is not None and program_name(init) == "pause":
                return init
            pid = child.pid
            await asyncio.sleep(0.02)
        child.must_run()
        raise ClusterError(f"{child.name} did not make its mounts within {PREPARE_TIMEOUT_S:.0f} s (log: {child.log}).")

    def _inside(self, command: list[str]) -> list[str]:
        return ["nsenter", "--target", str(self.init_pid), "--net", "--mount", "--pid", "--", *command]

    async def _start_containerd(self) -> None:
        environment = os.environ | {
            "PATH": f"{self._tools.search_path()}:/usr/sbin:/usr/bin:/sbin:/bin",
            "RUNC_BUBBLE_TARGET": self._tools["runc"],
            "RUNC_BUBBLE_SECCOMP": "1" if _has_seccomp(self._tools["runc"]) else "0",
            "RUNC_BUBBLE_CGROUPS": "0" if self._cgroup is None else "1",
        }
        command = [self._tools["containerd"], "--config", str(self._files.containerd_config)]
        child = self._running.add("containerd", self._inside(command), wrap=False, environment=environment)
        await child.start()
        deadline = time.monotonic() + PREPARE_TIMEOUT_S
        while (await self._ctr("version"))[0] != 0:
            child.must_run()
            if time.monotonic() > deadline:
                raise ClusterError(f"{child.name} did not answer within {PREPARE_TIMEOUT_S:.0f} s (log: {child.log}).")
            await asyncio.sleep(0.05)
        for archive in self._running.config.images:
            code, text = await self._ctr("--namespace", "k8s.io", "images", "import", "--local", archive)
            if code != 0:
                reason = (text.strip().splitlines() or ["no reason was given"])[-1]
                raise ClusterError(
                    f"The image archive {archive} could not be imported ({reason}); give an OCI archive."
                )

    async def _ctr(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            self._tools["ctr"],
            "--address",
            str(self._files.socket),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        text, _ = await process.communicate()
        return process.returncode or 0, text.decode(errors="replace")

    async def join(self) -> None:
        """Everything that needs the API server: kubelet, Services, DNS, addresses for load balancers."""
        if _single_id():
            await asyncio.to_thread(self._squash_ids)
        await self._start_kubelet()
        plane = self._running.plane
        environment = os.environ | {"PATH": f"{hostpackages.nft()}:/usr/sbin:/usr/bin:/sbin:/bin"}
        await self._running.add(
            "kube-proxy", components.kube_proxy(plane, self._tools), environment=environment
        ).start()
        (plane.folder / "Corefile").write_text(components.corefile(plane))
        await self._running.add("dns", components.coredns(plane, self._tools)).start()
        self._balancer.start()
        needed = ("apiserver", "containerd", "kubelet", "node", "kube-proxy", "dns")
        await self._running.until(needed, node_ready(self._running.region.node_name), "node ready")
        self._running.note("node_ready_s")

    async def _start_kubelet(self) -> None:
        command = self._inside(nodefiles.kubelet_command(self._files))
        environment = os.environ | {"PATH": f"{self._tools.search_path()}:/usr/sbin:/usr/bin:/sbin:/bin"}
        await self._running.add("kubelet", command, wrap=False, environment=environment).start()

    def _squash_ids(self) -> None:
        api: ApiClient = self._running.api()
        for document in nodefiles.squash_policy():
            kind = document["kind"].lower()
            plural = {"mutatingadmissionpolicy": "mutatingadmissionpolicies"}.get(kind, kind + "s")
            api.must("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", document)
        api.close()

    async def restart(self) -> None:
        """Power cut and start: kill the namespaces with all in them, then the same node again."""
        for name in ("kubelet", "containerd", "node"):
            await self._running.children[name].kill()
        await self._start_init()
        await self._start_containerd()
        await self._start_kubelet()

    def remove_files(self) -> None:
        """Layers may belong to ids that exist only in here, so they are removed from in here."""
        self._balancer.stop()
        shutil.rmtree(self._disk, ignore_errors=True)


def _single_id() -> bool:
    rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return sum(int(row[2]) for row in rows) < 2


def _has_seccomp(runc: str) -> bool:
    """Whether this runc was linked with libseccomp; it says so itself."""
    done = subprocess.run([runc, "--version"], capture_output=True, text=True, check=False)
    return "libseccomp" in done.stdout


def _snapshotter(folder: Path) -> str:
    """overlayfs where the folder's file system allows it in here; plain copies otherwise."""
    probe = folder / "probe"
    parts = {name: probe / name for name in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir(parents=True, exist_ok=True)
    options = f"userxattr,lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    mount = ["mount", "-t", "overlay", "-o", options, "probe", str(parts["merged"])]
    works = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if works:
        subprocess.run(["umount", str(parts["merged"])], check=False)
    shutil.rmtree(probe, ignore_errors=True)
    return "overlayfs" if works else "native"
