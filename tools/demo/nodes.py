"""The demo's place where all is real: three Kubernetes with real nodes in the bubble, shaped links between them."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable
from pathlib import Path

from sync_runtime.contract import names
from sync_runtime.telemetry.waterfall import Trace
from tools.demo import commands, freeze, group, pictures, tracing
from tools.demo.facts import Document
from tools.demo.play import Play
from tools.demo.story import FAR, HUB, SHAPES, THIN, WORSE
from tools.devcluster import client
from tools.devcluster.client import Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_link, parse_regions

LOG_LINES = 4000
DOWN_S = 180.0
"""Nodes that have run a large model hold gigabytes, and a busy disk takes its time to forget them."""
Say = Callable[[str], None]


class Nodes:
    """A running cluster with the group on it."""

    shaped = True

    def __init__(self, cluster: Cluster, play: Play) -> None:
        self._cluster, self.play = cluster, play
        self._endpoint: str | None = None
        self.regions = cluster.regions
        self.silent: set[str] = set()

    @classmethod
    def start(cls, folder: Path, say: Say, play: Play, *, keep: bool) -> Nodes:
        """Images, clusters, the chart, registrations; the group is not there yet."""
        chosen, jaeger = pictures.choose(folder, say), tracing.program(say)
        regions = parse_regions(",".join((HUB, THIN, FAR)))
        config = ClusterConfig(
            directory=folder / "cluster", level=Level.NODES, regions=regions,
            images=(*chosen.archives, *play.archives),
            links=tuple(parse_link(f"{a}:{b}={shape}", regions) for (a, b), shape in SHAPES.items()),
        )  # fmt: skip
        say("three regions, each a real Kubernetes with a node, shaped links between them")
        cluster = client.start(config, die_with_caller=not keep)
        try:
            made = cls(cluster, play)
            hub = made.regions[HUB]
            say("helm install syncgroup charts/syncgroup")
            values = group.chart_values(chosen.operator, chosen.runtime)
            commands.helm_install(hub, values, folder / "helm", wait=True)
            say(f"syncgroup cluster register {THIN}; syncgroup cluster register {FAR}")
            commands.register(hub, [one for name, one in made.regions.items() if name != HUB])
            made._trace_into(jaeger, say)
        except BaseException:
            cluster.down()
            raise
        return made

    @property
    def hub(self) -> str:
        """Where operator and trainer are."""
        return HUB

    def apply(self) -> None:
        """The group, as `kubectl apply` has it."""
        document = group.runnable(self.play.document, self.play.programs, endpoint=self._endpoint)
        commands.apply_group(self.regions[HUB], document)

    # --- looking ------------------------------------------------------------------------------------------------------

    def log(self, member: str) -> str:
        """What a member's program wrote."""
        found = self._ask(member, f"{self._pod(member)}/log?container=main&tailLines={LOG_LINES}")
        # What is not JSON comes as a message; a single line of ours is JSON and needs nobody yet.
        return str(found.get("message", ""))

    def control(self, member: str, path: str) -> Document:
        """Through the API server, which reaches the pod."""
        return self._ask(member, f"{self._pod(member)}:{names.CONTROL_PORT}/proxy{path}")

    def trace(self, seq: int, members: int) -> Trace | None:
        """The trace of a version with so many members; None: there is no backend, or it has none."""
        hub = self.regions[HUB]
        if self._endpoint is None:
            return None
        return tracing.whole_trace(tracing.through(hub), tracing.group_uid(hub), seq, members)

    def _trace_into(self, jaeger: Path | None, say: Say) -> None:
        if jaeger is not None:
            say("a Jaeger in a pod, for one trace per version")
            self._endpoint = tracing.install(self.regions[HUB], jaeger)

    def _ask(self, member: str, path: str) -> Document:
        region = group.member_names()[member]
        if region in self.silent:
            return {}
        try:
            status, found = self.regions[region].api("GET", path)
        except (OSError, http.client.HTTPException):
            return {}
        return found if status == 200 else {}

    def _pod(self, member: str) -> str:
        return f"/api/v1/namespaces/{group.NAMESPACE}/pods/{member}"

    # --- what happens -------------------------------------------------------------------------------------------------

    def degrade(self) -> None:
        """One link gets worse."""
        self._cluster.shape(HUB, THIN, WORSE)

    def restore(self) -> None:
        """As it was."""
        self._cluster.shape(HUB, THIN, SHAPES[HUB, THIN])

    def freeze(self) -> None:
        """The processes of a rollout's pod stop; the kernel keeps them, nobody hears of them."""
        self._cluster.exec(THIN, [sys.executable, str(Path(freeze.__file__)), self._rollout(THIN)])

    def cut(self) -> None:
        """A region goes away."""
        self.silent.add(FAR)
        self._cluster.cut(FAR)

    def mend(self) -> None:
        """It comes back."""
        self._cluster.mend(FAR)
        self.silent.discard(FAR)

    def stop(self) -> None:
        """Training ends after the step in hand."""
        trainer = group.trainer_name()
        command = group.stop_command(self.play.programs)
        self.regions[HUB].kubectl("exec", trainer, "-n", group.NAMESPACE, "-c", "main", "--", *command)

    @staticmethod
    def _rollout(region: str) -> str:
        trainer = group.trainer_name()
        return next(one for one, at in group.member_names().items() if at == region and one != trainer)

    # --- the end ------------------------------------------------------------------------------------------------------

    def look_further(self) -> list[str]:
        """Commands for somebody who wants to see more."""
        lines = [
            f"export KUBECONFIG={self.regions[HUB].kubeconfig}   # the hub",
            *(f"export KUBECONFIG={one.kubeconfig}" for name, one in self.regions.items() if name != HUB),
            f"export PATH=$PATH:{self._cluster.tools.search_path()}:{Path(sys.executable).parent}",
            *commands.FURTHER,
        ]
        port = f"kubectl port-forward -n {tracing.NAMESPACE} pod/{tracing.NAME} {tracing.QUERY_PORT}"
        return lines if self._endpoint is None else [*lines, port]

    def describe(self) -> str:
        """Everything that helps whoever must find out what went wrong."""
        parts = []
        for name in self.regions:
            parts += [self._said(name, "get", "pods,leases,syncgroups,syncclusters,events", "-A", "-o", "wide")]
        parts.append(self._said(HUB, "get", "syncgroup", group.NAME, "-n", group.NAMESPACE, "-o", "yaml"))
        parts.append(self._said(HUB, "logs", "-n", group.SYSTEM, "deployment/syncgroup-operator", "--tail=200"))
        for member, region in group.member_names().items():
            for container in (names.RUNTIME_CONTAINER, "main"):
                parts.append(self._said(region, "logs", member, "-n", group.NAMESPACE, "-c", container, "--tail=60"))
        return "\n".join(parts)

    def _said(self, region: str, *words: str) -> str:
        """A kubectl command and its answer."""
        if region in self.silent:
            return f"--- {region} is cut off"
        done = self.regions[region].kubectl(*words, check=False)
        return f"--- {region}: kubectl {' '.join(words)}\n{done.stdout}{done.stderr}"

    def down(self) -> None:
        """Everything goes."""
        self._cluster.down(timeout_s=DOWN_S)
