from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.errors import HostError
from tools.linkemu import ShapeError, host
from tools.linkemu.__main__ import parse_ends


def _forbid(monkeypatch: pytest.MonkeyPatch, facts: dict[str, str]) -> None:
    def refuse(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "unshare failed: Operation not permitted")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(host, "check_programs", lambda: None)
    monkeypatch.setattr(host, "_read", facts.get)


def test_missing_programs_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "search_path", lambda: str(tmp_path))
    with pytest.raises(HostError, match=r"needs ip, nice, nsenter.* iproute2 util-linux"):
        host.check_programs()


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict_unprivileged_userns to 0"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone to 1"),
        ({"/proc/sys/user/max_user_namespaces": "0"}, "max_user_namespaces above 0"),
        ({"/proc/self/status": "Name:\tx\nSeccomp:\t2\n"}, "seccomp"),
        ({}, "run as root"),
    ],
)
def test_forbidden_namespaces_are_one_sentence_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], remedy: str
) -> None:
    _forbid(monkeypatch, facts)
    with pytest.raises(HostError, match=f"Operation not permitted.*{remedy}"):
        host.unshare_command()


def test_root_does_without_a_user_namespace_where_those_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_user(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int("--user" in command), "", "forbidden")

    monkeypatch.setattr(subprocess, "run", refuse_user)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host, "check_programs", lambda: None)
    assert "--user" not in host.unshare_command()


def test_ends_are_both_directions_or_one() -> None:
    assert parse_ends("a-b") == [("a", "b"), ("b", "a")]
    assert parse_ends("a>b") == [("a", "b")]


@pytest.mark.parametrize("text", ["", "a", "a-", ">b"])
def test_what_is_no_pair_of_ends_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="a-b for both"):
        parse_ends(text)


@pytest.mark.timeout(20)
def test_the_command_line_ends_in_one_sentence_not_in_a_trace() -> None:
    command = [sys.executable, "-m", "tools.linkemu", "lab", "--link", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("cannot read the link 'nonsense'")
    assert done.stderr.count("\n") == 1
