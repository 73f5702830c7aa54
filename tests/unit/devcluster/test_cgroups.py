"""cgroup folders, on plain folders that look like either version; the level `limits` itself is tested on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.children import child, line_of
from tools.devcluster import cgroups
from tools.errors import HostError


@pytest.fixture
def v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Several hierarchies, two of them the same under two names."""
    root = tmp_path / "cgroup"
    for name in ("cpu,cpuacct", "memory", "cpuset", "hugetlb", "unified"):
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").touch()
    for name in ("cpu", "cpuacct"):
        (root / name).symlink_to("cpu,cpuacct")
    (root / "not-one").mkdir()
    (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    monkeypatch.setattr(cgroups, "ROOT", root)
    return root


@pytest.fixture
def v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One hierarchy."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.procs").touch()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids misc\n")
    (root / "cgroup.subtree_control").touch()
    monkeypatch.setattr(cgroups, "ROOT", root)
    return root


def test_every_mounted_hierarchy_counts_once(v1: Path) -> None:
    names = [path.name for path in cgroups.hierarchies()]
    assert names == ["cpu,cpuacct", "cpuset", "hugetlb", "memory", "unified"]
    assert all(path.parent == v1 for path in cgroups.hierarchies())


def test_the_second_version_has_one(v2: Path) -> None:
    assert cgroups.is_v2()
    assert cgroups.hierarchies() == [v2]


def test_a_node_gets_a_folder_everywhere_and_cpus(v1: Path) -> None:
    cgroups.make("node")
    cgroups.make("node")
    assert all((path / "node").is_dir() for path in cgroups.hierarchies())
    assert (v1 / "cpuset" / "node" / "cpuset.cpus").read_text() == "0-1\n"
    assert (v1 / "cpuset" / "node" / "cpuset.mems").read_text() == "0\n"


def test_in_the_second_version_the_needed_controllers_that_exist_are_passed_on(v2: Path) -> None:
    cgroups.make("node")
    assert (v2 / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids"
    assert (v2 / "node").is_dir()


def test_a_folder_that_cannot_be_made_is_a_sentence(v2: Path) -> None:
    (v2 / "node").touch()
    with pytest.raises(HostError, match="A cgroup for node could not be made: "):
        cgroups.make("node")


def test_ordinary_users_are_told_that_limits_need_root(v1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert v1.exists()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "limits need root" in (cgroups.why_impossible() or "")


def test_what_is_missing_for_root_is_named(v1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cgroups.why_impossible() is None
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert "read-only here" in (cgroups.why_impossible() or "")
    (v1 / "memory").rename(v1 / "other")
    assert "no memory controller" in (cgroups.why_impossible() or "")


def _pods(root: Path, name: str) -> None:
    """Folders as kubelet and runc leave them. On a real cgroup file system files do not hinder an rmdir."""
    for hierarchy in ("cpu,cpuacct", "memory", "hugetlb", "unified"):
        (root / hierarchy / name / "kubepods" / "burstable" / "pod1" / "container").mkdir(parents=True)


def test_sweeping_removes_the_named_folders_and_nothing_else(v1: Path) -> None:
    _pods(v1, "mine")
    _pods(v1, "others")
    cgroups.sweep(["mine"])
    assert list(v1.rglob("mine")) == []
    assert (v1 / "memory" / "others" / "kubepods" / "burstable" / "pod1" / "container").is_dir()


def test_sweeping_waits_for_the_last_process_but_not_for_ever(v1: Path) -> None:
    _pods(v1, "mine")
    (v1 / "memory" / "mine" / "kubepods" / "busy").touch()  # here a file keeps the folder, there a process does
    started = time.monotonic()
    cgroups.sweep(["mine"], timeout_s=0.3)
    assert 0.2 < time.monotonic() - started < 10
    assert (v1 / "memory" / "mine" / "kubepods").is_dir()
    assert not (v1 / "memory" / "mine" / "kubepods" / "burstable").exists()


RUNNER = """
import os, subprocess, sys, time
from pathlib import Path
from tools.devcluster import cgroups
cgroups.ROOT = Path(sys.argv[1])
held = open(sys.argv[2])  # something the janitor must not keep open
cgroups.start_janitor(["mine"])
bystander = subprocess.Popen(["sleep", "60"])  # a component that happens to live longer
print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() == [str(bystander.pid)], flush=True)
print(bystander.pid, flush=True)
time.sleep(60)
"""


def _holders(path: Path) -> list[str]:
    held = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target == str(path):
            held.append(link.parts[2])
    return held


@pytest.mark.timeout(15)
def test_the_janitor_sweeps_when_its_starter_is_killed_whatever_else_still_runs(v1: Path, tmp_path: Path) -> None:
    _pods(v1, "mine")
    (tmp_path / "held").touch()
    command = [sys.executable, "-c", RUNNER, str(v1), str(tmp_path / "held")]
    with child(command) as runner:
        assert line_of(runner) == "True\n", "the janitor must not be a child of the process it watches"
        bystander = int(line_of(runner))
        deadline = time.monotonic() + 5
        try:
            while _holders(tmp_path / "held") != [str(runner.pid)]:
                assert time.monotonic() < deadline, "the janitor must hold nothing of its starter's open"
                time.sleep(0.05)
            assert (v1 / "memory" / "mine").exists()
            runner.kill()
            runner.wait()
            while any((hierarchy / "mine").exists() for hierarchy in cgroups.hierarchies()):
                assert time.monotonic() < deadline + 5
                time.sleep(0.05)
        finally:
            os.kill(bystander, signal.SIGKILL)
