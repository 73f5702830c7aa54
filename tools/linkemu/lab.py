"""Regions without Kubernetes: a few network namespaces, the emulator between them, and a way to run programs inside.

For tests, benchmarks and trying things out, by root or an ordinary user alike. A lab is one pid namespace tied to its
owner: when the owner ends, even by kill -9, everything in the lab ends too, and nothing is left on disk.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal, Self

from tools.errors import HostError
from tools.linkemu.emulator import GATEWAY_ADDRESS, GATEWAY_MAC, Emulator, EmulatorOptions, RegionPort
from tools.linkemu.host import search_path, unshare_command
from tools.linkemu.shape import LinkShape

MAX_REGIONS = len(ascii_lowercase)
_START_TIMEOUT_S = 20.0
_TUN_QUEUE_PACKETS = 10_000  # a TCP sender's burst must not be lost before it reaches the link
_NICENESS = 5  # where the emulator has no priority of its own: the receiver it wakes must not push it aside


@dataclass(frozen=True, slots=True)
class _Init:
    """The lab's first process, as seen from outside."""

    pid: int
    regions: dict[str, int]
    in_user_namespace: bool


class Lab:
    """Regions `a`, `b`, `c` ... with the addresses 10.77.0.1, 10.77.1.1 ... and the emulator between them."""

    def __init__(self, outer: subprocess.Popen[bytes], init: _Init) -> None:
        self._outer = outer
        self._init = init
        self._emulator: Emulator | None = None

    @classmethod
    def start(
        cls,
        num_regions: int = 2,
        *,
        link: LinkShape | None = None,
        kind: Literal["packet", "tun"] = "packet",
        options: EmulatorOptions | None = None,
    ) -> Self:
        """Make the namespaces, start the emulator with `link` in every direction, and set up the regions' networks."""
        if not 1 <= num_regions <= MAX_REGIONS:
            raise HostError(f"a lab has 1 to {MAX_REGIONS} regions, not {num_regions}")
        options = options or EmulatorOptions()
        names = list(ascii_lowercase[:num_regions])
        outer, init = _start_init(names, veth=kind == "packet", mtu_bytes=options.mtu_bytes)
        lab = cls(outer, init)
        try:
            ports = [lab._port(name, kind) for name in names]
            shapes = dict.fromkeys(permutations(names, 2), link) if link else {}
            lab._emulator = Emulator.start(ports, shapes=shapes, options=options, enter=lab.core_command([]))
            for name in names:
                lab._configure(name, kind, options.mtu_bytes)
        except BaseException:
            lab.stop()
            raise
        return lab

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the emulator and every process of the lab."""
        if self._emulator:
            self._emulator.stop()
            self._emulator = None
        self._outer.kill()  # --kill-child takes the first process along, and that one everything else
        self._outer.wait()

    @property
    def emulator(self) -> Emulator:
        """The links."""
        if not self._emulator:
            raise HostError("the lab has been stopped: start another")
        return self._emulator

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions' names."""
        return tuple(self._init.regions)

    @property
    def init_pid(self) -> int:
        """The lab's first process; ending it ends the lab."""
        return self._init.pid

    def address(self, region: str) -> str:
        """The IPv4 address of a region."""
        return f"10.77.{self.regions.index(region)}.1"

    def netns(self, region: str) -> str:
        """A path to a region's network namespace, for `ip` and `nsenter` within the lab's user namespace."""
        return f"/proc/{self._init.pid}/fd/{self._init.regions[region]}"

    def command(self, region: str, arguments: Sequence[str]) -> list[str]:
        """`arguments` as a command that runs inside a region, in the lab's pid namespace.

        The process started is nsenter; the program is its child and dies with it. Signals for the program itself go to
        the process group (`start_new_session=True`, then `os.killpg`).
        """
        inside = self._enter(f"--net={self.netns(region)}", "--pid")
        yielding = ["nice", "-n", str(_NICENESS)] if self._emulator and not self._emulator.prioritised else []
        return [*inside, "setpriv", "--pdeathsig", "KILL", *yielding, *arguments]

    def core_command(self, arguments: Sequence[str]) -> list[str]:
        """`arguments` as a command that runs between the regions, where the emulator and the `wan-*` interfaces are."""
        return [*self._enter("--net"), *arguments]

    def run(self, region: str, arguments: Sequence[str], **keywords: Any) -> subprocess.CompletedProcess[Any]:
        """`subprocess.run` inside a region."""
        return subprocess.run(self.command(region, arguments), **_with_path(keywords))  # noqa: PLW1510 the caller's choice

    def popen(self, region: str, arguments: Sequence[str], **keywords: Any) -> subprocess.Popen[Any]:
        """`subprocess.Popen` inside a region."""
        return subprocess.Popen(self.command(region, arguments), **_with_path(keywords))

    def set_sysctl(self, region: str, name: str, value: str) -> None:
        """Set a sysctl of a region's network, such as `net.ipv4.tcp_wmem` (the longer the link, the more it needs)."""
        path = "/proc/sys/" + name.replace(".", "/")
        done = self.run(region, ["tee", path], input=value, text=True, capture_output=True, timeout=_START_TIMEOUT_S)
        if done.returncode != 0:
            raise HostError(f"the sysctl {name} of region {region} cannot be set to {value!r}: {done.stderr.strip()}")

    def interface_counters(self, region: str) -> dict[str, int]:
        """The kernel's counters of a region's interface: what really went in and out, and what it dropped."""
        table = self.run(region, ["cat", "/proc/self/net/dev"], check=True, capture_output=True, text=True).stdout
        line = next(line for line in table.splitlines() if line.strip().startswith("eth0:"))
        values = [int(value) for value in line.partition(":")[2].split()]
        names = ("bytes", "packets", "errors", "dropped")
        received = {f"rx_{name}": value for name, value in zip(names, values[:4], strict=True)}
        return received | {f"tx_{name}": value for name, value in zip(names, values[8:12], strict=True)}

    def _enter(self, *what: str) -> list[str]:
        user = ["--user", "--preserve-credentials"] if self._init.in_user_namespace else []
        return ["nsenter", f"--target={self._init.pid}", *user, *what, "--"]

    def _port(self, name: str, kind: Literal["packet", "tun"]) -> RegionPort:
        return RegionPort(
            name=name,
            interface=f"wan-{name}" if kind == "packet" else "eth0",
            prefixes=(f"{self.address(name)}/24",),
            kind=kind,
            netns=self.netns(name),
        )

    def _configure(self, region: str, kind: Literal["packet", "tun"], mtu_bytes: int) -> None:
        queue = f" txqueuelen {_TUN_QUEUE_PACKETS}" if kind == "tun" else ""
        commands = [f"link set eth0 mtu {mtu_bytes}{queue} up", f"addr add {self.address(region)}/32 dev eth0"]
        if kind == "packet":
            commands += [
                f"neigh replace {GATEWAY_ADDRESS} lladdr {GATEWAY_MAC} dev eth0 nud permanent",
                f"route add default via {GATEWAY_ADDRESS} dev eth0 onlink",
            ]
        else:
            commands += ["route add default dev eth0"]
        text = "\n".join(commands) + "\n"
        ip = ["ip", "-batch", "-"]
        done = self.run(region, ip, input=text, text=True, capture_output=True, timeout=_START_TIMEOUT_S)
        if done.returncode != 0:
            raise HostError(f"the network of region {region} could not be set up; ip said: {done.stderr.strip()}")


def _with_path(keywords: dict[str, Any]) -> dict[str, Any]:
    return {**keywords, "env": {**(keywords.get("env") or os.environ), "PATH": search_path()}}


def _start_init(names: list[str], *, veth: bool, mtu_bytes: int) -> tuple[subprocess.Popen[bytes], _Init]:
    """Start the lab's first process and wait for its namespaces."""
    prefix = unshare_command()
    owner = os.pidfd_open(os.getpid())
    try:
        wanted = {"regions": names, "veth": veth, "mtu_bytes": mtu_bytes, "owner_fd": owner}
        # -I -S: nothing of the user's Python set-up may slow it down or get in.
        program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("labinit.py")), json.dumps(wanted)]
        outer = subprocess.Popen(
            [*prefix, *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=(owner,),
            env={**os.environ, "PATH": search_path()},
        )
    finally:
        os.close(owner)
    return outer, _read_answer(outer, in_user_namespace="--user" in prefix)


def _read_answer(outer: subprocess.Popen[bytes], *, in_user_namespace: bool) -> _Init:
    if not outer.stdout:
        raise HostError("the lab was started without a pipe")
    with outer.stdout as stdout:
        ready, _, _ = select.select([stdout], [], [], _START_TIMEOUT_S)
        line = stdout.readline() if ready else b""
    answer: dict[str, Any] = json.loads(line) if line else {"error": f"no answer within {_START_TIMEOUT_S:.0f} s"}
    if "error" in answer:
        outer.kill()
        outer.wait()
        raise HostError(f"the lab's namespaces could not be made: {answer['error']}")
    return _Init(pid=answer["pid"], regions=answer["regions"], in_user_namespace=in_user_namespace)
