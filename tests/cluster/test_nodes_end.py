"""The end of a cluster with real nodes. A file of its own: two of them at once would need more inotify instances than a
user may have by default (128), beside the other clusters of a test run.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import pods, processtree
from tests.support.clusters import MakeCluster

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]

A = "us-east"


def test_nothing_survives_a_kill_of_the_runner(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("nodes", "1")
    pods.create(cluster.regions[A], pods.web_pod("web"))
    cluster.regions[A].kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    process, directory = cluster.process, str(cluster.config.directory)
    assert process is not None
    inside = processtree.descendants(process.pid)
    assert len(inside) > 8
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in inside) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in inside if Path(f"/proc/{pid}").exists()] == []
    assert directory not in Path("/proc/self/mountinfo").read_text()
