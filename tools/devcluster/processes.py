"""Child processes that cannot outlive us, each with a log file. Knows nothing of Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.errors import ClusterError

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> Callable[[], None]:
    """For `preexec_fn`: the kernel kills the child the moment `parent` is gone, however it went."""

    def arm() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


class Child:
    """One long-running program. Start, kill and restart it; read how it ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        stop_grace_s: float = 1.0,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._environment = dict(environment) if environment is not None else None
        self._stop_grace_s = stop_grace_s
        self._process: asyncio.subprocess.Process | None = None
        self.stopped_on_purpose = False

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs or before the first start."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> None:
        """Start it unless it runs."""
        if self.pid is not None:
            return
        self.stopped_on_purpose = False
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                    preexec_fn=die_with_parent(os.getpid()),
                )
            except OSError as error:
                raise ClusterError(f"{self.name} could not be started: {error}.") from error

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end; a kind signal is followed by SIGKILL after the grace."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.stopped_on_purpose = True
        _signal(_program_of(process.pid), number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_grace_s):
                await process.wait()
        if process.returncode is None:
            _signal(_program_of(process.pid), signal.SIGKILL)
            await process.wait()

    async def wait(self) -> int:
        """Wait for its end."""
        if self._process is None:
            raise ClusterError(f"{self.name} was never started.")
        return await self._process.wait()

    def last_words(self, count: int = 3) -> str:
        """The end of its log, for an error message."""
        if not self.log.exists():
            return ""
        lines = self.log.read_bytes()[-20000:].decode(errors="replace").strip().splitlines()
        return " | ".join(line.strip()[:300] for line in lines[-count:])


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _program_of(pid: int) -> int:
    """The process that really runs the program: `nsenter` and `unshare` wait for theirs as a parent."""
    child = only_child_of(pid) if program_name(pid) in ("nsenter", "unshare") else None
    return pid if child is None else child


def program_name(pid: int) -> str | None:
    """What a process is called, None once it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def only_child_of(pid: int) -> int | None:
    """The single child of a waiting `unshare`, once it exists."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None
