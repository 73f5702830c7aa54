"""A cluster that is stopped while it starts, or whose caller dies, leaves no process and no claim on its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.hostile_host import commands
from tests.component.hostile_host.commands import CLUSTER
from tests.support import processtree
from tests.support.children import child, line_of
from tools.devcluster import folder, hostcheck
from tools.devcluster.config import Level

pytestmark = pytest.mark.timeout(120)
LEVELS = [
    pytest.param(Level.PLANES, marks=pytest.mark.cluster),
    pytest.param(Level.NODES, marks=pytest.mark.bubble),
]


def _possible(level: Level) -> None:
    reason = hostcheck.why_impossible(level)
    if reason is not None:
        pytest.skip(reason)


def _started(directory: Path) -> list[int]:
    """Wait until the cluster in `directory` has begun to run programs; returns all its processes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runner = folder.runner_pid(directory)
        below = processtree.descendants(runner) if runner is not None else []
        if runner is not None and (directory / "logs" / "us-east-apiserver.log").exists() and len(below) >= 2:
            return [runner, *below]
        time.sleep(0.05)
    pytest.fail("the cluster did not begin to start")


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 15
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, f"these processes still run: {left}"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def _starting(level: Level, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`up` with two regions; whatever the test does, no cluster stays behind."""
    _possible(level)
    command = [sys.executable, "-m", CLUSTER, "up", "--level", level.value, "--regions", "2", "--dir", str(directory)]
    try:
        with child(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as up:
            yield up
    finally:
        runner = folder.runner_pid(directory)
        if runner is not None:
            os.kill(runner, signal.SIGKILL)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_command_stops_what_it_started(tmp_path: Path, level: Level, number: signal.Signals) -> None:
    with _starting(level, tmp_path) as up:
        pids = _started(tmp_path)
        up.send_signal(number)
        _, errors = up.communicate(timeout=30)
        assert up.returncode == 130
        assert errors == "error: interrupted; what was started has been ended.\n"
        _wait_until_gone(pids)
    folder.claim(tmp_path).close()


@pytest.mark.parametrize("level", LEVELS)
def test_ending_a_cluster_that_still_starts(tmp_path: Path, level: Level) -> None:
    with _starting(level, tmp_path) as up:
        pids = _started(tmp_path)
        down = commands.run(CLUSTER, "down", "--dir", str(tmp_path))
        _, errors = up.communicate(timeout=30)
        assert (down.returncode, down.stderr) == (0, "")
        assert (up.returncode, errors) == (2, "error: The dev cluster was told to end before it was up.\n")
        _wait_until_gone(pids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "logs"]


CALLER = """
import sys
from pathlib import Path
from tools.devcluster import client
from tools.devcluster.config import ClusterConfig, Level, parse_regions
config = ClusterConfig(directory=Path(sys.argv[1]), level=Level(sys.argv[2]), regions=parse_regions("1"))
client.start(config, die_with_caller=True)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_cluster_of_a_test_dies_with_the_test(tmp_path: Path, level: Level) -> None:
    _possible(level)
    with child([sys.executable, "-c", CALLER, str(tmp_path), level.value], stdin=subprocess.PIPE) as caller:
        assert line_of(caller) == "ready\n"
        pids = _started(tmp_path)
        caller.kill()
        _wait_until_gone(pids)
    folder.claim(tmp_path).close()


@pytest.mark.bubble
def test_an_image_that_cannot_be_imported_ends_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    _possible(Level.NODES)
    archive = tmp_path / "broken.tar"
    archive.write_text("not an archive")
    directory = tmp_path / "cluster"
    done = commands.run(CLUSTER, "up", "--regions", "2", "--image", str(archive), "--dir", str(directory))
    assert f"The image archive {archive} could not be imported" in commands.sentence(done)
    assert folder.runner_pid(directory) is None
    folder.claim(directory).close()
