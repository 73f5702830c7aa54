"""The sidecar's end of the local protocol: accepts ranks of the user's process and speaks to a handler.

Runs in the sidecar's asyncio loop. Checks who dials (`SO_PEERCRED`), hands out the ring, keeps credit, and calls a
`LocalHandler` with messages in order. Knows nothing of versions, weights or members: meaning is the handler's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.local.faults import to_message
from sync_runtime.local.link import FrameSocket, LibraryLink, LinkHandler
from sync_runtime.local.listening import bind
from sync_runtime.local.messages import PROTOCOLS, Hello, Welcome
from sync_runtime.local.ring import DEFAULT_RING_BYTES, MIN_RING_BYTES, Ring, make_ring

HELLO_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 256
WORK_KINDS = ("work", "worker")
"""Libraries that send no streams."""
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 64


class Admission(NamedTuple):
    """What a library is told when it is let in."""

    group: str
    member: str
    term: int


class LocalHandler(LinkHandler, Protocol):
    """What the sidecar does with libraries; `LinkHandler` says how it is called for each."""

    def admit(self, hello: Hello) -> Admission:
        """Lets a library in, or raises a SyncError that it will see."""


@dataclass(frozen=True)
class LocalLimits:
    """What one sidecar grants its libraries."""

    ring_bytes: int = DEFAULT_RING_BYTES
    uids: frozenset[int] | None = None
    """User ids that may connect; None: the sidecar's own and root."""
    any_uid: bool = False
    """For a pod whose containers run under different users: whoever can reach the socket's folder may connect."""
    connections: int = MAX_CONNECTIONS


class LocalServer:
    """Listens on a Unix socket."""

    def __init__(self, path: str, handler: LocalHandler, limits: LocalLimits | None = None) -> None:
        self._path, self._handler, self._limits = path, handler, limits or LocalLimits()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Binds and listens; a socket file that a dead sidecar left is replaced, a living one's is not."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        try:
            await asyncio.to_thread(bind, listener, self._path, "sidecar")
            listener.listen(_BACKLOG)
        except (OSError, LocalError):
            listener.close()
            raise
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener), name="local-accept")

    async def close(self) -> None:
        """Hangs up on all libraries and removes the socket file."""
        if self._listener is None or self._accepting is None:
            return
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._listener.close()
        self._listener = None
        await asyncio.to_thread(Path(self._path).unlink, missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            if len(self._tasks) >= self._limits.connections:
                connection.close()
                continue
            task = asyncio.create_task(self._serve(connection), name="local-library")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # One that is cancelled before its first step never reaches its own `finally`.
            task.add_done_callback(partial(_close, connection))

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        frames = FrameSocket(connection)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                link = await self._greet(frames)
        except TimeoutError:
            return
        except SyncError as error:
            await frames.send_quietly(to_message("HELLO", error))
            return
        finally:
            if frames.is_greeting:
                frames.close()
        await link.run(self._handler)

    async def _greet(self, frames: FrameSocket) -> LibraryLink:
        """HELLO and WELCOME. HELLO is read before anything is refused: bytes left unread would eat the reason."""
        hello = await frames.receive()
        peer = peer_credentials(frames.connection)
        allowed = self._limits.uids if self._limits.uids is not None else frozenset({os.getuid(), 0})
        if peer.uid not in allowed and not self._limits.any_uid:
            raise LocalError(
                f"user {peer.uid} may not use this sidecar: run both under one user, or allow it in its settings"
            )
        if not isinstance(hello, Hello):
            raise LocalProtocolError("the first message must be HELLO")
        protocol = common_protocol(hello.protocols)
        if hello.rank >= hello.world_size:
            raise LocalProtocolError(f"rank {hello.rank} does not exist among {hello.world_size}")
        admission = self._handler.admit(hello)
        size_bytes = MIN_RING_BYTES if hello.kind in WORK_KINDS else self._limits.ring_bytes
        descriptor = make_ring(size_bytes)
        try:
            ring = await asyncio.to_thread(Ring, descriptor, size_bytes, is_library=False)
            await frames.send_welcome(Welcome(protocol, size_bytes, *admission), descriptor)
        finally:
            os.close(descriptor)
        return LibraryLink(frames, ring, hello, peer.pid)


def _close(connection: socket.socket, _: asyncio.Task[None]) -> None:
    connection.close()


class PeerCredentials(NamedTuple):
    """Who is at the other end of a Unix socket, by the kernel's word."""

    pid: int
    """As this process sees it; 0 from another pid namespace."""
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> PeerCredentials:
    """Reads SO_PEERCRED."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return PeerCredentials(*_CREDENTIALS.unpack(data))


def common_protocol(offered: Sequence[int]) -> int:
    """The highest version that both know; raises LocalProtocolError where there is none."""
    both = set(offered) & set(PROTOCOLS)
    if not both:
        theirs, ours = (", ".join(map(str, versions)) for versions in (sorted(offered), PROTOCOLS))
        raise LocalProtocolError(
            f"the library speaks version {theirs} of the local protocol, the sidecar {ours}: their releases are too "
            "far apart; update the older one"
        )
    return max(both)
