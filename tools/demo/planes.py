"""The demo's place where namespaces are forbidden: real control planes, invented nodes, and members as local processes.

Operator, leases, plans, certificates, weights and learning are what they are elsewhere. What is missing is a network of
its own: links cannot be shaped, and a region that is cut off loses its API server only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from sync_runtime.telemetry.waterfall import Trace
from tools import jaeger
from tools.demo import commands, group, tracing
from tools.demo.facts import Document
from tools.demo.localpods import LocalPods
from tools.demo.play import Play
from tools.demo.story import FAR, HUB, THIN
from tools.devcluster import client, operatorimage, runtimeimage
from tools.devcluster.client import Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_regions
from tools.devcluster.processes import die_with_parent
from tools.jaeger import Jaeger

STOP_S = 15.0
ACCOUNT = "syncgroup-operator"
Say = Callable[[str], None]


class Planes:
    """Control planes with the group on them, and its members beside them."""

    shaped = False

    def __init__(self, cluster: Cluster, folder: Path, play: Play) -> None:
        self._cluster, self._folder, self.play = cluster, folder, play
        self.regions = cluster.regions
        self.silent: set[str] = set()
        self._ports: dict[str, int] = {}
        self._operator: subprocess.Popen[bytes] | None = None
        self._pods: dict[str, LocalPods] = {}
        self._jaeger: Jaeger | None = None
        self._stack = contextlib.ExitStack()

    @classmethod
    def start(cls, folder: Path, say: Say, play: Play, *, keep: bool) -> Planes:
        """Control planes, the chart, registrations, the operator; no group yet. Ends with this process."""
        del keep  # local processes end with whoever started them: the demo then waits to be ended
        say("three control planes with invented nodes")
        config = ClusterConfig(
            directory=folder / "cluster", level=Level.PLANES, regions=parse_regions(",".join((HUB, THIN, FAR))),
            kwok_nodes=1,
        )  # fmt: skip
        cluster = client.start(config, die_with_caller=True)
        made = cls(cluster, folder, play)
        try:
            hub = made.regions[HUB]
            say("helm install syncgroup charts/syncgroup")
            values = group.chart_values(operatorimage.REFERENCE, runtimeimage.REFERENCE)
            commands.helm_install(hub, values, folder / "helm", wait=False)
            say(f"syncgroup cluster register {THIN}; syncgroup cluster register {FAR}")
            commands.register(hub, [one for name, one in made.regions.items() if name != HUB])
            say("the operator as a local process, with the rights that the chart gave it")
            made._start_operator()
            if tracing.program(say) is not None:
                say("a Jaeger as a local process, for one trace per version")
                made._jaeger = made._stack.enter_context(jaeger.running(folder))
        except BaseException:
            made.down()
            raise
        return made

    @property
    def hub(self) -> str:
        """Where operator and trainer are."""
        return HUB

    def apply(self) -> None:
        """The group, and whoever runs its pods."""
        endpoint = None if self._jaeger is None else self._jaeger.otlp
        traced = group.runnable(self.play.document, self.play.programs, endpoint=endpoint)
        document = group.external(traced, "127.0.0.1", self._port(f"{group.trainer_name()}/data"))
        commands.apply_group(self.regions[HUB], document)
        for name, region in self.regions.items():
            folder = self._folder / "pods" / name
            self._pods[name] = LocalPods(region.kubeconfig, group.NAMESPACE, folder, self._program, self._port)

    # --- looking ------------------------------------------------------------------------------------------------------

    def log(self, member: str) -> str:
        """What a member's program wrote."""
        running = self._pods[group.member_names()[member]].running.get(member)
        with contextlib.suppress(OSError):
            return "" if running is None else running.log.read_text()
        return ""

    def control(self, member: str, path: str) -> Document:
        """A sidecar's control API, on loopback."""
        running = self._pods[group.member_names()[member]].running.get(member)
        if running is None:
            return {}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{running.control}{path}", timeout=5) as answer:
                found = json.load(answer)
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        return found if isinstance(found, dict) else {}

    def trace(self, seq: int, members: int) -> Trace | None:
        """The trace of a version with so many members; None: there is no backend, or it has none."""
        if self._jaeger is None:
            return None
        return tracing.whole_trace(self._jaeger.ask, tracing.group_uid(self.regions[HUB]), seq, members)

    # --- what happens -------------------------------------------------------------------------------------------------

    def degrade(self) -> None:
        """There is no link to make worse; the story leaves this out."""

    def restore(self) -> None:
        """Nor to mend."""

    def freeze(self) -> None:
        """The processes of a rollout stop."""
        trainer = group.trainer_name()
        member = next(one for one, at in group.member_names().items() if at == THIN and one != trainer)
        self._pods[THIN].running[member].signal(signal.SIGSTOP)

    def cut(self) -> None:
        """A region's API server falls silent."""
        self.silent.add(FAR)
        self._pods[FAR].paused.set()
        self._cluster.cut(FAR)

    def mend(self) -> None:
        """It answers again."""
        self._cluster.mend(FAR)
        self._pods[FAR].paused.clear()
        self.silent.discard(FAR)

    def stop(self) -> None:
        """Training ends after the step in hand."""
        self._stop_file.touch()

    # --- the end ------------------------------------------------------------------------------------------------------

    def look_further(self) -> list[str]:
        """Commands for somebody who wants to see more."""
        return [
            f"export KUBECONFIG={self.regions[HUB].kubeconfig}",
            f"export PATH=$PATH:{self._cluster.tools.search_path()}:{Path(sys.executable).parent}",
            *commands.FURTHER,
        ]

    def describe(self) -> str:
        """Everything that helps whoever must find out what went wrong."""
        parts = []
        for name, region in self.regions.items():
            if name not in self.silent:
                words = ("get", "pods,leases,syncgroups,syncclusters,events", "-A", "-o", "wide")
                parts.append(f"--- {name}\n{region.kubectl(*words, check=False).stdout}")
        for path in sorted([self._folder / "operator.log", *self._folder.glob("pods/*/*/*.log")]):
            if path.exists():
                parts.append(f"--- {path.relative_to(self._folder)}\n{path.read_text()[-6000:]}")
        return "\n".join(parts)

    def down(self) -> None:
        """Everything goes."""
        for one in self._pods.values():
            one.close()
        if self._operator is not None:
            self._operator.terminate()
            try:
                self._operator.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._operator.kill()
                self._operator.wait()
        self._stack.close()
        self._cluster.down(timeout_s=60)
        shutil.rmtree(self._folder / "pods", ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _stop_file(self) -> Path:
        return self._folder / "stop"

    def _program(self, pod: Document) -> Sequence[str]:
        """The user's program of a pod; its stop file is one of this machine."""
        words = pod["spec"]["containers"][0]["command"]
        return [str(self._stop_file) if word == group.STOP_FILE else word for word in words]

    def _start_operator(self) -> None:
        hub, folder = self.regions[HUB], self._folder
        kubeconfig = folder / "operator.kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(hub.service_account_kubeconfig(group.SYSTEM, ACCOUNT))
        settings = {
            "NAMESPACE": group.SYSTEM, "HEALTH_HOST": "127.0.0.1", "HEALTH_PORT": str(self._port("health")),
            "METRICS_PORT": str(self._port("metrics")), "CLUSTER_LOST_S": "5", "LEADER_ELECTION": "false",
        }  # fmt: skip
        environment = commands.python_environment() | {"KUBECONFIG": str(kubeconfig)}
        environment |= {f"SYNCGROUP_OPERATOR_{key}": value for key, value in settings.items()}
        with (folder / "operator.log").open("ab") as sink:
            self._operator = subprocess.Popen(
                [sys.executable, "-m", "syncgroup_operator"], env=environment, stdout=sink, stderr=sink,
                stdin=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one prctl call
            )  # fmt: skip

    def _port(self, name: str) -> int:
        """A port of one's own, the same for the same name."""
        if name not in self._ports:
            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))
                self._ports[name] = int(one.getsockname()[1])
        return self._ports[name]
