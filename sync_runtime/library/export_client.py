"""The GPU worker as the owner knows it: one background thread dials, answers what the worker asks, and dials again.

Threads that publish or activate ask through here and wait. The worker's questions (are these still your tensors?) are
answered by the background thread at any time. Knows tensors only through its exporter.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.library.export_errors import WorkerLostError, error_of
from sync_runtime.library.export_messages import (
    Beat,
    Failure,
    Hello,
    Message,
    Opened,
    State,
    Validate,
    Welcome,
)
from sync_runtime.library.export_tensors import Exporter
from sync_runtime.library.export_wire import Wire, check_peer
from sync_runtime.library.version import Version

REDIAL_S = 0.2
CONNECT_TIMEOUT_S = 5.0
SILENT_S = 30.0
"""A worker sends a sign of life every five seconds; one that sends none for so long hangs."""
NOTHING = State(None, None, stale=True, poisoned=False)
T = TypeVar("T")
_log = logging.getLogger(__name__)


def _lost(why: str) -> WorkerLostError:
    return WorkerLostError(f"the GPU worker went away ({why}); it is dialled again in the background: try again soon")


class WorkerConnection:
    """A worker that is there, or is being dialled. `eager`: tensors are handed over as soon as it is there."""

    def __init__(self, path: str, hello: Hello, exporter: Exporter, *, eager: bool) -> None:
        self._path, self._hello, self._exporter, self._eager = path, hello, exporter, eager
        self.changed = threading.Condition()
        self.state = NOTHING
        """What the worker last said; of a lost one nothing is staged."""
        self._wire: Wire | None = None
        self._is_open = False
        self._opening_id: int | None = None
        self._writing: Wire | None = None
        """The worker that was asked to write and has not answered."""
        self._slow: str | None = None
        """The request that was reported as one that does not end."""
        self._refusal: SyncError | None = None
        self._stopping = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="syncgroup-export", daemon=True)
        self._thread.start()

    def ready(self, patience_s: float, open_timeout_s: float) -> Wire:
        """The worker, open, with the tensors as they are now. Weights must stand still.

        Waits at most `patience_s` for a worker and `open_timeout_s` until it has opened; raises WorkerLostError, or
        what it refused with.
        """
        self._check_process()
        self._exporter.settle()
        deadline = time.monotonic() + patience_s
        wire = self._wait(lambda: self._wire, patience_s)
        while not self._is_open:
            self._begin_opening(wire)
            self._wait(partial(self._is_decided, wire), open_timeout_s)
            with self.changed:
                if not self._is_open and self._refusal is not None:
                    raise self._refusal
            wire = self._wait(lambda: self._wire, max(0.0, deadline - time.monotonic()))  # it died: the next one
        if self._exporter.changed():
            wire.send(self._exporter.export(wire.new_id()))
        return wire

    @property
    def is_open(self) -> bool:
        """Whether a worker is there that knows the weights."""
        return self._is_open

    @property
    def open_wire(self) -> Wire:
        """The worker, open; raises WorkerLostError at once. For requests that do not need weights to stand still."""
        self._check_process()
        with self.changed:
            if self._wire is None or not self._is_open:
                raise _lost("it has not come back yet")
            return self._wire

    @property
    def live(self) -> Version | None:
        """What the weights are; None while they are being written, and when nobody knows how far that came."""
        return None if self._writing is not None else self.state.live

    def write(self, wire: Wire, request: Callable[[int], Message], answer: type[T], timeout_s: float) -> T:
        """Asks for something that writes the weights. If the worker is lost over it, they are of no version."""
        with self.changed:
            if self._wire is not wire:
                raise _lost("before it was asked to write")
            self._writing = wire
        try:
            found = self.ask(wire, request, answer, timeout_s)
        except SyncError:
            if not wire.has_ended:  # else nobody knows how far it came; `_detach` draws the conclusion
                self._written()
            raise
        self._written()
        return found

    def _written(self) -> None:
        with self.changed:
            self._writing = None

    def look(self) -> Wire:
        """The worker, open, for a request that reads weights while other threads may read them too."""
        wire = self.open_wire
        self._exporter.settle(all_streams=False)
        return wire

    def ask(self, wire: Wire, request: Callable[[int], Message], answer: type[T], timeout_s: float) -> T:
        """Asks and waits; a worker that gives no answer is hung up on, since nobody knows what it did."""
        request_id = wire.new_id()
        try:
            return wire.ask(request(request_id), request_id, answer, timeout_s)
        except WorkerLostError as error:
            wire.end(error)
            raise

    def close(self) -> None:
        """Hangs up and ends the thread; in a forked child the connection is the parent's."""
        if os.getpid() != self._pid:
            return
        self._stopping.set()
        wire = self._wire
        if wire is not None:
            wire.end(_lost("it was closed here"))
        if self._thread is not threading.current_thread():
            self._thread.join(CONNECT_TIMEOUT_S)

    def _wait(self, found: Callable[[], T | None], timeout_s: float) -> T:
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while True:
                value = found()
                if value is not None:
                    return value
                if self._refusal is not None and not self._refusal.retry_helps:
                    raise self._refusal
                if self._stopping.is_set() or not self._thread.is_alive():
                    raise LocalError("this was closed, or its thread failed: open a new one")
                rest_s = deadline - time.monotonic()
                if rest_s <= 0:
                    raise self._refusal or _lost(
                        f"nobody answered at {self._path} for {timeout_s:.3g} s: a sidecar with gpuAccess CudaIpc runs "
                        "it, and its status says why it cannot"
                    )
                self.changed.wait(rest_s)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise LocalError("this was opened before a fork and belongs to the parent process: open a new one")

    def _is_decided(self, wire: Wire) -> bool | None:
        """Whether an opening came to an end; the form that `_wait` needs."""
        return True if self._is_open or self._refusal is not None or self._wire is not wire else None

    def _begin_opening(self, wire: Wire) -> None:
        """Hands the tensors over, once a connection; the answer comes to the background thread."""
        with self.changed:
            if self._opening_id is not None or wire is not self._wire:
                return
            self._opening_id = wire.new_id()
            self._refusal = None
            request_id = self._opening_id
        try:
            self._exporter.settle()  # the worker reads all weights now
            wire.send(self._exporter.export(request_id))
        except SyncError as error:
            wire.end(error)  # a connection opens once: the next attempt needs a new one
            raise

    # --- the background thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wire = self._dial()
            except SyncError as error:
                self._refuse(None if isinstance(error, WorkerLostError) else error)
                self._stopping.wait(REDIAL_S)
                continue
            self._attach(wire)
            ended: SyncError = _lost("it was closed here")
            try:
                if self._eager:
                    self._begin_opening(wire)
                ended = wire.run(partial(self._handle, wire), SILENT_S)
            except SyncError as error:
                ended = error
            finally:
                self._detach(wire, ended)
            self._stopping.wait(REDIAL_S)

    def _dial(self) -> Wire:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.connect(self._path)
            check_peer(connection)
            wire = Wire(connection, _lost)
            with suppress(WorkerLostError):  # a worker that refuses this user hangs up before HELLO, and says why
                wire.send(self._hello)
            if not isinstance(wire.first(CONNECT_TIMEOUT_S), Welcome):
                raise LocalProtocolError("the GPU worker did not answer with WELCOME")
        except OSError as error:
            connection.close()
            raise _lost(error.strerror or str(error)) from error
        except SyncError:
            connection.close()
            raise
        return wire

    def _handle(self, wire: Wire, message: Message) -> None:
        if isinstance(message, Validate):
            try:
                wire.send(self._exporter.validate(message.id, message.generation))
            except WorkerLostError:
                raise
            except SyncError as error:
                wire.fail(message.id, error)
        elif isinstance(message, State):
            with self.changed:
                self.state = message
                self.changed.notify_all()
        elif isinstance(message, Beat):
            self._heed(message)
        elif isinstance(message, Opened | Failure) and message.id == self._opening_id:
            self._opened(wire, message)
        elif not wire.resolve(message) and not isinstance(message, Failure):
            raise LocalProtocolError(f"the GPU worker sent {type(message).__name__} out of turn")

    def _heed(self, beat: Beat) -> None:
        """Reports a request that does not end, once; its worker lives and is not hung up on."""
        if beat.request is not None and beat.request != self._slow:
            _log.warning(
                "the GPU worker lives, but %s has been under way for %.0f s, far longer than ever: its GPU may hang",
                beat.request.upper(), beat.under_way_ms / 1000,
            )  # fmt: skip
        self._slow = beat.request

    def _opened(self, wire: Wire, message: Opened | Failure) -> None:
        if isinstance(message, Opened):
            with self.changed:
                self._is_open, self._refusal = True, None
                self.changed.notify_all()
            return
        error = error_of(message.kind, message.message, retry=message.retry)
        self._refuse(error)
        wire.end(error)

    def _refuse(self, error: SyncError | None) -> None:
        with self.changed:
            self._refusal = error
            self.changed.notify_all()

    def _attach(self, wire: Wire) -> None:
        self._exporter.forget()
        with self.changed:
            self._wire, self._is_open, self._opening_id, self._refusal = wire, False, None, None
            self.changed.notify_all()

    def _detach(self, wire: Wire, error: SyncError) -> None:
        wire.end(error)
        with self.changed:
            self._wire, self._is_open = None, False
            if not isinstance(error, WorkerLostError):
                self._refusal = error
            live = None if self._writing is wire else self.state.live
            self.state, self._writing = State(live, None, stale=True, poisoned=self.state.poisoned), None
            self.changed.notify_all()
