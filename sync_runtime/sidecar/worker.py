"""The GPU worker as the sidecar's child: the one place that starts it, hears it, and ends it.

When and whether to start it again is judged elsewhere (`worker_rules`). The sidecar runs no torch; it knows of the
worker its exit status, what it writes, and the line that says that owners can dial. Nothing in the sidecar waits for
it: without a worker the user's process has no session here, and everybody else goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from sync_runtime.local.supervised import LISTENING, SUPERVISED
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.worker_rules import STARTING, Ending, Trouble, Verdict, judge

END_S: Final = 2.0
"""What a worker gets to end by itself when the sidecar does; a pod has little time."""
LAST_WORDS_S: Final = 1.0
MAX_LINE_BYTES: Final = 1000
_READ_BYTES: Final = 4096
_log = logging.getLogger(__name__)


class GpuWorker:
    """One worker at a time, for as long as `run` runs."""

    def __init__(self, settings: SidecarSettings, changed: Callable[[], None]) -> None:
        """`changed` is called whenever it came to listen, or ended."""
        self._command = (
            *settings.worker_command, SUPERVISED,
            "--socket", str(settings.worker_socket), "--sidecar", str(settings.socket_path),
        )  # fmt: skip
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._listening_at: float | None = None
        self._verdict: Verdict | None = None
        self._last_words = ""
        self.starts = 0

    @property
    def trouble(self) -> Trouble | None:
        """Why owners cannot dial it; None: they can."""
        if self._listening_at is not None:
            return None
        if self._verdict is not None:
            return self._verdict.trouble
        return STARTING, "the GPU worker starts: it loads torch"

    def status(self) -> Mapping[str, object]:
        """For the control API."""
        process, verdict, trouble = self._process, self._verdict, self.trouble
        return {
            "pid": None if process is None else process.pid,
            "listening": self._listening_at is not None,
            "starts": self.starts,
            "lastEnd": None if verdict is None else ": ".join(verdict.trouble),
            "trouble": None if trouble is None else {"reason": trouble[0], "message": trouble[1]},
        }

    async def run(self) -> None:
        """Starts it, and again when it ended, until cancelled."""
        while True:
            ending = await self._live()
            self._verdict = verdict = judge(ending, 0 if self._verdict is None else self._verdict.failures)
            self._changed()
            again = "never" if verdict.again_after_s is None else f"in {verdict.again_after_s:g} s"
            _log.error("%s (again: %s)", verdict.trouble[1], again)
            if verdict.again_after_s is None:
                return
            await asyncio.sleep(verdict.again_after_s)

    async def _live(self) -> Ending:
        """One worker from start to end; ends it where this is cancelled."""
        self._last_words = ""
        self.starts += 1
        pipe = asyncio.subprocess.PIPE
        try:
            # A session of its own: Ctrl-C in a terminal is for the sidecar, which ends the worker in its turn.
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            return Ending(None, None, f"{self._command[0]}: {error.strerror}")
        self._process = process
        _log.info("the GPU worker starts, process %d", process.pid)
        hearing = asyncio.gather(_lines(process.stdout, self._told), _lines(process.stderr, self._wrote))
        try:
            status = await process.wait()
        finally:
            await _end(process)
            with contextlib.suppress(TimeoutError):  # a process that it left behind may hold its pipes
                async with asyncio.timeout(LAST_WORDS_S):
                    await hearing
            listening_at, self._listening_at, self._process = self._listening_at, None, None
        return Ending(status, None if listening_at is None else time.monotonic() - listening_at, self._last_words)

    def _told(self, line: str) -> None:
        if line == LISTENING and self._listening_at is None:
            self._listening_at = time.monotonic()
            _log.info("the GPU worker listens")
            self._changed()

    def _wrote(self, line: str) -> None:
        if line.strip():
            self._last_words = line.strip()
            _log.info("gpu worker: %s", line)


async def _lines(stream: asyncio.StreamReader | None, heard: Callable[[str], None]) -> None:
    """Every line until the end; a line without end is cut, since nobody may make the sidecar hold more."""
    rest = b""
    while stream is not None and (data := await stream.read(_READ_BYTES)):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            heard(line[:MAX_LINE_BYTES].decode(errors="replace").rstrip())
        rest = rest[:MAX_LINE_BYTES]
    if rest:
        heard(rest.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):  # it was faster
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
