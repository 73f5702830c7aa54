"""Data streams: one thread and one blocking socket each, one way after the handshake.

`SendStream` takes buckets from a feed and sends them; `ReceiveStream` reads them into one buffer, hashes them in its
own thread and hands them on. Neither knows transfers, queues or who is at the other end.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Final, Protocol

from sync_runtime.errors import FrameError, SyncError
from sync_runtime.transport.sockets import SocketFacts
from sync_runtime.transport.wire import (
    BUCKET_HEAD_BYTES,
    HEADER_BYTES,
    ON_DATA,
    BucketHead,
    FrameType,
    pack_bucket_head,
    pack_frame,
    parse_bucket_head,
    parse_header,
)

_RECORD_BYTES: Final = 16 << 10
"""The most that one TLS record holds."""


class BucketSink(Protocol):
    """Where a child keeps buckets. Called by the streams' threads, several at once."""

    def put(self, *, transfer: int, key: str, index: int, offset: int, data: memoryview, sha256: bytes) -> bool:
        """Keep a verified bucket before returning; False: it was there. `data` is valid during the call only.

        Raises a SyncError where it cannot; the transfer is dropped then.
        """


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A bucket to send."""

    head: BucketHead
    data: memoryview


@dataclass(frozen=True, slots=True)
class Warming:
    """So many bytes that mean nothing: they open the congestion window before the first payload needs it."""

    size_bytes: int


class StreamFeed(Protocol):
    """Where a SendStream gets its buckets. Called by the stream's thread."""

    def next_bucket(self, stream: SendStream) -> Outgoing | Warming | None:
        """The next one, after waiting for it; None: end."""

    def stream_ended(self, stream: SendStream, reason: str) -> None:
        """The thread is over; the socket is the feed's to close."""


class BucketTaker(Protocol):
    """Where a ReceiveStream hands its buckets. Called by the stream's thread."""

    def take(self, head: BucketHead, data: memoryview) -> None:
        """A bucket with its true hash."""

    def damaged(self, head: BucketHead) -> None:
        """A bucket whose bytes are not those of its name."""

    def warmed(self, size_bytes: int) -> None:
        """So many bytes that mean nothing are about to come; raises FrameError where that is too much."""


class SendStream:
    """The parent's end of a data stream."""

    def __init__(self, number: int, connection: ssl.SSLSocket, facts: SocketFacts, feed: StreamFeed, name: str) -> None:
        self.number = number
        self.connection = connection
        self.facts = facts
        self._feed = feed
        self._scratch = bytearray(_RECORD_BYTES)
        self._thread = threading.Thread(target=self._run, name=f"stream {number} {name}", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        with contextlib.suppress(OSError):  # the link may have ended meanwhile, and closed it; the thread sees that
            self.connection.settimeout(None)
        self._thread.start()

    def stop(self) -> None:
        """Break the connection; a thread that is sending wakes up. Any thread."""
        break_connection(self.connection)

    def join(self, timeout_s: float) -> None:
        """Wait for its thread, unless this is it."""
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        reason = "ended"
        try:
            while (outgoing := self._feed.next_bucket(self)) is not None:
                if isinstance(outgoing, Warming):
                    self._warm(outgoing)
                else:
                    self._send(outgoing)
        except (OSError, SyncError) as error:
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._feed.stream_ended(self, reason)

    def _warm(self, warming: Warming) -> None:
        self.connection.sendall(pack_frame(FrameType.WARMING, bytes(warming.size_bytes)))

    def _send(self, outgoing: Outgoing) -> None:
        """The head shares a record with the first bytes: no small packet of its own."""
        head = pack_bucket_head(outgoing.head)
        first = min(len(outgoing.data), _RECORD_BYTES - len(head))
        self._scratch[: len(head)] = head
        self._scratch[len(head) : len(head) + first] = outgoing.data[:first]
        self.connection.sendall(memoryview(self._scratch)[: len(head) + first])
        if first < len(outgoing.data):
            self.connection.sendall(outgoing.data[first:])


class ReceiveStream:
    """The child's end of a data stream; runs in the thread that dialled it."""

    def __init__(self, connection: ssl.SSLSocket, taker: BucketTaker) -> None:
        self.connection = connection
        self._taker = taker
        self._head = bytearray(HEADER_BYTES + BUCKET_HEAD_BYTES)
        self._buffer = bytearray()

    def run(self) -> None:
        """Receive until the other end closes; raises OSError or SyncError where it does otherwise."""
        self.connection.settimeout(None)
        head = memoryview(self._head)
        while self._fill(head[:HEADER_BYTES], may_end=True):
            kind, length = parse_header(head, ON_DATA)
            if kind is FrameType.WARMING:
                self._let_go(length)
                continue
            if kind is FrameType.REFUSE or length <= BUCKET_HEAD_BYTES:
                raise FrameError(f"a {kind.name} frame of {length} bytes on a data stream")
            self._fill(head[HEADER_BYTES:])
            bucket = parse_bucket_head(head[HEADER_BYTES:], length)
            if len(self._buffer) < bucket.size_bytes:
                self._buffer = bytearray(bucket.size_bytes)
            data = memoryview(self._buffer)[: bucket.size_bytes]
            self._fill(data)
            if hashlib.sha256(data).digest() == bucket.sha256:
                self._taker.take(bucket, data)
            else:
                self._taker.damaged(bucket)

    def _let_go(self, length: int) -> None:
        """Bytes that mean nothing."""
        self._taker.warmed(length)
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        self._fill(memoryview(self._buffer)[:length])

    def stop(self) -> None:
        """Break the connection; the thread that receives wakes up. Any thread."""
        break_connection(self.connection)

    def _fill(self, view: memoryview, *, may_end: bool = False) -> bool:
        """Read exactly as many bytes; False: the stream ended before the first, where it may."""
        done = 0
        while done < len(view):
            count = self.connection.recv_into(view[done:])
            if not count:
                if may_end and not done:
                    return False
                raise ConnectionResetError("the stream ended inside a frame")
            done += count
        return True


def break_connection(connection: socket.socket) -> None:
    """End a connection under whoever uses it. SSLSocket's own `shutdown` would let a reader go on in plain text."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
