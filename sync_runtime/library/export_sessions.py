"""Publisher and Subscriber of a process whose tensors a GPU worker works on: the same calls, answered by the worker.

Weights stand still in publish and activate: everything that this process has begun on the GPU is done before the worker
is asked. Knows nothing of how weights are coded; the worker runs the sessions of this library.
"""

from __future__ import annotations

import threading
import time

from sync_runtime.errors import LocalError, SyncError
from sync_runtime.library.engines import Engine
from sync_runtime.library.export_client import WorkerConnection
from sync_runtime.library.export_errors import WorkerLostError
from sync_runtime.library.export_messages import (
    PROTOCOLS,
    Activate,
    Activated,
    Close,
    Closed,
    Hello,
    Note,
    Publish,
    Published,
    Scrub,
    Scrubbed,
    State,
)
from sync_runtime.library.export_tensors import Exporter
from sync_runtime.library.settings import PublishOptions, SubscribeOptions
from sync_runtime.library.version import Version

ANSWER_TIMEOUT_S = 660.0
"""A little more than the worker's session waits for its sidecar."""
CLOSE_SLACK_S = 10.0
OPEN_SLACK_S = 5.0
_LOOK_S = 1.0


class ExportedPublishSession:
    """A publisher whose worker extracts and encodes. The snapshot is the worker's: a new worker makes a new one."""

    def __init__(self, engine: Engine, options: PublishOptions, worker_socket: str) -> None:
        self._options = options
        cast = None if options.wire_dtype is None else str(options.wire_dtype).removeprefix("torch.")
        hello = Hello(
            PROTOCOLS, "publisher", options.rank, options.world_size, cast, options.coder, options.host_snapshot, None,
            int(options.timeout_s * 1000), int(options.patience_s * 1000),
        )  # fmt: skip
        self._lock = threading.Lock()
        self._closed = False
        self._connection = WorkerConnection(worker_socket, hello, Exporter(engine), eager=False)

    @property
    def version(self) -> Version | None:
        """The last that is durable."""
        return self._connection.live

    def open(self, timeout_s: float) -> None:
        """Waits for a worker that has opened with its sidecar."""
        try:
            self._connection.ready(timeout_s, timeout_s + OPEN_SLACK_S)
        except BaseException:
            self._connection.close()
            raise

    def publish(self, step: int | None, label: str, patience_s: float) -> Version:
        """A version of the weights as they are."""
        with self._lock:
            if self._closed:
                raise LocalError("this publisher was closed: make a new one")
            wire = self._connection.ready(patience_s, self._options.timeout_s + OPEN_SLACK_S)
            return self._connection.ask(wire, lambda at: Publish(at, step, label), Published, ANSWER_TIMEOUT_S).version

    def close(self, drain_s: float) -> bool:
        """Hangs up after the last version is out, or after `drain_s`."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            try:
                wire, timeout_s = self._connection.open_wire, drain_s + CLOSE_SLACK_S
                return self._connection.ask(wire, lambda at: Close(at, int(drain_s * 1000)), Closed, timeout_s).drained
            except SyncError:
                return False  # the versions are durable; the sidecar delivers them
            finally:
                self._connection.close()


class ExportedSubscribeSession:
    """A subscriber whose worker receives, decodes and applies."""

    def __init__(self, engine: Engine, options: SubscribeOptions, worker_socket: str) -> None:
        hello = Hello(
            PROTOCOLS, "subscriber", options.rank, options.world_size, None, options.coder, False, options.auto_scrub,
            int(options.timeout_s * 1000), int(options.patience_s * 1000),
        )  # fmt: skip
        self._options = options
        self._closed = False
        self.connection = WorkerConnection(worker_socket, hello, Exporter(engine), eager=True)

    @property
    def staging(self) -> StateView:
        """What is staged, and whether live weights were found wrong."""
        return StateView(self.connection.state)

    @property
    def version(self) -> Version | None:
        """What the live weights are."""
        return self.connection.live

    @property
    def is_stale(self) -> bool:
        """Whether live weights are known not to be the newest, or nobody can tell."""
        return self.connection.state.stale

    def open(self, timeout_s: float) -> None:
        """Waits for a worker that has opened with its sidecar."""
        try:
            self.connection.ready(timeout_s, timeout_s + OPEN_SLACK_S)
        except BaseException:
            self.connection.close()
            raise

    def wait(self, seq: int | None, timeout_s: float | None) -> Version | None:
        """Waits until a version is staged that is newer than the live one, or is at least `seq`."""
        self._check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.connection.changed:
            while (found := _wanted(self.connection.state, seq)) is None:
                rest_s = _LOOK_S if deadline is None else deadline - time.monotonic()
                if rest_s <= 0 or self._closed:
                    return None
                self.connection.changed.wait(min(rest_s, _LOOK_S))
            return found

    def activate(self, patience_s: float) -> Version | None:
        """One switch or none. If the worker dies meanwhile, the next one's full digest tells which it was."""
        self._check()
        state = self.connection.state
        if state.staged is None and state.live is not None:
            return None  # weights that are of no version may be torn, and the worker mends them
        wire = self.connection.ready(patience_s, self._options.timeout_s + OPEN_SLACK_S)
        return self.connection.write(wire, Activate, Activated, ANSWER_TIMEOUT_S).version

    def scrub(self, timeout_s: float) -> bool:
        """Live weights against what they should be."""
        self._check()
        return self.connection.ask(self.connection.look(), Scrub, Scrubbed, timeout_s).passed

    def note(self, tokens_per_second: int | None) -> None:
        """Figures for the member's report; lost without a word where no worker is there."""
        self._check()
        try:
            self.connection.open_wire.send(Note(tokens_per_second))
        except WorkerLostError:
            return

    def close(self) -> None:
        """Hangs up; the weights stay as they are."""
        if self._closed:
            return
        self._closed = True
        with self.connection.changed:
            self.connection.changed.notify_all()
        try:
            self.connection.ask(self.connection.open_wire, lambda at: Close(at, 0), Closed, CLOSE_SLACK_S)
        except SyncError:
            return  # it is gone, and hangs up by itself
        finally:
            self.connection.close()

    def _check(self) -> None:
        if self._closed:
            raise LocalError("this subscriber was closed: make a new one")


class StateView:
    """What a worker said, under the names that the library's own session has."""

    def __init__(self, state: State) -> None:
        self.staged = state.staged
        self.is_poisoned = state.poisoned


def _wanted(state: State, seq: int | None) -> Version | None:
    if seq is None:
        return None if state.staged == state.live else state.staged
    return next((found for found in (state.staged, state.live) if found is not None and found.seq >= seq), None)
