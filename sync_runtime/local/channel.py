"""The library's end of the local protocol: a blocking Unix socket and the ring.

One thread receives; any thread sends. Whoever forks keeps the connection in the parent alone: a copy in the child would
hide the parent's death from the sidecar. Knows nothing of weights; does not dial again by itself.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref

from sync_runtime.errors import LocalProtocolError, SidecarLostError, SyncError
from sync_runtime.local.faults import to_error
from sync_runtime.local.frames import FrameBuffer
from sync_runtime.local.messages import Credit, Data, Error, Hello, Message, Welcome
from sync_runtime.local.ring import Ring
from sync_runtime.local.schema import limit_of, pack, parse

SEND_TIMEOUT_S = 30.0
"""A sidecar that takes no control message for so long is as good as lost."""
_RECEIVE_BYTES = 1 << 16
_LOST = "the sidecar went away; it is dialled again in the background: try again when it is back"


class Channel:
    """A connection after the handshake."""

    def __init__(self, connection: socket.socket, ring: Ring, welcome: Welcome, frames: FrameBuffer) -> None:
        self.welcome = welcome
        self._socket, self._ring, self._frames = connection, ring, frames
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._sending = threading.Lock()
        self._closed = False
        _OPEN.add(self)

    def send(self, message: Message) -> None:
        """Sends a message whole; raises SidecarLostError."""
        with self._sending:
            self._send(message)

    def receive(self, timeout_s: float | None) -> list[Message]:
        """What arrived, after a wait of at most `timeout_s` for the first byte (None: for ever)."""
        try:
            if not self._poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
                return []
            data = self._socket.recv(_RECEIVE_BYTES)
        except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
            raise SidecarLostError(_LOST) from error
        if not data:
            raise SidecarLostError(_LOST)
        return [parse(kind, body) for kind, body in self._frames.feed(data)]

    def put(self, data: memoryview) -> int:
        """Copies the front of `data` (bytes) into the ring and tells the sidecar; returns how much had room, or 0."""
        with self._sending:
            if self._closed:
                raise SidecarLostError(_LOST)
            size = min(self._ring.outgoing.room, len(data))
            if size:
                self._send(self._ring.outgoing.put(data[:size]))
            return size

    def credited(self, credit: Credit) -> None:
        """The sidecar has used a part of the ring."""
        with self._sending:
            self._ring.outgoing.credit(credit.size)

    def take(self, data: Data) -> memoryview:
        """The bytes of a DATA message; call `done` when they were used."""
        return self._ring.incoming.take(data)

    def done(self, size: int) -> None:
        """Gives a part of the ring back to the sidecar."""
        self.send(self._ring.incoming.done(size))

    def close(self) -> None:
        """Ends the connection; a thread that receives is woken by its end."""
        with self._sending:
            if self._closed:
                return
            self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was faster
            pass
        finally:
            self._socket.close()
            self._ring.close()
            _OPEN.discard(self)

    def forget(self) -> None:
        """In a forked child: drops the copy of the descriptor without a word to the sidecar."""
        self._closed = True
        self._socket.close()

    def _send(self, message: Message) -> None:
        try:
            self._socket.sendall(pack(message))
        except OSError as error:
            raise SidecarLostError(_LOST) from error


_OPEN: weakref.WeakSet[Channel] = weakref.WeakSet()


def _forget_in_child() -> None:
    for channel in list(_OPEN):
        channel.forget()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def connect(path: str, hello: Hello, timeout_s: float) -> Channel:
    """Dials the sidecar; raises SidecarLostError where nobody answers, and what the sidecar says where it refuses."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(pack(hello))
        channel = _welcomed(connection)
        connection.settimeout(SEND_TIMEOUT_S)
    except OSError as error:
        connection.close()
        raise SidecarLostError(f"no sidecar answers at {path}: {error.strerror or error}") from error
    except SyncError:
        connection.close()
        raise
    return channel


def _welcomed(connection: socket.socket) -> Channel:
    frames = FrameBuffer(limit_of)
    descriptors: list[int] = []
    try:
        message = None
        while message is None:
            data, received, _, _ = socket.recv_fds(connection, _RECEIVE_BYTES, 1)
            descriptors += received
            if not data:
                raise SidecarLostError("the sidecar hung up before it answered")
            found = [parse(kind, body) for kind, body in frames.feed(data)]
            if len(found) > 1:
                raise LocalProtocolError("the sidecar spoke before it was asked")
            message = found[0] if found else None
        if isinstance(message, Error):
            raise to_error(message)
        if not isinstance(message, Welcome) or len(descriptors) != 1:
            raise LocalProtocolError("the sidecar did not answer with a welcome and a ring")
        return Channel(connection, Ring(descriptors[0], message.ring_bytes, is_library=True), message, frames)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
