"""The sidecar as the library knows it: one background thread dials, receives, and dials again when it was lost.

Threads that publish or activate send by themselves and wait here for answers and for room in the ring. What the sidecar
asks for is worked on in the background thread, which goes on receiving in between. Knows nothing of weights.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from sync_runtime.errors import LayoutError, LocalError, SidecarLostError, SyncError
from sync_runtime.library.replies import LATE, Replies, T
from sync_runtime.local.channel import Channel, connect
from sync_runtime.local.faults import to_error
from sync_runtime.local.link import LINK_REQUEST
from sync_runtime.local.messages import Cancel, Credit, End, Error, Hello, Message

REDIAL_S = 0.2
MAX_REDIAL_S = 5.0
"""Between attempts that a sidecar answers, but that do not lead to OPENED."""
CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 0.5
_SOON_S = 0.01
_AWAY = "the sidecar is away; it is dialled again in the background: try again when it is back"


class Worker(Protocol):
    """What the background thread does for its owner; every call comes from that thread."""

    def connected(self) -> None:
        """A sidecar answers (again). May send and wait; a SyncError ends the connection, and it is dialled anew."""

    def work(self, message: Message) -> bool:
        """A message that is no answer. False: not now, ask again soon."""

    def idle(self) -> None:
        """Everything that came was worked on."""

    def lost(self) -> None:
        """The sidecar is gone."""


class Connection:
    """A sidecar that is there, or is being dialled."""

    def __init__(self, path: str, hello: Hello, worker: Worker) -> None:
        self._path, self._hello, self._worker = path, hello, worker
        self.replies = Replies()
        self._channel: Channel | None = None
        self._open = False
        self._was_open = False
        """Whether OPENED has come since this connection was made."""
        self._stopping = threading.Event()
        self._refusal: SyncError | None = None
        self._farewell: SyncError | None = None
        """What the sidecar said when it last hung up."""
        self._misfit: LayoutError | None = None
        """Why the weights are of no use to the group, or the group's to them; until OPENED comes."""
        self._queue: deque[Message] = deque()
        self._pid = os.getpid()
        self.streaming = threading.Lock()
        """Held by whoever sends a stream."""
        self._thread = threading.Thread(target=self._run, name="syncgroup-library", daemon=True)

    def start(self) -> None:
        """Begins to dial."""
        self._thread.start()

    @property
    def changed(self) -> threading.Condition:
        """Notified whenever something changes."""
        return self.replies.changed

    @property
    def in_background(self) -> bool:
        """Whether the caller is the background thread."""
        return threading.current_thread() is self._thread

    @property
    def is_connected(self) -> bool:
        """Whether a sidecar answers."""
        return self._channel is not None

    @property
    def is_open(self) -> bool:
        """Whether OPENED has come over the present connection."""
        return self._open

    def set_open(self, channel: Channel) -> None:
        """OPENED has come over a connection; does nothing if that one is lost already."""
        with self.changed:
            self._open = self._was_open = self._open or channel is self._channel
            self._misfit = None
            self.changed.notify_all()

    def check_process(self) -> None:
        """Raises LocalError in a forked child."""
        if os.getpid() != self._pid:
            raise LocalError(
                "this was opened before a fork and belongs to the parent process: open a new one in the child, or use "
                "it in the parent alone"
            )

    def check_thread(self) -> None:
        """Raises LocalError where nobody receives any more."""
        if not self._thread.is_alive():
            raise LocalError("the connection to the sidecar was closed, or its thread failed: open a new one")

    def check_fit(self) -> None:
        """Raises LayoutError where this engine was turned away since its tensors are not the trainer's."""
        if self._misfit is not None:
            raise LayoutError(str(self._misfit))

    @property
    def channel(self) -> Channel:
        """The present connection, open or not; raises SidecarLostError."""
        channel = self._channel
        if channel is None:
            raise SidecarLostError(_AWAY)
        return channel

    @property
    def open_channel(self) -> Channel:
        """The present connection, which is open; raises SidecarLostError."""
        with self.changed:
            if self._channel is None or not self._open:
                raise SidecarLostError(_AWAY)
            return self._channel

    def wait_connected(self, timeout_s: float) -> None:
        """Waits until a sidecar answers; raises SidecarLostError, or what it refused with."""
        self.wait_until(lambda: self._channel is not None, timeout_s)

    def wait_until(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Waits for something that `changed` tells of; raises SidecarLostError, or what the sidecar refused with."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not until():
                rest_s = deadline - time.monotonic()
                if self._refusal is not None and not self._refusal.retry_helps:
                    raise self._refusal
                self.check_thread()
                if rest_s <= 0:
                    raise self._refusal or SidecarLostError(
                        f"no sidecar was there for {timeout_s:.3g} s (socket {self._path}); it is dialled on"
                    )
                self.changed.wait(rest_s)

    def farewell(self, channel: Channel, timeout_s: float) -> SyncError | None:
        """Why the sidecar hung up on a connection, if it said so; waits until the background thread has heard it."""
        with self.changed:
            self.changed.wait_for(lambda: self._channel is not channel, timeout_s)
            return self._farewell

    def ask(self, channel: Channel, request: Message, answer: type[T], timeout_s: float) -> T:
        """Sends a request without a stream and waits for its answer."""
        self.replies.expect(type(request))
        channel.send(request)
        return self.answer(channel, request, answer, timeout_s)

    def answer(self, channel: Channel, request: Message, answer: type[T], timeout_s: float) -> T:
        """The answer to a request that was sent. The background thread receives while it waits.

        Whoever gives up waiting does not know what the sidecar did: it is hung up on, and opening again tells.
        """
        is_known = False
        try:
            if self.in_background:
                deadline = time.monotonic() + timeout_s
                while not self.replies.is_answered(type(request)) and time.monotonic() < deadline:
                    self.pump(min(_IDLE_S, timeout_s))
                timeout_s = 0.0
            found = self.replies.take(answer, timeout_s)
            is_known = True
        except SidecarLostError:
            raise
        except SyncError:
            is_known = True
            raise
        finally:
            if not is_known:
                self._give_up(channel)
        return found

    def stream(
        self, channel: Channel, begin: Message, chunks: Iterable[memoryview], finish: Callable[[], End] = End
    ) -> None:
        """Sends a message with a stream. The caller holds `streaming`.

        An error that comes in between is raised at once. Whatever ends it early, the sidecar hears CANCEL.
        """
        self.replies.expect(type(begin))
        channel.send(begin)
        complete = False
        try:
            for chunk in chunks:
                self._write(channel, chunk, type(begin))
            complete = True
        finally:
            if not complete:
                _send_quietly(channel, Cancel("its sender gave up"))
        channel.send(finish())

    def pump(self, timeout_s: float = 0.0) -> None:
        """Background thread: receives, hands out answers, and queues what is to be worked on."""
        channel = self.channel
        for message in channel.receive(timeout_s):
            if isinstance(message, Credit):
                channel.credited(message)
                with self.changed:
                    self.changed.notify_all()
            elif isinstance(message, Error) and message.request == LINK_REQUEST:
                raise to_error(message)
            elif not self.replies.arrived(message) and not isinstance(message, LATE):
                self._queue.append(message)

    def close(self) -> None:
        """Hangs up and ends the thread."""
        self._stopping.set()
        channel = self._channel
        if channel is not None:
            channel.close()
        if self._thread.is_alive() and not self.in_background:
            self._thread.join(CONNECT_TIMEOUT_S)

    def _write(self, channel: Channel, chunk: memoryview, request: type[Message]) -> None:
        rest = chunk
        while len(rest) > 0:
            error = self.replies.error_of(request)
            if error is not None:
                raise error
            taken = channel.put(rest)
            rest = rest[taken:]
            if taken:
                continue
            if self.in_background:
                self.pump(_IDLE_S)
            else:
                with self.changed:
                    self.changed.wait(0.05)

    def _give_up(self, channel: Channel) -> None:
        """Hangs up; whoever sends next waits for the next connection instead of meeting this one."""
        with self.changed:
            self._open = self._open and self._channel is not channel
        channel.close()

    def _run(self) -> None:
        pause_s = REDIAL_S
        while not self._stopping.is_set():
            try:
                channel = connect(self._path, self._hello, CONNECT_TIMEOUT_S)
            except SyncError as error:
                self._note(error)
                self._stopping.wait(REDIAL_S)
                continue
            self._attach(channel)
            try:
                self._serve()
            except SyncError as error:
                # What is refused over and over may cost a copy of the whole state each time.
                pause_s = REDIAL_S if self._was_open else min(2 * pause_s, MAX_REDIAL_S)
                self._detach(channel, error)
                self._stopping.wait(pause_s)
            finally:
                self._detach(channel, SidecarLostError("the connection to the sidecar was closed"))

    def _serve(self) -> None:
        self._worker.connected()
        while not self._stopping.is_set():
            postponed = self._work_off()
            if not postponed:
                self._worker.idle()
            self.pump(_SOON_S if postponed or self._queue else _IDLE_S)

    def _work_off(self) -> bool:
        """Works on what has come, in order; True where something must wait."""
        while self._queue:
            if not self._worker.work(self._queue[0]):
                return True
            self._queue.popleft()
        return False

    def _note(self, error: SyncError) -> None:
        with self.changed:
            self._refusal = None if isinstance(error, SidecarLostError) else error
            self.changed.notify_all()

    def _attach(self, channel: Channel) -> None:
        with self.changed:
            self._queue.clear()
            self._refusal = None
            self._channel, self._was_open = channel, False
            self.changed.notify_all()

    def _detach(self, channel: Channel, error: SyncError) -> None:
        if self._channel is not channel:
            return
        with self.changed:
            self._channel, self._open = None, False
            self._refusal = self._farewell = None if isinstance(error, SidecarLostError) else error
            self._misfit = error if isinstance(error, LayoutError) else self._misfit
            self.changed.notify_all()
        self.replies.fail_all(SidecarLostError(f"the sidecar went away: {error}"))
        channel.close()
        self._worker.lost()


def _send_quietly(channel: Channel, message: Message) -> None:
    try:
        channel.send(message)
    except SidecarLostError:
        return
