"""What a local process is told of its pod: what the operator wrote, and what the kubelet would have filled in."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.demo import freeze, localpods
from tools.demo.localpods import Running


def test_variables_are_those_of_the_container_with_the_pods_fields_filled_in() -> None:
    container = {
        "env": [
            {"name": "A", "value": "1"},
            {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]
    }
    pod = {"metadata": {"name": "p", "namespace": "rl", "uid": "u-1"}, "spec": {}, "status": {}}
    assert localpods._values(container, pod) == {"A": "1", "UID": "u-1", "NODE": ""}


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = localpods._process(words, {"HOSTNAME": "pod-of-the-test"}, tmp_path / "log", tmp_path)
    running = Running("u-1", 0, tmp_path / "log", [process])
    try:
        done = subprocess.run([sys.executable, freeze.__file__, "pod-of-the-test"], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b"1\n")
        _wait(lambda: _state(process.pid) == "T")
    finally:
        running.kill()
    assert process.returncode == -9


def test_nobody_is_stopped_for_a_pod_that_is_not_there() -> None:
    assert freeze.processes("no-such-pod-anywhere") == []


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait(check: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end_s
        time.sleep(0.01)
