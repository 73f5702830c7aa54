"""The emulator as a process of ours: configured at start, gone when we are.

Knows how to start and stop the program; what regions are made of is the caller's business (`lab` makes some).
The process watches a pidfd of its owner, so it ends even when the owner is killed, whichever thread started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tools.linkemu.control import Controller
from tools.linkemu.errors import EmulatorError
from tools.linkemu.native import emulator_program
from tools.linkemu.shape import LinkShape

GATEWAY_ADDRESS = "169.254.1.1"
"""What regions route to; it exists nowhere (regions need a permanent neighbour entry, or ARP, which is answered)."""
GATEWAY_MAC = "02:53:47:00:00:01"

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPort:
    """Where one region is attached.

    `packet`: `interface` is our end of a veth. Give `netns` (a path to the region's network namespace) and the emulator
    switches off the offloads of the region's end `peer` and reads its address; otherwise run `offload_command()` there.
    `tun`: `interface` is the name of a TUN device that the emulator makes inside `netns`.
    `null`: nothing; packets end there.
    """

    name: str
    interface: str = ""
    prefixes: tuple[str, ...] = ()
    mac: str | None = None
    kind: Literal["packet", "tun", "null"] = "packet"
    netns: str | None = None
    peer: str = "eth0"

    def line(self) -> str:
        """The emulator's `port` command."""
        words = [f"port {self.name} kind={self.kind} peer={self.peer}"]
        words += [f"interface={self.interface}"] if self.interface else []
        words += [f"netns={self.netns}"] if self.netns else []
        words += [f"mac={self.mac}"] if self.mac else []
        words += [f"prefix={prefix}" for prefix in self.prefixes]
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorOptions:
    """What is fixed for the life of an emulator."""

    seed: int = 1
    """Loss and jitter are a function of it and of the packets' order."""
    mtu_bytes: int = 1500
    pool_packets: int = 131_072
    """Packets queued and in flight on all links together; memory is used only as they come."""
    ring_frames: int = 8192
    """Frames a region may send before the emulator looks: room for a TCP burst, 2 kB each."""
    socket_path: Path | None = None
    """Where other processes may connect (`Controller.connect`)."""

    def arguments(self) -> list[str]:
        """Command-line arguments of the program."""
        numbers = {"seed": self.seed, "mtu": self.mtu_bytes, "pool": self.pool_packets, "ring": self.ring_frames}
        arguments = [f"--{name}={value}" for name, value in numbers.items()]
        return [*arguments, f"--socket={self.socket_path}"] if self.socket_path else arguments


class Emulator(Controller):
    """A running emulator that belongs to this process; a context manager that stops it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        super().__init__(connection)
        self._process = process
        self._prioritised = False

    @classmethod
    def start(
        cls,
        ports: Sequence[RegionPort],
        *,
        shapes: Mapping[tuple[str, str], LinkShape] | None = None,
        options: EmulatorOptions | None = None,
        enter: Sequence[str] = (),
    ) -> Self:
        """Start in the current network namespace, or where the command prefix `enter` (nsenter ...) leads."""
        lines = [port.line() for port in ports]
        for (source, destination), shape in (shapes or {}).items():
            settings = " ".join(f"{key}={value}" for key, value in shape.settings().items())
            lines.append(f"set {source} {destination} {settings}")
        if any("\n" in line for line in lines):
            raise EmulatorError("names, paths and addresses of a port contain no line breaks")
        command = [*enter, str(emulator_program()), *(options or EmulatorOptions()).arguments()]
        ours, theirs = socket.socketpair()
        with theirs, _ties(bool(enter)) as (tie_arguments, tie_fds):
            command += [f"--control-fd={theirs.fileno()}", *tie_arguments]
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(theirs.fileno(), *tie_fds),
                )
            except OSError as error:
                ours.close()
                raise EmulatorError(f"cannot run {command[0]}: {error.strerror}") from error
        emulator = cls(process, ours)
        emulator._configure("\n".join(lines) + "\n")
        return emulator

    @property
    def pid(self) -> int:
        """The process, or what `enter` made of it."""
        return self._process.pid

    @property
    def prioritised(self) -> bool:
        """Whether it goes before ordinary programs; if not, programs beside it had better be nice."""
        return self._prioritised

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the emulator; it may be gone already."""
        with contextlib.suppress(EmulatorError):
            self.request("quit")
        self.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _configure(self, configuration: str) -> None:
        """Hand over the configuration and wait until the ports are open."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if not stdin or not stdout:
            raise EmulatorError("the emulator was started without pipes")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(configuration.encode())
            stdin.close()
        self._process.stdin = None
        ready, _, _ = select.select([stdout], [], [], _START_TIMEOUT_S)
        answer = stdout.readline() if ready else b""
        if answer.startswith(b'{"ok":true'):
            if json.loads(answer)["pid"] == self.pid:  # otherwise `enter` led into another pid namespace
                self._prioritised = _prioritise(self.pid)
            return
        self._process.kill()
        complaint = b""
        with contextlib.suppress(subprocess.TimeoutExpired):  # what `enter` started may hold the pipe
            complaint = self._process.communicate(timeout=_STOP_TIMEOUT_S)[1]
        self.stop()
        sentence = complaint.decode(errors="replace").strip()
        raise EmulatorError(sentence or f"the emulator did not start within {_START_TIMEOUT_S:.0f} s: try again")


def offload_command(interface: str = "eth0") -> list[str]:
    """What to run inside a region whose namespace the emulator may not enter."""
    return [str(emulator_program()), "offload", interface]


def _prioritise(pid: int) -> bool:
    """Let packets go before programs where we may: an emulator that waits for a core falsifies what it should measure.

    Ordinary users may not; there the emulator has only the short time slices that it asks for itself.
    """
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _ties(wrapped: bool) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Arguments that make the emulator end with us, and descriptors it must inherit for them.

    The parent-death signal is tied to the *thread* that starts a process, so only the main thread may use it, and only
    where no program stands between; the pidfd has neither limit but needs Linux 5.3.
    """
    arguments: list[str] = []
    if not wrapped and threading.current_thread() is threading.main_thread():
        arguments.append(f"--parent={os.getpid()}")
    try:
        owner = os.pidfd_open(os.getpid())
    except OSError:
        yield arguments, ()
        return
    try:
        yield [*arguments, f"--owner-fd={owner}"], (owner,)
    finally:
        os.close(owner)
