"""A sidecar that is asked about work: one connection, one request at a time, dialled when it is needed.

No background thread: whoever asks also receives. A request that can be repeated is, when the sidecar went away in
between; the others tell their caller. Knows nothing of weights.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, TypeVar, cast

from sync_runtime.errors import LocalError, LocalProtocolError, SidecarLostError, SyncError
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.local.channel import Channel, connect
from sync_runtime.local.faults import to_error
from sync_runtime.local.messages import PROTOCOLS, Error, Hello, Kind
from sync_runtime.local.work_messages import WorkMessage

REDIAL_S: Final = 0.2
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_SLACK_S: Final = 120.0
"""What an answer may take beyond the wait that was asked for: a sync of the disk, a large state."""
FOREVER_S: Final = 1e9
_Answer = TypeVar("_Answer", bound=WorkMessage)


class WorkClient:
    """One user of work leases at its sidecar."""

    def __init__(self, settings: LibrarySettings, kind: Kind) -> None:
        self._path = settings.socket
        self._hello = Hello(PROTOCOLS, kind, 0, 1, os.getpid(), "sidecar", settings.release)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._closed = False
        self._is_waiting = False
        """Whether a request is out and its answer is not in."""
        self.connections = 0
        """How often a sidecar was dialled with success: what belongs to an earlier one is void."""

    def open(self, timeout_s: float) -> None:
        """Waits for a sidecar; raises SidecarLostError, or what it refused with."""
        with self._lock:
            self._dial(time.monotonic() + timeout_s)

    def ask(
        self, request: WorkMessage, answer: type[_Answer], patience_s: float, *, wait_s: float = 0.0, again: bool = True
    ) -> _Answer:
        """Sends a request and waits for its answer; raises what the sidecar says, or SidecarLostError.

        `again`: it may be repeated while the sidecar is away, for `patience_s`.
        """
        deadline_s = time.monotonic() + patience_s
        with self._lock:
            while True:
                channel = self._dial(deadline_s)
                try:
                    return self._exchange(channel, request, answer, wait_s + ANSWER_SLACK_S)
                except SidecarLostError:
                    self._hang_up()
                    if not again or time.monotonic() >= deadline_s:
                        raise
                finally:
                    if self._is_waiting:  # interrupted: its answer may still come, and be taken for another one
                        self._hang_up()

    def close(self) -> None:
        """Hangs up."""
        self._closed = True
        with self._lock:
            self._hang_up()

    def _exchange(self, channel: Channel, request: WorkMessage, answer: type[_Answer], timeout_s: float) -> _Answer:
        self._is_waiting = True
        channel.send(request)
        end_s = time.monotonic() + timeout_s
        while (rest_s := end_s - time.monotonic()) > 0:
            for message in channel.receive(rest_s):
                self._is_waiting = False
                if isinstance(message, Error):
                    raise to_error(message)
                if not isinstance(message, answer):
                    raise LocalProtocolError(f"the sidecar answered with {type(message).__name__}")
                return cast("_Answer", message)
        raise SidecarLostError(f"the sidecar did not answer within {timeout_s:.3g} s: try again")

    def _dial(self, deadline_s: float) -> Channel:
        """The connection, made where there is none; the caller holds the lock."""
        while self._channel is None:
            if self._closed:
                raise LocalError("this was closed: make a new one")
            if os.getpid() != self._pid:
                raise LocalError("this was opened before a fork and belongs to the parent process: open a new one")
            try:
                self._channel = connect(self._path, self._hello, CONNECT_TIMEOUT_S)
                self.connections += 1
            except SyncError as error:
                if not error.retry_helps or time.monotonic() + REDIAL_S >= deadline_s:
                    raise
                time.sleep(REDIAL_S)
        return self._channel

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel, self._is_waiting = None, False
