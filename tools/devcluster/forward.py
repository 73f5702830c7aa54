"""Carries connections from a loopback port to a region's API server, and can stop answering on command.

The listening socket is made before the namespaces are entered and keeps belonging to the host's network: so a port on
the host leads into the bubble without any further process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

CHUNK_BYTES = 1 << 16


def listener() -> socket.socket:
    """A listening socket on a free loopback port."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(512)
    sock.setblocking(False)
    return sock


class Forwarder:
    """One loopback port to one target address. While cut, bytes wait and nothing is answered, as on a dead link."""

    def __init__(self, sock: socket.socket, host: str, port: int) -> None:
        self._sock = sock
        self._host, self._port = host, port
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[object] | None] = set()
        """A loop holds its tasks weakly: one that waits for streams which nobody else knows of may vanish."""

    @property
    def port(self) -> int:
        """The loopback port people connect to."""
        return int(self._sock.getsockname()[1])

    @property
    def is_cut(self) -> bool:
        """Whether it has stopped answering."""
        return not self._open.is_set()

    async def start(self) -> None:
        """Begin to accept."""
        self._server = await asyncio.start_server(self._serve, sock=self._sock)

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
        self._sock.close()

    def cut(self) -> None:
        """Stop answering: open connections stall, new ones hang."""
        self._open.clear()

    def mend(self) -> None:
        """Answer again; stalled connections go on where they were."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._carry(reader, writer)
        finally:
            self._serving.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await self._open.wait()
            try:
                far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            except OSError:
                writer.transport.abort()
                return
            with contextlib.closing(far_writer):  # not aborted: bytes may still wait in it
                try:
                    await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
                except OSError:
                    for end in (writer, far_writer):  # what breaks on one side is broken on the other too
                        end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        await self._open.wait()  # the end of a stream crosses a cut link no more than its bytes do
        writer.write_eof()
