"""Child processes that cannot outlive us, each with a log file. Knows nothing of Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.errors import ClusterError, sentence_for

_PR_SET_PDEATHSIG = 1
_PAUSING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGCONT)
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
        self._log_start = 0
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
        try:
            with self.log.open("ab") as log:
                self._log_start = log.tell()
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
            raise ClusterError(f"{self.name} could not be started: {sentence_for(error)}") from error

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end; a kind signal is followed by SIGKILL after the grace.

        A signal that pauses or resumes is only sent: nothing ends.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        if number not in signal.valid_signals():
            raise ClusterError(f"There is no signal {number}; 9 kills, 15 asks, 19 pauses and 18 resumes.")
        if number in _PAUSING:
            _signal(_program_of(process.pid), number)
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

    def must_run(self) -> None:
        """Raise, with its log's last words, if it has ended although nobody asked for that."""
        if self.exit_code is None or self.stopped_on_purpose:
            return
        raise ClusterError(f"{self.name} ended with {self.exit_code}: {self.last_words()} (log: {self.log}).")

    def last_words(self) -> str:
        """What its log says of the end, for an error message; what an earlier start wrote there does not count."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - 20000))
            return explain(log.read().decode(errors="replace").strip())


def explain(log: str) -> str:
    """Why a program ended, by the end of its log: what to do where that is known, its last words otherwise."""
    if "address already in use" in log:
        return "another program took its port; run the same command again"
    if "no space left on device" in log:
        return "the disk is full; free 1 GB per region, or choose another folder with --dir"
    return " | ".join(line.strip()[:300] for line in log.splitlines()[-3:])


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
