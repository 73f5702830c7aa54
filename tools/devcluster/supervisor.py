"""The process that runs a dev cluster: brings regions up side by side, then obeys the control socket until the end.

It is the composition root: the only module here that knows planes, nodes, network and control together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tools.devcluster import control
from tools.devcluster.components import Plane
from tools.devcluster.config import API_PORT, ClusterConfig, Level, Region
from tools.devcluster.forward import Forwarder
from tools.devcluster.network import Wan
from tools.devcluster.node import Node
from tools.devcluster.region import RunningRegion, describe
from tools.errors import ClusterError
from tools.kube.build import Toolbox

Report = Callable[[dict[str, Any]], None]


class Supervisor:
    """All regions of one dev cluster."""

    def __init__(
        self, config: ClusterConfig, tools: Toolbox, listeners: dict[str, socket.socket], report: Report
    ) -> None:
        self.config = config
        self._tools = tools
        self._report = report
        self._started = time.monotonic()
        self._ended = asyncio.Event()
        self._wan = Wan(config) if config.level is not Level.PLANES else None
        self.regions: dict[str, RunningRegion] = {}
        self._nodes: dict[str, Node] = {}
        self._forwarders: dict[str, Forwarder] = {}
        for region in config.regions:
            running = self._region(region)
            self.regions[region.name] = running
            plane = running.plane
            self._forwarders[region.name] = Forwarder(listeners[region.name], plane.reach, plane.api_port)

    def _region(self, region: Region) -> RunningRegion:
        folder, logs = self.config.folder(region), self.config.logs
        if self._wan is None:
            etcd, peer, api = free_ports(3)
            plane = Plane(
                region=region, folder=folder, logs=logs, bind="127.0.0.1", reach="127.0.0.1", advertise="127.0.0.1",
                api_port=api, etcd_port=etcd, etcd_peer_port=peer,
            )  # fmt: skip
            return RunningRegion(self.config, region, plane, self._tools, lambda command: command)
        plane = Plane(
            region=region, folder=folder, logs=logs, bind="0.0.0.0", reach=region.management_ip,  # noqa: S104 - own namespace
            advertise=region.node_ip, api_port=API_PORT, etcd_port=2379, etcd_peer_port=2380,
        )  # fmt: skip
        inside = ["nsenter", f"--net=/run/netns/{region.name}", "--"]
        return RunningRegion(self.config, region, plane, self._tools, lambda command: [*inside, *command])

    async def run(self) -> None:
        """Bring everything up, serve until told to end, take everything down."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        server: asyncio.Server | None = None
        try:
            await self._unless_told_to_end(self._up())
            server = await control.serve(self.config.directory, self._handle)
            self._report({"ready": True, "seconds": round(time.monotonic() - self._started, 1)})
            await self._ended.wait()
        finally:
            if server is not None:
                server.close()  # not `async with`: newer Pythons would wait there for every open connection
            await self._down()

    async def _unless_told_to_end(self, start: Coroutine[Any, Any, None]) -> None:
        starting, ended = asyncio.create_task(start), asyncio.create_task(self._ended.wait())
        await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            raise ClusterError("The dev cluster was told to end before it was up.")
        await starting

    async def _up(self) -> None:
        self.config.logs.mkdir(parents=True, exist_ok=True)
        for name, running in self.regions.items():
            # What a killed cluster left here would be believed; and only from in here may all of it be removed.
            shutil.rmtree(running.plane.folder, ignore_errors=True)
            running.write_files(self._forwarders[name].port)
        if self._wan is not None:
            await self._wan.up()
            self._report({"progress": f"network of {len(self.regions)} regions"})
        async with asyncio.TaskGroup() as group:
            for running in self.regions.values():
                group.create_task(self._up_region(running))

    async def _up_region(self, running: RunningRegion) -> None:
        name = running.region.name
        await self._forwarders[name].start()
        if self._wan is None:
            await running.start_plane()
        else:
            node = self._nodes[name] = Node(running)
            async with asyncio.TaskGroup() as group:
                group.create_task(node.prepare())
                group.create_task(running.start_plane())
            await node.join()
        self._report({"progress": f"{name}: up after {max(running.timings_s.values())} s"})

    async def _down(self) -> None:
        async with asyncio.TaskGroup() as group:
            for running in self.regions.values():
                group.create_task(running.stop())
        for forwarder in self._forwarders.values():
            forwarder.close()
        for node in self._nodes.values():
            node.remove_files()
        if self._wan is not None:
            await self._wan.down()
        (self.config.directory / control.SOCKET).unlink(missing_ok=True)

    # --- the operations of the control socket -----------------------------------------------------------------

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "status":
                return self._status()
            case "kill":
                child = self._component(request["region"], request["component"])
                await child.kill(int(request.get("signal", signal.SIGKILL)))
                return {"exit_code": child.exit_code}
            case "restart":
                await self._restart(request["region"], request["component"])
                return {}
            case "cut" | "mend" as verb:
                self._cut_or_mend(verb, request["a"], request.get("b"))
                return {}
            case "shape":
                self._need_wan().shape(request["a"], request["b"], request["shape"])
                return {}
            case "links":
                return {"links": self._need_wan().stats()}
            case "down":
                asyncio.get_running_loop().call_later(0.05, self._ended.set)
                return {}
            case other:
                raise ClusterError(f"The dev cluster knows no operation {other!r}.")

    def _status(self) -> dict[str, Any]:
        regions = {}
        for name, running in self.regions.items():
            regions[name] = describe(running) | {
                "kubeconfig": str(self.config.folder(running.region) / "kubeconfig"),
                "cut": self._forwarders[name].is_cut,
                "node_pid": self._nodes[name].init_pid if name in self._nodes else None,
            }
        return {
            "level": self.config.level.value,
            "kube": self.config.kube,
            "pid": os.getpid(),
            "logs": str(self.config.logs),
            "regions": regions,
        }

    def _component(self, region: str, component: str) -> Any:
        self.config.region(region)
        children = self.regions[region].children
        if component not in children:
            raise ClusterError(f"{region} has no component {component!r}; it has {', '.join(children)}.")
        return children[component]

    async def _restart(self, region: str, component: str) -> None:
        child = self._component(region, component)
        if component == "node":
            await self._nodes[region].restart()
            return
        if component in ("kubelet", "containerd") and self.regions[region].children["node"].pid is None:
            raise ClusterError(f"The node of {region} is down, and {component} runs on it; restart the component node.")
        await child.kill(signal.SIGTERM)
        await child.start()
        if component in ("apiserver", "etcd"):
            running = self.regions[region]
            await running.until((component,), lambda api: api.request("GET", "/readyz")[0] == 200, "API server ready")

    def _cut_or_mend(self, verb: str, a: str, b: str | None) -> None:
        self.config.region(a)
        if b is not None:
            self.config.region(b)
            wan = self._need_wan(hint=f"; `{verb} {a}` alone stops or starts the answers of its API address")
            wan.cut(a, b) if verb == "cut" else wan.mend(a, b)
            return
        forwarder = self._forwarders[a]
        forwarder.cut() if verb == "cut" else forwarder.mend()
        if self._wan is not None:
            for other in self.regions:
                if other != a:
                    self._wan.cut(a, other) if verb == "cut" else self._wan.mend(a, other)

    def _need_wan(self, hint: str = "") -> Wan:
        if self._wan is None:
            raise ClusterError(f"Links between regions exist at the levels nodes and limits only{hint}.")
        return self._wan


def free_ports(count: int) -> list[int]:
    """Free loopback ports, all different. Another program may still take one before we do; then the start says so.

    They lie below those that the kernel gives to outgoing connections: one of these would take a port sooner or later
    between our look and the start of the program that needs it.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    wanted = range(max(10000, first_outgoing - 20000), first_outgoing)
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            sock = held.enter_context(socket.socket())
            port = random.choice(wanted) if len(wanted) > 1000 else 0  # noqa: S311 - not a secret
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                found.append(sock.getsockname()[1])
    return found


def reporter(descriptor: int) -> Report:
    """Writes progress as JSON lines to a pipe; a reader that has gone is no reason to stop."""

    def report(message: dict[str, Any]) -> None:
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        except OSError:
            return

    return report
