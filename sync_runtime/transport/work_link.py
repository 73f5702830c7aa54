"""One end of a work connection: whole messages in order, both ways. The same on both sides.

Methods are thread-safe and never wait for the network. What a message means is the session's business; who dials again
is the dialler's.
"""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Iterable
from typing import Final

from sync_runtime.transport.channel import Channel
from sync_runtime.transport.events import Emit, WorkArrived, WorkGone
from sync_runtime.transport.messages import Message, Refuse
from sync_runtime.transport.wire import FrameType

_JOIN_S: Final = 5.0


class WorkLink:
    """A worker, as its trainer sees it, or a trainer, as its worker does."""

    def __init__(
        self,
        connection: ssl.SSLSocket,
        *,
        name: str,
        takes: frozenset[FrameType],
        heartbeat_s: float,
        ends_at: datetime.datetime,
        emit: Emit,
    ) -> None:
        self.name = name
        """The member at the other end."""
        self.ends_at = ends_at
        """When the first certificate under it ends."""
        self.closed = threading.Event()
        self._emit = emit
        self._channel = Channel(connection, name=f"work {name}", takes=takes, heartbeat_s=heartbeat_s, handler=self)

    def start(self) -> None:
        """Serve it from now on."""
        self._channel.start()

    def send(self, message: Message) -> None:
        """In order behind those before it; lost without a word where the link is over."""
        self._channel.send_message(message)

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """Tell the other end why, and end the link."""
        self._channel.close(reason, message, refuse=Refuse(reason=reason, message=message, retry=retry))

    def join(self, timeout_s: float = _JOIN_S) -> None:
        """Wait until its thread is over; after `close`."""
        self._channel.join(timeout_s)

    # ---------------------------------------------------------------------------------------- the channel's handler

    def on_message(self, message: Message) -> None:
        """All of them are the session's."""
        self._emit(WorkArrived(self, message))

    def on_wake(self) -> Iterable[bytes]:
        """Nothing beyond what was queued."""
        return ()

    def on_tick(self, now_s: float) -> None:
        """Nothing to look after."""

    def on_close(self, reason: str, message: str) -> None:
        """The link is over."""
        self.closed.set()
        self._emit(WorkGone(self, reason, message))
