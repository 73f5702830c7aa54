"""The bed of the operator's benchmark: a hub and two remote control planes, kwok's nodes, groups, and their members.

What is measured is the operator's process alone; everything here is beside it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from sync_runtime.contract import names
from syncgroup_operator.manifests import roles
from tests.bench.operator_driver import DURATION_S, RENEW_EVERY_S
from tests.support.operators import ACCOUNT, NAMESPACE, OperatorHub, apply
from tools.devcluster import client
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import ClusterConfig, Level, parse_regions

GROUPS_NAMESPACE: Final = "rl"
REMOTES: Final = ("eu-west", "ap-south")
PODS_PER_NODE: Final = 400
"""kwok's nodes take 512; a successor must find room."""
CHILD_PATHS: Final = (
    "/api/v1/namespaces/rl/pods", "/api/v1/namespaces/rl/configmaps", "/api/v1/namespaces/rl/services",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/rl/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/rl/rolebindings",
)  # fmt: skip
"""What the operator makes, leases aside: members renew those."""
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")


class LabError(Exception):
    """The bed did not get where the benchmark needs it."""


def cluster_name(region: str) -> str:
    """How groups call a region's cluster."""
    return region if region in REMOTES else names.LOCAL_CLUSTER


@dataclass
class Lab:
    """Control planes and members, without the operator."""

    cluster: Cluster
    hub: OperatorHub
    driver: Driver

    @property
    def region(self) -> RegionHandle:
        """The hub's."""
        return self.hub.region

    def create_groups(self, numbers: range) -> None:
        """Groups of ten pods: a trainer and three rollouts here, three in each remote cluster."""
        for number in numbers:
            apply(self.region, group_document(f"group-{number:04d}"))

    def groups(self) -> list[dict[str, Any]]:
        """All of them."""
        status, answer = self.region.api("GET", f"/apis/{names.GROUP_VERSION}/namespaces/{GROUPS_NAMESPACE}/syncgroups")
        if status != 200:
            raise LabError(f"no list of SyncGroups: {answer}")
        return list(answer["items"])

    def child_versions(self) -> dict[tuple[str, str, str], str]:
        """The resource version of every child in every cluster."""
        found: dict[tuple[str, str, str], str] = {}
        for name, region in self.cluster.regions.items():
            for path in CHILD_PATHS:
                token = ""
                while True:
                    query = f"?labelSelector={names.LABEL_GROUP_UID}&limit=500{token}"
                    status, answer = region.api("GET", path + query)
                    if status != 200:
                        raise LabError(f"no list of {path}: {answer}")
                    for item in answer["items"]:
                        found[name, path, item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
                    if not answer["metadata"].get("continue"):
                        break
                    token = f"&continue={answer['metadata']['continue']}"
        return found


@contextlib.contextmanager
def open_lab(groups: int) -> Iterator[Lab]:
    """Everything but the operator and its groups; nothing stays behind."""
    nodes = max(2, math.ceil(groups * 4 / PODS_PER_NODE))
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as name:
        config = ClusterConfig(
            directory=Path(name) / "cluster", level=Level.PLANES, regions=parse_regions("3"), kwok_nodes=nodes
        )
        cluster = client.start(config, die_with_caller=True)
        try:
            region = next(iter(cluster.regions.values()))
            hub = OperatorHub(region, Path(name))
            region.kubectl("create", "namespace", GROUPS_NAMESPACE)
            for remote in REMOTES:
                _register(hub, cluster.regions[remote])
            with Driver(cluster) as driver:
                yield Lab(cluster, hub, driver)
        finally:
            cluster.down()


def _register(hub: OperatorHub, remote: RegionHandle) -> None:
    """A remote cluster as `syncgroup cluster register` leaves it."""
    for namespace in (NAMESPACE, GROUPS_NAMESPACE):
        remote.kubectl("create", "namespace", namespace)
    remote.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE)
    for file in ("remote.yaml", "member.yaml"):
        for document in roles.role_documents()[file]:
            apply(remote, document)
    apply(remote, roles.cluster_role_binding(roles.REMOTE_ROLE, ACCOUNT, NAMESPACE))
    binding = roles.role_binding(roles.REMOTE_MEMBERS_ROLE, ACCOUNT, NAMESPACE, GROUPS_NAMESPACE, kind="ClusterRole")
    apply(remote, binding)
    apply(remote, roles.member_binding(GROUPS_NAMESPACE))
    kubeconfig = remote.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"kubeconfig-{remote.name}", "namespace": NAMESPACE},
        "data": {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()},
    }
    apply(hub.region, secret)
    spec = {
        "kubeconfigSecretRef": {"name": f"kubeconfig-{remote.name}"},
        "region": remote.name,
        "allowedNamespaces": [{"local": GROUPS_NAMESPACE, "remote": GROUPS_NAMESPACE}],
    }
    document = {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCCLUSTER_KIND,
        "metadata": {"name": remote.name},
        "spec": spec,
    }
    apply(hub.region, document)


def group_document(name: str) -> dict[str, Any]:
    """One group of ten pods, damping lifted."""
    template = {"spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}
    exposure = {"type": "External", "host": "trainer.example", "port": 7443}
    trainer = {"region": "us-east", "template": template, "exposure": exposure}
    here = {"name": "near", "region": "us-east", "replicas": 3, "template": template}
    there = [
        {"name": region, "cluster": region, "region": region, "replicas": 3, "template": template} for region in REMOTES
    ]
    lease = {
        "durationSeconds": DURATION_S,
        "renewIntervalSeconds": int(RENEW_EVERY_S),
        "maxConcurrentReplacements": 1024,
        "maxReplacementsPerHour": 100_000,
    }
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCGROUP_KIND,
        "metadata": {"name": name, "namespace": GROUPS_NAMESPACE},
        "spec": {"trainer": trainer, "rollouts": [here, *there], "lease": lease},
    }


class Driver:
    """The members' process."""

    def __init__(self, cluster: Cluster) -> None:
        places = [
            f"{cluster_name(name)}={region.kubeconfig}={GROUPS_NAMESPACE}" for name, region in cluster.regions.items()
        ]
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.operator_driver", *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Driver:
        """Runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=10)

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One command."""
        _pipe(self._process.stdin).write(json.dumps({"op": op, **arguments}) + "\n")
        _pipe(self._process.stdin).flush()
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise LabError("the driver of the members has ended")
        found: dict[str, Any] = json.loads(line)
        return found


def _pipe(one: IO[str] | None) -> IO[str]:
    if one is None:
        raise LabError("the driver has no pipe")
    return one


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def resident_mb(pid: int) -> float:
    """Memory that a process holds."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0]) * 1024 / 1e6


def wait_for(holds: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.5) -> float:
    """Seconds until it holds; raises LabError."""
    started_s = time.monotonic()
    while not holds():
        if time.monotonic() - started_s > timeout_s:
            raise LabError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(every_s)
    return time.monotonic() - started_s


def quantile(before: Mapping[str, float], after: Mapping[str, float], name: str, labels: str, part: float) -> float:
    """A quantile of what a histogram counted between two scrapes, interpolated within its bucket."""
    rows: list[tuple[float, float]] = []
    for key, value in after.items():
        if key.startswith(f"{name}_bucket{{") and labels in key:
            text = key.partition('le="')[2].partition('"')[0]
            rows.append((math.inf if text == "+Inf" else float(text), value - before.get(key, 0.0)))
    rows.sort()
    total = rows[-1][1] if rows else 0.0
    if not total:
        return math.nan
    low, below = 0.0, 0.0
    for edge, count in rows:
        if count >= part * total:
            if math.isinf(edge):
                return low
            return low + (edge - low) * (part * total - below) / max(count - below, 1e-9)
        low, below = edge, count
    return low


def percentile(values: list[float], part: float) -> float:
    """A percentile of plain values."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else math.nan
