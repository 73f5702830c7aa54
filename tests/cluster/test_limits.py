"""Real nodes whose limits hold: memory, CPU, and nothing of it left on the host however the cluster ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import clusters, pods
from tests.support.clusters import MakeCluster
from tools.devcluster import cgroups
from tools.devcluster.api import wait_until
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.config import Level
from tools.errors import ClusterError

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(180)]

HOG = "held = []\nwhile True: held.append(bytearray(8 << 20))"
SPIN = """
import time
wall, used = time.monotonic(), time.process_time()
while time.monotonic() - wall < 3: pass
print((time.process_time() - used) / (time.monotonic() - wall))
"""
SLEEP = "import threading; print('up', flush=True); threading.Event().wait()"


@pytest.fixture(scope="module")
def limits() -> Iterator[Cluster]:
    """One region whose limits hold."""
    cluster = clusters.start(Level.LIMITS, "1")
    yield cluster
    with contextlib.suppress(ClusterError):
        cluster.down()


@pytest.fixture
def node(limits: Cluster) -> RegionHandle:
    """The region's handle."""
    return limits.regions["us-east"]


def _pod(node: RegionHandle, name: str) -> dict[str, Any]:
    return node.api("GET", f"/api/v1/namespaces/default/pods/{name}")[1]


def _folders(cluster: Cluster) -> list[Path]:
    """The cluster's cgroup folders that exist."""
    names = [cluster.config.cgroup(region) for region in cluster.config.regions]
    found = [hierarchy / name for hierarchy in cgroups.hierarchies() for name in names]
    return [folder for folder in found if folder.exists()]


def _processes(cluster: Cluster) -> list[str]:
    """Processes that carry the cluster's folder in their command line."""
    marked = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(cluster.config.directory).encode() in path.read_bytes():
                marked.append(path.parent.name)
    return marked


def _run(node: RegionHandle) -> None:
    """Have a pod with a limit run in the region."""
    pods.create(node, pods.script_pod("sleeper", SLEEP, resources={"limits": {"memory": "64Mi", "cpu": "100m"}}))
    wait_until(lambda: _pod(node, "sleeper")["status"].get("phase") == "Running", "the pod runs", 60)


def test_a_container_that_takes_too_much_memory_is_killed_for_it(node: RegionHandle) -> None:
    pods.create(node, pods.script_pod("hog", HOG, resources={"limits": {"memory": "64Mi"}}))
    wait_until(lambda: _pod(node, "hog")["status"].get("phase") == "Failed", "the hog's end", 60)
    (status,) = _pod(node, "hog")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"
    assert status["state"]["terminated"]["exitCode"] == 137


def test_a_container_gets_no_more_cpu_than_its_limit(node: RegionHandle) -> None:
    share = float(pods.finish(node, pods.script_pod("spin", SPIN, resources={"limits": {"cpu": "200m"}})))
    assert 0.01 < share < 0.25


def test_everything_the_node_makes_lies_in_the_clusters_own_folder(limits: Cluster, node: RegionHandle) -> None:
    _run(node)
    uid = _pod(node, "sleeper")["metadata"]["uid"]
    name = limits.config.cgroup(node.region)
    memory = cgroups.ROOT if cgroups.is_v2() else cgroups.ROOT / "memory"
    homes = {path.relative_to(memory).parts[0] for path in memory.rglob(f"*{uid}*")}
    assert homes == {name}


def test_a_command_runs_in_the_regions_network(limits: Cluster, node: RegionHandle) -> None:
    addresses = limits.exec(node.name, ["ip", "-brief", "address", "show", "eth0"]).stdout
    assert f"{node.region.node_ip}/32" in addresses


def test_two_clusters_side_by_side_share_nothing_and_leave_nothing(make_cluster: MakeCluster) -> None:
    doomed, other = make_cluster("limits", "1"), make_cluster("limits", "1")
    for cluster in (doomed, other):
        _run(cluster.regions["us-east"])
        assert len(_folders(cluster)) == len(cgroups.hierarchies())
    assert doomed.process is not None
    doomed.process.kill()
    doomed.process.wait()
    deadline = time.monotonic() + 15
    while _folders(doomed) or _processes(doomed):
        assert time.monotonic() < deadline, (_folders(doomed), _processes(doomed))
        time.sleep(0.1)
    status = _pod(other.regions["us-east"], "sleeper")["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["restartCount"] == 0
    other.down()
    while _folders(other) or _processes(other):  # the janitor ends a moment after the cluster
        assert time.monotonic() < deadline + 15, (_folders(other), _processes(other))
        time.sleep(0.1)
