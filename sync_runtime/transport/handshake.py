"""How a connection begins, on both sides: TCP, TLS, who is there, HELLO and its answer; all within ten seconds.

Blocking calls with one deadline, so that a peer that sends a byte now and then does not last. What goes wrong ends in
RefusedError (somebody said no; with the reason that is counted) or TransportError (the path or the other end is away).
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import FrameError, RefusedError, TransportError
from sync_runtime.identity.certificates import MemberCertificate
from sync_runtime.identity.errors import ExpiredError, IdentityError, RefusedByPeerError
from sync_runtime.identity.handshake import refusal_of
from sync_runtime.identity.names import MemberIdentity, expect
from sync_runtime.identity.tls import peer_certificate
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
    expires_at: datetime.datetime
    """The end of the certificate that it showed."""


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
        certificate = _certificate(secured)
        hello = _expect(secured, Hello, allowed=GREETING, deadline_s=deadline_s)
        _check_hello(certificate.identity, hello)
    except RefusedError as error:
        turn_away(secured or connection, error)
        raise
    return Greeted(secured, certificate.identity, hello, certificate.not_after)


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
        _check_parent(_certificate(secured).identity, endpoint, hello)
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
        secured = _wrap(connection, context, server_side=server_side)
        if attempt:
            attempt.hold(secured)
        secured.do_handshake()
    except TimeoutError as error:
        (secured or connection).close()
        raise RefusedError("HandshakeTimeout", "TLS was not there in time", retry=True) from error
    except (OSError, ValueError) as error:  # ValueError: the peer was gone before it began
        (secured or connection).close()
        raise _refused(refusal_of(error if isinstance(error, OSError) else OSError(str(error)))) from error
    return secured


class _Tracked(ssl.SSLSocket):
    """Can be found by the thread that made it, even if making it failed."""

    _newest = threading.local()

    def __new__(cls, *words: object, **named: object) -> Self:
        made = super().__new__(cls, *words, **named)
        cls._newest.made = made
        return made

    @classmethod
    def take(cls) -> ssl.SSLSocket | None:
        """The one that this thread made last; it is not found twice."""
        made: ssl.SSLSocket | None = cls._newest.__dict__.pop("made", None)
        return made


def _wrap(connection: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> ssl.SSLSocket:
    """The TLS socket that takes a connection over; where that fails, nothing stays open.

    The ssl module moves the descriptor to the new socket first and looks at it then: of a peer that has reset the
    connection meanwhile it raises, and the socket that has the descriptor by now is in nobody's hands.
    """
    context.sslsocket_class = _Tracked
    _Tracked.take()
    try:
        return context.wrap_socket(connection, server_side=server_side, do_handshake_on_connect=False)
    except (OSError, ValueError):
        lost = _Tracked.take()
        if lost is not None:
            lost.close()
        raise
    finally:
        _Tracked.take()


def _refused(refusal: IdentityError) -> RefusedError:
    """What stood against a certificate, theirs or ours. One that has ended is renewed sooner or later: dial again."""
    retry = refusal.retry_helps or isinstance(refusal, ExpiredError | RefusedByPeerError)
    return RefusedError(refusal.reason, str(refusal), retry=retry)


def _certificate(connection: ssl.SSLSocket) -> MemberCertificate:
    try:
        return peer_certificate(connection)
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
        raise _refused(refusal_of(error)) from error
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
