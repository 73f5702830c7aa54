"""The check up front: each obstacle is one sentence that says what to change."""

from __future__ import annotations

import re
import resource
import subprocess
from pathlib import Path

import pytest

from tools.devcluster import bubble, cgroups, hostcheck, hostpackages
from tools.devcluster.config import Level
from tools.devcluster.hostcheck import Finding
from tools.errors import HostError


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("OSError: [Errno 28] unshare: No space left on device", "raise the sysctl user.max_user_namespaces"),
        ("OSError: [Errno 22] unshare: Invalid argument", "use another kernel, or root"),
        ("The user namespace's id map could not be written", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("PermissionError: [Errno 1] Operation not permitted: '/proc/7/uid_map'", "apparmor_restrict"),
        ("OSError: [Errno 1] mount: Operation not permitted", "in a container use --privileged"),
        ("`mount -t tmpfs probe /run/lock`: permission denied", "in a container use --privileged"),
        ("`ip link add probe0 type bridge`: Unknown device type", "a probe of the namespaces failed (`ip link add"),
    ],
)
def test_what_the_probe_said_becomes_what_to_change(words: str, remedy: str) -> None:
    sentence = hostcheck.explain(words)
    assert remedy in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("filtered", "remedy"), [(True, "--privileged"), (False, "kernel.unprivileged_userns_clone=1")]
)
def test_a_filter_is_told_from_a_setting(monkeypatch: pytest.MonkeyPatch, filtered: bool, remedy: str) -> None:
    monkeypatch.setattr(hostcheck, "_seccomp_filtered", lambda: filtered)
    assert remedy in hostcheck.explain("OSError: [Errno 1] unshare: Operation not permitted")


def test_the_first_fatal_finding_is_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("a", None), Finding("b", "not grave.", fatal=False), Finding("c", "do this."), Finding("d", "or.")]
    monkeypatch.setattr(hostcheck, "findings", lambda _level: iter(found))
    assert hostcheck.why_impossible(Level.NODES) == "The level `nodes` is impossible here: do this."
    monkeypatch.setattr(hostcheck, "findings", lambda _level: iter(found[:2]))
    assert hostcheck.why_impossible(Level.NODES) is None


def test_planes_need_no_programs_and_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostcheck, "_programs", lambda: pytest.fail("asked for programs"))
    monkeypatch.setattr(hostcheck, "_namespaces", lambda _level: pytest.fail("asked for namespaces"))
    assert [finding.what for finding in hostcheck.findings(Level.PLANES)] == ["Linux", "open files"]


def test_a_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostcheck, "SEARCH", str(tmp_path))
    sentence = hostcheck.why_impossible(Level.NODES)
    assert sentence == "The level `nodes` is impossible here: the program `ip` is missing; install iproute2."


def test_nft_that_cannot_be_had_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise HostError("the program `nft` is missing; install the package nftables.")

    monkeypatch.setattr(hostpackages, "nft", missing)
    assert hostcheck._nft().problem == "the program `nft` is missing; install the package nftables."


def test_without_writable_cgroups_there_are_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostcheck, "_programs", lambda: iter(()))
    monkeypatch.setattr(hostcheck, "_nft", lambda: Finding("program nft", None))
    monkeypatch.setattr(hostcheck, "_namespaces", lambda _level: pytest.fail("asked in spite of it"))
    monkeypatch.setattr(cgroups, "why_impossible", lambda: "limits need root.")
    assert hostcheck.why_impossible(Level.LIMITS) == "The level `limits` is impossible here: limits need root."


@pytest.mark.parametrize(
    ("limits", "problem", "raised"),
    [
        ((1024, 1024), r"only 1024 open files are allowed; raise `ulimit -n` to 4096", None),
        ((1024, 8192), None, (8192, 8192)),
        ((1024, 1 << 20), None, (65536, 1 << 20)),
        ((1024, resource.RLIM_INFINITY), None, (65536, resource.RLIM_INFINITY)),
        ((20000, 20000), None, None),
    ],
)
def test_open_files_are_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], problem: str | None, raised: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: asked.append(pair))
    finding = hostcheck._open_files()
    assert finding.problem is None if problem is None else re.search(problem, finding.problem or "")
    assert asked == ([raised] if raised else [])


def test_another_system_is_told_to_use_a_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert hostcheck.why_impossible(Level.PLANES) == (
        "The level `planes` is impossible here: it needs Linux; on other systems use a Linux VM."
    )


def test_a_probe_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_arguments: object, **_options: object) -> None:
        raise subprocess.TimeoutExpired("probe", 60)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "hung for" in (hostcheck._namespaces(Level.NODES).problem or "")


@pytest.mark.parametrize(("level", "kind"), [(Level.NODES, "range"), (Level.LIMITS, "none")])
def test_the_probe_takes_the_way_the_cluster_will_take(
    monkeypatch: pytest.MonkeyPatch, level: Level, kind: str
) -> None:
    commands: list[list[str]] = []

    def succeed(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bubble, "choose_id_map", lambda: bubble.IdMap.RANGE)
    monkeypatch.setattr(subprocess, "run", succeed)
    assert hostcheck._namespaces(level).problem is None
    assert commands[0][3] == kind
