"""The sidecar's end of one library's connection, in asyncio: frames, credit, streams in both directions.

Two tasks per library: one reads the socket and keeps credit, one calls the handler, so that a handler may wait for room
in the ring. Knows nothing of what messages mean.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterable, Iterable
from typing import Protocol

from sync_runtime.errors import LibraryLostError, LocalProtocolError, SyncError
from sync_runtime.local.faults import to_message
from sync_runtime.local.frames import FrameBuffer
from sync_runtime.local.messages import (
    Cancel,
    Credit,
    Data,
    End,
    Hello,
    Message,
    Welcome,
    begins_stream,
    name_of,
)
from sync_runtime.local.ring import Ring
from sync_runtime.local.schema import limit_of, pack, parse

LINK_REQUEST = "LINK"
"""What an ERROR names as its request when the connection itself is at fault; it is closed then."""
MAX_WAITING = 1024
"""Messages of a library that may wait for the handler."""
_RECEIVE_BYTES = 1 << 16
_GONE = "the user's process closed its connection"


class FrameSocket:
    """Messages over a non-blocking socket in the running loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_greeting = True
        """Until WELCOME is out."""
        self._frames = FrameBuffer(limit_of)
        self._ready: list[Message] = []
        self._sending = asyncio.Lock()

    async def receive(self) -> Message:
        """The next message; raises LibraryLostError at the end."""
        while not self._ready:
            try:
                data = await asyncio.get_running_loop().sock_recv(self.connection, _RECEIVE_BYTES)
            except OSError as error:
                raise LibraryLostError(f"{_GONE}: {error.strerror or error}") from error
            if not data:
                raise LibraryLostError(_GONE)
            self._ready = [parse(kind, body) for kind, body in self._frames.feed(data)][::-1]
        return self._ready.pop()

    async def send(self, message: Message) -> None:
        """Sends a message whole."""
        async with self._sending:
            await self._send(pack(message))

    async def send_quietly(self, message: Message) -> None:
        """A last word to an end that may be gone already."""
        try:
            await self.send(message)
        except LibraryLostError:
            return

    async def send_welcome(self, message: Welcome, descriptor: int) -> None:
        """WELCOME with the ring's descriptor."""
        data = pack(message)
        try:
            sent = socket.send_fds(self.connection, [data], [descriptor])
        except OSError as error:
            raise LibraryLostError(f"{_GONE}: {error.strerror or error}") from error
        await self._send(data[sent:])
        self.is_greeting = False

    def close(self) -> None:
        """Hangs up."""
        self.connection.close()

    async def _send(self, data: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self.connection, data)
        except OSError as error:
            raise LibraryLostError(f"{_GONE}: {error.strerror or error}") from error


class LinkHandler(Protocol):
    """What the sidecar does with what a library says. Calls for one library come one after the other, in order."""

    async def attached(self, library: LibraryLink) -> None:
        """A library is in. Nothing may be sent to it before its OPEN."""

    async def message(self, library: LibraryLink, message: Message) -> None:
        """A message; OPEN, PUBLISH, ANCHOR and SCRUB with `state` begin a stream that END or CANCEL closes.

        A SyncError that is raised here, or by `data`, is sent as ERROR that names the request; of the stream it was
        raised in, nothing more is heard.
        """

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Bytes of the stream. They lie in shared memory and are gone when this returns: copy, then check."""

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """The library is gone, as the last call for it. What it had not finished is void."""


class Library(Protocol):
    """A library as sessions see it: one connection, or several ranks that act as one."""

    @property
    def hello(self) -> Hello:
        """What it said of itself."""

    @property
    def is_lost(self) -> bool:
        """Whether it is gone; `detached` follows."""

    async def send(self, message: Message) -> None:
        """Sends a message without a stream; raises LibraryLostError."""

    async def send_quietly(self, message: Message) -> None:
        """News that an end which is gone does not need."""

    async def stream(
        self, begin: Message, chunks: Iterable[bytes | memoryview] | AsyncIterable[bytes | memoryview], end: End
    ) -> None:
        """Sends a message and the bytes that follow it."""

    def hang_up(self) -> None:
        """Ends the connection; `detached` follows."""


class LibraryLink:
    """A library that was let in."""

    def __init__(self, frames: FrameSocket, ring: Ring, hello: Hello, pid: int) -> None:
        self._hello = hello
        self.pid = pid
        """The user's process as the sidecar sees it; 0 where it cannot."""
        self._frames, self._ring = frames, ring
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue()  # None: nothing more comes
        self._room = asyncio.Event()
        self._streaming = asyncio.Lock()
        self._stream: str | None = None
        self._discarding = False
        self._lost: str | None = None

    @property
    def hello(self) -> Hello:
        """What it said of itself."""
        return self._hello

    async def send(self, message: Message) -> None:
        """Sends a message without a stream; raises LibraryLostError."""
        await self._frames.send(message)

    async def send_quietly(self, message: Message) -> None:
        """News that an end which is gone does not need."""
        await self._frames.send_quietly(message)

    async def fail(self, request: str, error: SyncError) -> None:
        """Tells the library that a request failed."""
        await self._frames.send(to_message(request, error))

    async def stream(
        self, begin: Message, chunks: Iterable[bytes | memoryview] | AsyncIterable[bytes | memoryview], end: End
    ) -> None:
        """Sends a message and the bytes that follow it, as the library takes them. One stream at a time, in turn.

        If the source of chunks fails or is cancelled, the library is told that the stream is void.
        """
        async with self._streaming:
            await self._frames.send(begin)
            done = False
            try:
                if isinstance(chunks, AsyncIterable):
                    async for chunk in chunks:
                        await self._write(chunk)
                else:
                    for chunk in chunks:
                        await self._write(chunk)
                done = True
            finally:
                if not done and self._lost is None:
                    await self._frames.send_quietly(Cancel("the sidecar could not finish it"))
            await self._frames.send(end)

    def hang_up(self) -> None:
        """Ends the connection; the handler hears `detached`."""
        try:
            self._frames.connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # gone already
            return

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone; `detached` follows when the call in progress returns."""
        return self._lost is not None

    async def run(self, handler: LinkHandler) -> None:
        """Serves the library until one end is gone."""
        reason = "the sidecar hung up"
        reader = asyncio.create_task(self._read(), name="local-read")
        try:
            await handler.attached(self)
            while (message := await self._waiting.get()) is not None:
                await self._handle(handler, message)
            await reader  # raises what ended it
        except SyncError as error:
            reason = str(error)
            if not isinstance(error, LibraryLostError):
                await self._frames.send_quietly(to_message(LINK_REQUEST, error))
        finally:
            self._lost = self._lost or reason
            self._room.set()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await handler.detached(self, reason)
            self._frames.close()
            self._ring.close()

    async def _read(self) -> None:
        """Takes frames off the socket; credit is kept here, so that a stream goes on while the handler works."""
        try:
            while True:
                message = await self._frames.receive()
                if isinstance(message, Credit):
                    self._ring.outgoing.credit(message.size)
                    self._room.set()
                elif self._waiting.qsize() >= MAX_WAITING:
                    raise LocalProtocolError(f"more than {MAX_WAITING} messages wait: the library does not listen")
                else:
                    self._waiting.put_nowait(message)
        except SyncError as error:
            self._lost = str(error)
            raise
        finally:
            self._room.set()
            self._waiting.put_nowait(None)

    async def _handle(self, handler: LinkHandler, message: Message) -> None:
        """One message, or a part of a stream; errors of the handler go to the library."""
        if isinstance(message, Data):
            await self._handle_data(handler, message)
            return
        ends = isinstance(message, End | Cancel)
        request = name_of(message)
        if ends:
            request = self._stream or request
            if self._stream is None:
                raise LocalProtocolError(f"{name_of(message)} came without a stream")
            self._stream = None
            if self._discarding:
                self._discarding = False
                return
        elif begins_stream(message):
            if self._stream is not None:
                raise LocalProtocolError(f"{request} came inside the stream of {self._stream}")
            self._stream = request
        try:
            await handler.message(self, message)
        except LibraryLostError:
            raise
        except SyncError as error:
            self._discarding = self._stream is not None and begins_stream(message)
            await self.fail(request, error)

    async def _handle_data(self, handler: LinkHandler, message: Data) -> None:
        if self._stream is None:
            raise LocalProtocolError("DATA came without a stream")
        data = self._ring.incoming.take(message)
        try:
            if not self._discarding:
                await handler.data(self, data)
        except LibraryLostError:
            raise
        except SyncError as error:
            self._discarding = True
            await self.fail(self._stream, error)
        finally:
            data.release()
        await self._frames.send(self._ring.incoming.done(message.size))

    async def _write(self, chunk: bytes | memoryview) -> None:
        """Copies a chunk into the ring piece by piece, as there is room."""
        whole = memoryview(chunk)
        rest = whole.cast("B") if whole.nbytes else memoryview(b"")
        while len(rest):
            self._room.clear()
            size = min(self._ring.outgoing.room, len(rest))
            if self._lost is not None:
                raise LibraryLostError(self._lost)
            if not size:
                await self._room.wait()
                continue
            await self._frames.send(self._ring.outgoing.put(rest[:size]))
            rest = rest[size:]
