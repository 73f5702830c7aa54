"""Sidecar processes for tests, forked from one process that has imported everything: they start in a tenth of a second.

Each is a process of its own, with its own log, and can be killed like any other.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import skew
from tests.support.deaths import VARIABLE, arm

_PRELOADED = "tests.support.preloaded"


class SidecarProcess:
    """One process of `syncgroup sidecar`."""

    def __init__(self, arguments: list[str], folder: Path, log: Path, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOADED])
        self._process: multiprocessing.process.BaseProcess = context.Process(
            target=_run, args=(arguments, str(folder), str(log), dict(environment)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """A signal; nothing where it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code, after so long at most; killed and an error beyond that."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._process.join(10)
            raise AssertionError(f"the sidecar {self.pid} did not end within {timeout_s:g} s")
        self._process.close()
        return code


def _run(arguments: list[str], folder: str, log: str, environment: dict[str, str]) -> None:
    """In the new process: as if it had been started by a shell."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.update(environment)
    if VARIABLE in environment:
        arm(environment[VARIABLE])
    if skew.VARIABLE in environment:
        skew.set_clock(float(environment[skew.VARIABLE]))
    from syncgroup.cli import main

    code = main(arguments)
    sys.stdout.flush()
    sys.exit(code)
