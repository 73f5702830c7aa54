"""How long the dev cluster takes and how much memory it holds: `make bench-devcluster` (tools already built)."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import Report
from tests.support import pods, processtree
from tools.devcluster import client, hostcheck
from tools.devcluster.client import Cluster
from tools.devcluster.config import ClusterConfig, Level, parse_regions

GIB = 1 << 30
SETTLE_S = 3.0


def _measure(report: Report, level: Level, goals: tuple[float, float], then: Callable[[Report, Cluster], None]) -> None:
    reason = hostcheck.why_impossible(level)
    if reason is not None:
        sys.stderr.write(f"{level.value}: not measured. {reason}\n")
        report.failed.append(level.value)
        return
    directory = Path(tempfile.mkdtemp(prefix="bench-devcluster-"))
    config = ClusterConfig(
        directory=directory,
        level=level,
        regions=parse_regions("3"),
        kwok_nodes=2 if level is Level.PLANES else 0,
    )
    started = time.monotonic()
    cluster = client.start(config, die_with_caller=True)
    seconds = time.monotonic() - started
    case = f"three regions, {level.value}"
    try:
        report.figure(case, "time to ready", round(seconds, 2), "s", at_most=goals[0])
        time.sleep(SETTLE_S)
        resident = processtree.resident_bytes(cluster.process.pid if cluster.process else 0)
        report.figure(case, "resident memory", round(resident / 1e9, 3), "GB", at_most=goals[1])
        then(report, cluster)
        started = time.monotonic()
    finally:
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)
    report.figure(case, "time to take down", round(time.monotonic() - started, 2), "s")


def _five_hundred_pods(report: Report, cluster: Cluster) -> None:
    handle = next(iter(cluster.regions.values()))
    path = "/api/v1/namespaces/default/pods?fieldSelector=status.phase=Running"
    started = time.monotonic()
    handle.kubectl("create", "deployment", "many", "--image=registry.example/any:1", "--replicas=500")
    while len(handle.api("GET", path)[1]["items"]) < 500 and time.monotonic() - started < 120:
        time.sleep(0.2)
    report.figure("kwok", "500 pods running", round(time.monotonic() - started, 2), "s", at_most=60.0)


def _pod_with_sidecar(report: Report, cluster: Cluster) -> None:
    handle = next(iter(cluster.regions.values()))
    for attempt in ("first", "second"):
        started = time.monotonic()
        pods.create(handle, pods.web_pod(f"web-{attempt}"))
        handle.kubectl("wait", "--for=condition=Ready", f"pod/web-{attempt}", "--timeout=60s")
        seconds = round(time.monotonic() - started, 2)
        report.figure("real node", f"{attempt} pod with native sidecar ready", seconds, "s", at_most=6.0)


def main() -> int:
    """Measure both levels."""
    report = Report("devcluster")
    _measure(report, Level.PLANES, (12.0, 2.1), _five_hundred_pods)
    _measure(report, Level.NODES, (25.0, 2.8), _pod_with_sidecar)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
