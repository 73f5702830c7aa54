"""A group without Kubernetes, for tests: certificates, group.toml, and one sidecar process per member."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import socket
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from syncgroup.cli import main
from tests.support.sidecars import SidecarProcess

START_TIMEOUT_S = 30.0
_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below the range of outgoing connections, which members make to each other all the time."""


@dataclass(frozen=True)
class Member:
    """A member to be."""

    name: str
    region: str
    parents: tuple[str, ...] = ()
    relay: bool = False
    role: str = "Rollout"
    gpu_access: str = "InProcess"
    served: tuple[str, str] | None = None
    """Where a checkpoint folder is served, and what it is made from; without a grace for readers."""


TRAINER = Member("trainer-0", "us", role="Trainer")


def free_port() -> int:
    """A port that nobody has now, and that the kernel gives to no outgoing connection before it is listened on."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)  # tests share the seed of `random`, and so would their ports
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Group:
    """Members of one group and their sidecars; a context manager that ends what it started."""

    def __init__(self, folder: Path, members: Sequence[Member], **settings: object) -> None:
        self.folder = folder
        self.members = {member.name: member for member in members}
        self.ports = {member.name: free_port() for member in members if member.relay or member.role == "Trainer"}
        self.settings = settings
        self.processes: dict[str, SidecarProcess] = {}
        self.environment: Mapping[str, str] = {}
        """Of the sidecars, beside this process's own."""
        self.controls: dict[str, int] = {}
        self._write()
        self._make_certificates()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    @property
    def config(self) -> Path:
        """The group's file."""
        return self.folder / "group.toml"

    def socket(self, name: str) -> str:
        """Where a member's library dials its sidecar."""
        return str(self.folder / "state" / name / "sidecar.sock")

    def log(self, name: str) -> str:
        """What a sidecar wrote so far."""
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def start(self, *names: str) -> None:
        """Starts sidecars and waits until they listen."""
        for name in names:
            words = ["sidecar", "--config", str(self.config), "--member", name]
            log = self.folder / f"{name}.log"
            start = log.stat().st_size if log.exists() else 0
            self.processes[name] = SidecarProcess(words, self.folder, log, self.environment)
            self.controls[name] = self._wait_ready(name, start)

    def start_all(self) -> None:
        """All of them, the trainer first."""
        self.start(*self.members)

    def plan(self, revision: int, *members: Member, **settings: object) -> None:
        """Another plan, for those that run too."""
        self.members |= {member.name: member for member in members}
        self.settings = {**self.settings, "revision": revision, **settings}
        self._write()

    def kill(self, name: str) -> None:
        """kill -9."""
        self._end(name, signal.SIGKILL)

    def stop(self, name: str) -> int:
        """A polite end; returns the exit code."""
        return self._end(name, signal.SIGTERM)

    def ask(self, name: str, path: str) -> Any:
        """A reading of a sidecar's control API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.controls[name]}{path}", timeout=5) as answer:
            return json.load(answer)

    def _end(self, name: str, number: int) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def _wait_ready(self, name: str, start: int) -> int:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            log = self.folder / f"{name}.log"
            said = log.read_bytes()[start:].decode() if log.exists() else ""
            for line in said.splitlines():
                if "control http://" in line:
                    return int(line.rpartition(":")[2].strip("/ "))
            if self.processes[name].poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"the sidecar of {name} did not start:\n{self.log(name)}")

    def _write(self) -> None:
        lines = ['group = "demo"']
        lines += [f"{key} = {_toml(value)}" for key, value in self.settings.items()]
        for member in self.members.values():
            lines += ["", "[[members]]", f'name = "{member.name}"', f'role = "{member.role}"']
            lines += [f'region = "{member.region}"', f"parents = {json.dumps(list(member.parents))}"]
            lines += [f"relay = {json.dumps(member.relay)}", f'gpuAccess = "{member.gpu_access}"']
            if member.served is not None:
                lines += [f'servedFolder = "{member.served[0]}"', f'servedBase = "{member.served[1]}"']
                lines.append("servedGraceSeconds = 0")
            if member.name in self.ports:
                lines.append(f'listen = "127.0.0.1:{self.ports[member.name]}"')
        self.config.write_text("\n".join(lines) + "\n")

    def _make_certificates(self) -> None:
        words = ["certs", "init", str(self.folder / "certs"), "--group", "demo"]
        for member in self.members.values():
            words += ["--trainer" if member.role == "Trainer" else "--member", f"{member.name}@{member.region}"]
        assert main(words) == 0


def wait_for(condition: Any, timeout_s: float = 20.0, *, what: str = "it") -> Any:
    """Waits until a callable gives something true; returns that."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s:g} s")


def _toml(value: object) -> str:
    """A value as TOML has it; tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
