"""How a connection begins, on both sides: TCP, TLS, who is there, HELLO and its answer; all within ten seconds.

Blocking calls with one deadline, so that a peer that sends a byte now and then does not last. What goes wrong ends in
RefusedError (somebody said no; with the reason that is counted) or TransportError (the path or the other end is away).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Final, TypeVar

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import FrameError, RefusedError, TransportError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.handshake import refusal_of
from sync_runtime.identity.names import MemberIdentity, expect
from sync_runtime.identity.tls import peer_identity
from sync_runtime.transport import sockets
from sync_runtime.transport.channel import read_frame, write_message
from sync_runtime.transport.messages import Hello, Refuse, Welcome
from sync_runtime.transport.stream import break_connection
from sync_runtime.transport.wire import ANSWER, GREETING, PROTOCOL_VERSIONS, FrameType

HANDSHAKE_S: Final = 10.0
CONNECT_S: Final = 4.0
"""A SYN that was lost is sent again after one second and after three."""
_LINGER_S: Final = 0.5
_Expected = TypeVar("_Expected", Hello, Welcome)


@dataclass(frozen=True, slots=True)
class Greeted:
    """A peer that said who it is and what it wants."""

    connection: ssl.SSLSocket
    identity: MemberIdentity
    hello: Hello


class Attempt:
    """A dial that somebody else may end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Break it, now or as soon as it is connected. Any thread."""
        with self._lock:
            self._cancelled = True
            if self._connection is not None:
                break_connection(self._connection)

    def hold(self, connection: socket.socket) -> None:
        """The socket that the attempt stands on now."""
        with self._lock:
            self._connection = connection
            if self._cancelled:
                break_connection(connection)

    def release(self) -> None:
        """The dial is through or has failed: the socket is somebody else's."""
        with self._lock:
            self._connection = None


def greet(connection: socket.socket, context: ssl.SSLContext, deadline_s: float) -> Greeted:
    """The listening side up to HELLO. Raises RefusedError after telling the peer; the connection is closed then."""
    secured: ssl.SSLSocket | None = None
    try:
        secured = _secure(connection, context, deadline_s, server_side=True)
        identity = _identity(secured)
        hello = _expect(secured, Hello, allowed=GREETING, deadline_s=deadline_s)
        _check_hello(identity, hello)
    except RefusedError as error:
        turn_away(secured or connection, error)
        raise
    return Greeted(secured, identity, hello)


def welcome(greeted: Greeted, answer: Welcome, deadline_s: float) -> None:
    """Let it in; raises TransportError."""
    try:
        write_message(greeted.connection, answer, deadline_s)
    except OSError as error:
        greeted.connection.close()
        raise TransportError(f"{greeted.identity} left before it was welcomed: {error}") from error


def turn_away(connection: socket.socket, error: RefusedError) -> None:
    """Say why where that is possible, and close. Never raises."""
    with contextlib.suppress(OSError):
        if isinstance(connection, ssl.SSLSocket) and connection.version():
            answer = Refuse(reason=error.reason, message=str(error)[:1000], retry=error.retry)
            write_message(connection, answer, time.monotonic() + _LINGER_S)
            socket.socket.shutdown(connection, socket.SHUT_WR)
            connection.settimeout(_LINGER_S)  # unread bytes would turn the close into a reset, and eat the answer
            connection.recv(4096)
    connection.close()


def dial(
    endpoint: Endpoint, context: ssl.SSLContext, hello: Hello, attempt: Attempt | None = None
) -> tuple[ssl.SSLSocket, Welcome]:
    """The dialling side, up to WELCOME; raises RefusedError or TransportError."""
    attempt = attempt or Attempt()
    deadline_s = time.monotonic() + HANDSHAKE_S
    where = f"{endpoint.member} at {endpoint.host}:{endpoint.port}"
    try:
        connection = socket.create_connection((endpoint.host, endpoint.port), CONNECT_S)
    except OSError as error:
        raise TransportError(f"{where} cannot be reached: {error}") from error
    secured: ssl.SSLSocket | None = None
    try:
        sockets.prepare(connection)
        secured = _secure(connection, context, deadline_s, server_side=False, attempt=attempt)
        _check_parent(_identity(secured), endpoint, hello)
        write_message(secured, hello, deadline_s)
        answer = _expect(secured, Welcome, allowed=ANSWER, deadline_s=deadline_s)
        if answer.protocol not in hello.protocols:
            raise RefusedError("NoCommonProtocol", f"{where} wants protocol {answer.protocol}", retry=False)
    except OSError as error:
        attempt.release()
        (secured or connection).close()
        raise TransportError(f"{where} ended the handshake: {error}") from error
    except TransportError:
        attempt.release()
        (secured or connection).close()
        raise
    attempt.release()
    return secured, answer


def _secure(
    connection: socket.socket,
    context: ssl.SSLContext,
    deadline_s: float,
    *,
    server_side: bool,
    attempt: Attempt | None = None,
) -> ssl.SSLSocket:
    connection.settimeout(max(0.001, deadline_s - time.monotonic()))
    secured: ssl.SSLSocket | None = None
    try:
        secured = context.wrap_socket(connection, server_side=server_side, do_handshake_on_connect=False)
        if attempt:
            attempt.hold(secured)
        secured.do_handshake()
    except TimeoutError as error:
        (secured or connection).close()
        raise RefusedError("HandshakeTimeout", "TLS was not there in time", retry=True) from error
    except (OSError, ValueError) as error:  # ValueError: the peer was gone before it began
        (secured or connection).close()
        refusal = refusal_of(error if isinstance(error, OSError) else OSError(str(error)))
        raise RefusedError(refusal.reason, str(refusal), retry=refusal.retry_helps) from error
    return secured


def _identity(connection: ssl.SSLSocket) -> MemberIdentity:
    try:
        return peer_identity(connection)
    except IdentityError as error:
        raise RefusedError(error.reason, str(error), retry=False) from error


def _expect(
    connection: ssl.SSLSocket, kind: type[_Expected], *, allowed: frozenset[FrameType], deadline_s: float
) -> _Expected:
    try:
        message = read_frame(connection, allowed, deadline_s)
    except FrameError as error:
        raise RefusedError("BadFrame", str(error), retry=False) from error
    except TimeoutError as error:
        raise RefusedError("HandshakeTimeout", "the other end did not speak in time", retry=True) from error
    except EOFError as error:
        raise RefusedError("HandshakeFailed", str(error), retry=True) from error
    except ssl.SSLError as error:  # in TLS 1.3 a client learns only here what the server thinks of its certificate
        refusal = refusal_of(error)
        raise RefusedError(refusal.reason, str(refusal), retry=refusal.retry_helps) from error
    except OSError as error:
        raise RefusedError("HandshakeFailed", f"the connection broke: {error}", retry=True) from error
    if isinstance(message, Refuse):
        raise RefusedError(message.reason, message.message, retry=message.retry)
    if not isinstance(message, kind):
        raise RefusedError("BadFrame", f"a {message.TYPE.name} where {kind.TYPE.name} belongs", retry=False)
    return message


def _check_hello(identity: MemberIdentity, hello: Hello) -> None:
    """What a child says of itself must be what its certificate says."""
    if not set(hello.protocols) & set(PROTOCOL_VERSIONS):
        known = ", ".join(map(str, PROTOCOL_VERSIONS))
        raise RefusedError("NoCommonProtocol", f"this end speaks {known}, the other {hello.protocols}", retry=False)
    if hello.group != identity.group_uid:
        raise RefusedError("WrongGroup", f"{identity} speaks for group {hello.group}", retry=False)
    if (hello.member, hello.region) != (identity.member, identity.region):
        raise RefusedError("WrongMember", f"{identity} calls itself {hello.member} in {hello.region}", retry=False)
    if hello.role != identity.role:
        raise RefusedError("WrongRole", f"{identity} calls itself {hello.role}", retry=False)
    if (hello.kind == "data") != (hello.token is not None):
        raise RefusedError("BadFrame", "a data stream has a token, a control connection none", retry=False)


def _check_parent(identity: MemberIdentity, endpoint: Endpoint, hello: Hello) -> None:
    try:
        expect(identity, group_uid=hello.group, member=endpoint.member)
    except IdentityError as error:
        raise RefusedError(error.reason, str(error), retry=False) from error
