"""Ends of a link written by hand: they send what a test tells them to, right or wrong."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress

from sync_runtime.transport.channel import read_frame
from sync_runtime.transport.messages import Hello, Message, Refuse, Welcome, encode
from sync_runtime.transport.wire import FrameType

ANY = frozenset(FrameType)


class Raw:
    """A TLS connection and nothing else."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.connection = connection

    def send(self, *messages: Message | bytes) -> None:
        for message in messages:
            self.connection.sendall(message if isinstance(message, bytes) else encode(message))

    def read(self, timeout_s: float = 5.0) -> Message:
        return read_frame(self.connection, ANY, time.monotonic() + timeout_s)

    def refusal(self, timeout_s: float = 5.0) -> Refuse:
        """What it is refused with; other frames are passed over. The connection must end after it."""
        deadline_s = time.monotonic() + timeout_s
        while not isinstance(message := read_frame(self.connection, ANY, deadline_s), Refuse):
            pass
        self.connection.settimeout(timeout_s)
        with suppress(ConnectionResetError):
            assert self.connection.recv(1) == b""
        return message

    def close(self) -> None:
        self.connection.close()


def raw_child(port: int, context: ssl.SSLContext, *greeting: Message | bytes) -> Raw:
    connection = socket.create_connection(("127.0.0.1", port), 5)
    raw = Raw(context.wrap_socket(connection))
    with suppress(OSError):  # a listener that does not like our certificate may have hung up already
        raw.send(*greeting)
    return raw


class RawParent:
    """Welcomes whoever comes; a test plays the rest."""

    def __init__(self, context: ssl.SSLContext, member: str) -> None:
        self._context = context
        self._welcome = Welcome(
            protocol=1, member=member, term=1, incarnation="0" * 32, token="1" * 32, streams=1, heartbeat_ms=1000
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(5)
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> tuple[Raw, Hello]:
        connection, _ = self._listener.accept()
        raw = Raw(self._context.wrap_socket(connection, server_side=True))
        hello = raw.read()
        assert isinstance(hello, Hello)
        raw.send(self._welcome)
        return raw, hello

    def accept_link(self) -> tuple[Raw, Raw]:
        """(control, data), whichever comes first."""
        control, first = self.accept()
        data, second = self.accept()
        assert (first.kind, second.kind) == ("control", "data")
        return control, data

    def close(self) -> None:
        self._listener.close()
