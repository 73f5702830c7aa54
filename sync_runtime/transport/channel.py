"""A control connection after its handshake: one thread with a selector reads and writes it, both ways.

Frames out from any thread, messages in through a handler, heartbeats, silence, slow frames, and an orderly end. A TLS
socket of Python must not be read and written by two threads at once, hence the one thread; whoever else needs it posts
a call. Knows nothing of transfers.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from sync_runtime.errors import FrameError, RefusedError, SyncError, TransportError
from sync_runtime.transport.messages import Heartbeat, Message, Refuse, decode, encode
from sync_runtime.transport.wire import HEADER_BYTES, FrameReader, FrameType

SILENT_HEARTBEATS: Final = 6
"""A path may be away for three seconds and its retransmissions come a second later: that is no reason to part."""
TICK_S: Final = 0.25
MAX_WAITING_FRAMES: Final = 1024
FRAME_TIMEOUT_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 125_000
"""A large frame gets the time that it takes at this rate besides."""
_CHUNK_BYTES: Final = 64 << 10
_FLUSH_S: Final = 1.0
_LINGER_S: Final = 0.5


class ChannelHandler(Protocol):
    """Who a channel belongs to. All calls come from the channel's thread."""

    def on_message(self, message: Message) -> None:
        """A message; FrameError ends the channel with BadFrame, RefusedError with its own reason."""

    def on_tick(self, now_s: float) -> None:
        """Four times a second."""

    def on_wake(self) -> Iterable[bytes]:
        """Frames to add now; called whenever somebody woke the channel."""

    def on_close(self, reason: str, message: str) -> None:
        """The end; called once, nothing follows."""


class Channel:
    """One control connection."""

    def __init__(
        self,
        connection: ssl.SSLSocket,
        *,
        name: str,
        takes: frozenset[FrameType],
        heartbeat_s: float,
        handler: ChannelHandler,
    ) -> None:
        self._connection = connection
        self._handler = handler
        self._reader = FrameReader(takes)
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._outgoing: deque[bytes] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._unsent: memoryview | None = None
        self._end: tuple[str, str] | None = None
        self._farewell = b""
        self._woken = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        now_s = time.monotonic()
        self._heard_s = now_s
        self._frame_began_s: float | None = None
        self._next_ping_s = now_s + heartbeat_s
        self._next_tick_s = now_s + TICK_S
        self._pings = 0
        self._thread = threading.Thread(target=self._run, name=f"control {name}", daemon=True)

    def start(self) -> None:
        """Serve it from now on."""
        self._connection.setblocking(False)
        self._thread.start()

    def send(self, frames: bytes) -> None:
        """Queue whole frames, in order. Any thread."""
        with self._lock:
            self._outgoing.append(frames)
            flooded = len(self._outgoing) > MAX_WAITING_FRAMES
        if flooded:
            self.close("Busy", "the other end does not take what is sent to it")
        self.wake()

    def send_message(self, message: Message) -> None:
        """Queue one message. Any thread."""
        self.send(encode(message))

    def post(self, call: Callable[[], None]) -> None:
        """Run something in the channel's thread, soon. Any thread; dropped if the channel has ended."""
        with self._lock:
            self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Let `on_wake` be called. Any thread."""
        with self._lock:
            if self._woken:
                return
            self._woken = True
        with contextlib.suppress(OSError):  # the channel has ended meanwhile
            os.write(self._wake_write, b"\0")

    def close(self, reason: str, message: str, *, refuse: Refuse | None = None) -> None:
        """End it, with a REFUSE as the last frame if there is one. The first reason counts. Any thread."""
        with self._lock:
            if self._end is None:
                self._end = (reason, message)
                self._farewell = encode(refuse) if refuse else b""
        self.wake()

    def join(self, timeout_s: float) -> None:
        """Wait for its thread, unless this is it."""
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout_s)

    def watch(self, connection: socket.socket, call: Callable[[], None]) -> None:
        """Call when a socket becomes readable or breaks. In the channel's thread only."""
        try:
            self._selector.register(connection, selectors.EVENT_READ, call)
        except ValueError:  # closed before we came to it
            return

    def unwatch(self, connection: socket.socket) -> None:
        """No longer; before the socket is closed. In the channel's thread only."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)

    def _run(self) -> None:
        self._selector.register(self._connection, selectors.EVENT_READ, self._read)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wake)
        try:
            while self._end is None:
                self._turn()
        except RefusedError as error:
            self._refuse(error.reason, str(error), retry=error.retry)
        except FrameError as error:
            self._refuse("BadFrame", str(error), retry=False)
        except (OSError, EOFError, TransportError) as error:
            self._ended("Lost", f"the connection ended: {error or type(error).__name__}")
        except SyncError as error:  # the handler cannot go on; the reason is its own
            self._refuse(type(error).__name__.removesuffix("Error"), str(error), retry=error.retry_helps)
        finally:
            self._finish()

    def _turn(self) -> None:
        timeout_s = max(0.0, min(self._next_tick_s, self._next_ping_s) - time.monotonic())
        for key, _ in self._selector.select(timeout_s):
            key.data()
        now_s = time.monotonic()
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            self._judge_silence(now_s)
            self._handler.on_tick(now_s)
        if now_s >= self._next_ping_s:
            self._next_ping_s = now_s + self._heartbeat_s
            self._pings += 1
            self.send_message(Heartbeat(FrameType.PING, self._pings))
        self._write()

    def _judge_silence(self, now_s: float) -> None:
        if now_s - self._heard_s > SILENT_HEARTBEATS * self._heartbeat_s:
            raise RefusedError("Silent", f"nothing was heard for {now_s - self._heard_s:.1f} s", retry=True)
        if self._frame_began_s is not None:
            allowed_s = FRAME_TIMEOUT_S + self._reader.missing_bytes / _SLOWEST_BYTES_PER_S
            if now_s - self._frame_began_s > allowed_s:
                raise FrameError("a frame was begun and not ended in time")

    def _read(self) -> None:
        for _ in range(16):  # then others get their turn
            try:
                data = self._connection.recv(_CHUNK_BYTES)
            except (ssl.SSLWantReadError, BlockingIOError):
                return
            except ssl.SSLWantWriteError:  # a key update under way; the next write does it
                return
            if not data:
                raise EOFError("the other end closed it")
            self._heard_s = time.monotonic()
            for kind, body in self._reader.feed(data):
                self._dispatch(decode(kind, body))
            self._frame_began_s = (self._frame_began_s or self._heard_s) if self._reader.in_frame else None
        if self._connection.pending():  # held by OpenSSL, where the selector does not see it
            self.post(self._read)

    def _dispatch(self, message: Message) -> None:
        match message:
            case Heartbeat(FrameType.PING, token):
                self.send_message(Heartbeat(FrameType.PONG, token))
            case Heartbeat():
                pass  # having been heard is all that it is for
            case Refuse(reason=reason, message=text):
                self._ended(reason, f"the other end refused: {text}")
            case _:
                self._handler.on_message(message)

    def _drain_wake(self) -> None:
        with self._lock:
            self._woken = False
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 64)
            calls = list(self._calls)
            self._calls.clear()
        for call in calls:
            call()
        for frames in self._handler.on_wake():
            with self._lock:
                self._outgoing.append(frames)

    def _write(self) -> None:
        """Send what the kernel takes; a chunk that was refused is offered again unchanged, as OpenSSL demands."""
        blocked = False
        while not blocked and (rest := self._next_unsent()) is not None:
            try:
                sent = self._connection.send(rest[:_CHUNK_BYTES])
                self._unsent = rest[sent:] if sent < len(rest) else None
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                blocked = True
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if blocked else 0)
        if self._selector.get_key(self._connection).events != wanted:
            self._selector.modify(self._connection, wanted, self._read_and_write if blocked else self._read)

    def _read_and_write(self) -> None:
        self._read()
        self._write()

    def _next_unsent(self) -> memoryview | None:
        if self._unsent is None:
            with self._lock:
                if not self._outgoing:
                    return None
                # Many small frames at once make one TLS record.
                frames = self._outgoing.popleft()
                while self._outgoing and len(frames) + len(self._outgoing[0]) <= _CHUNK_BYTES // 4:
                    frames += self._outgoing.popleft()
            self._unsent = memoryview(frames)
        return self._unsent

    def _ended(self, reason: str, message: str) -> None:
        with self._lock:
            self._end = self._end or (reason, message)

    def _refuse(self, reason: str, message: str, *, retry: bool) -> None:
        self.close(reason, message, refuse=Refuse(reason=reason, message=message[:1000], retry=retry))

    def _finish(self) -> None:
        with contextlib.suppress(OSError):
            self._say_farewell()
        self._selector.close()
        with contextlib.suppress(OSError):
            self._connection.close()
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._woken = True  # nobody writes to the pipe any more: its number may belong to another file soon
            reason, message = self._end or ("Lost", "the connection ended")
        self._handler.on_close(reason, message)

    def _say_farewell(self) -> None:
        """Let the last frames out, within a bounded time, and give the other end a chance to read them."""
        if not self._farewell:
            return
        self._connection.settimeout(_FLUSH_S)
        if self._unsent is not None:
            self._connection.sendall(self._unsent)
        with self._lock:
            rest = b"".join(self._outgoing)
        self._connection.sendall(rest + self._farewell)
        socket.socket.shutdown(self._connection, socket.SHUT_WR)
        # Closing with unread bytes would reset the connection and take the farewell with it.
        deadline_s = time.monotonic() + _LINGER_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._connection.settimeout(left_s)
            if not self._connection.recv(_CHUNK_BYTES):
                return


def read_frame(connection: ssl.SSLSocket, allowed: frozenset[FrameType], deadline_s: float) -> Message:
    """One frame from a blocking connection during its handshake, and not a byte more; TimeoutError at the deadline."""
    reader = FrameReader(allowed)
    wanted = HEADER_BYTES
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the handshake took too long")
        connection.settimeout(left_s)
        data = connection.recv(wanted)
        if not data:
            raise EOFError("the other end closed the connection during the handshake")
        for kind, body in reader.feed(data):
            return decode(kind, body)
        wanted = reader.missing_bytes


def write_message(connection: ssl.SSLSocket, message: Message, deadline_s: float) -> None:
    """One message on a blocking connection during its handshake."""
    connection.settimeout(max(0.001, deadline_s - time.monotonic()))
    connection.sendall(encode(message))
