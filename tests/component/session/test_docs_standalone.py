"""docs/standalone.md, run as it stands: its file, its certificates, its sidecars, its programs. Only ports differ."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY
from tests.support.groups import free_port, wait_for

pytestmark = pytest.mark.timeout(180)

PAGE = (REPOSITORY / "docs/standalone.md").read_text()
SHOWN_PORTS = ("7443", "7444")
PROGRAMS = {"syncgroup": [sys.executable, "-m", "syncgroup.cli"], "python": [sys.executable]}


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def commands(start: str) -> list[list[str]]:
    """The indented commands that begin so; those that are joined by `&` one by one."""
    lines = [line.strip() for line in re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE) if line.strip().startswith(start)]
    return [shlex.split(command) for line in lines for command in line.split(" & ")]


def launch(words: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Starts a command of the page."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as sink:
        command = [*PROGRAMS[words[0]], *words[1:]]
        return subprocess.Popen(command, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, env=environment)


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.terminate()
    for process in started:
        process.wait(30)


def test_what_the_page_shows_runs(tmp_path: Path, running: list[subprocess.Popen[bytes]]) -> None:
    [group] = blocks("toml")
    for port in SHOWN_PORTS:
        assert port in group
        group = group.replace(port, str(free_port()))
    (tmp_path / "group.toml").write_text(group)
    train, rollout = blocks("python")
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "rollout.py").write_text(rollout)
    [certificates] = commands("syncgroup certs")
    assert launch(certificates, tmp_path, tmp_path / "certs.log").wait(60) == 0
    sidecars = commands("syncgroup sidecar")
    assert len(sidecars) == 3
    for words in sidecars:
        log = tmp_path / f"{words[-1]}.log"
        running.append(launch(words, tmp_path, log))
        wait_for(lambda log=log: "control http://" in log.read_text(), 60, what=f"the first line of {log.name}")
    programs = commands("python ")
    assert len(programs) == 3
    logs = [tmp_path / f"{'-'.join(words[1:])}.log" for words in programs]
    users = [launch(words, tmp_path, log) for words, log in zip(programs, logs, strict=True)]
    running.extend(users)
    for user, log in zip(users, logs, strict=True):
        assert user.wait(90) == 0, log.read_text()
    last = [log.read_text().splitlines()[-1] for log in logs]
    digests = {re.search(r"version 5, digest ([0-9a-f]{32})$", line)[1] for line in last if "version 5" in line}  # type: ignore[index]
    assert len(digests) == 1, last
    assert all("version 5" in line for line in last)
