"""Two ends that meet over loopback, and what each of them made of the other."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.handshake import refusal_of
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import peer_identity

TIMEOUT_S = 5
Verdict = MemberIdentity | IdentityError


@dataclass
class Meeting:
    """What the listening and the dialling end found."""

    listener: Verdict
    dialler: Verdict


def meet(server: ssl.SSLContext, client: ssl.SSLContext) -> Meeting:
    """One handshake, with one byte each way after it: only then does the dialling end know that it was accepted."""
    found: list[Verdict] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: found.append(_listen(listening, server)))
        thread.start()
        with socket.create_connection(listening.getsockname(), timeout=TIMEOUT_S) as raw:
            dialled = _dial(raw, client)
        thread.join()
    return Meeting(found[0], dialled)


def visit(server: ssl.SSLContext, visitor: Callable[[socket.socket], None]) -> Verdict:
    """What the listening end makes of somebody who does as `visitor` does."""
    found: list[Verdict] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: found.append(_listen(listening, server)))
        thread.start()
        with socket.create_connection(listening.getsockname(), timeout=TIMEOUT_S) as raw:
            visitor(raw)
        thread.join()
    return found[0]


def _listen(listening: socket.socket, context: ssl.SSLContext) -> Verdict:
    raw, _ = listening.accept()
    raw.settimeout(TIMEOUT_S)
    with raw:
        try:
            with context.wrap_socket(raw, server_side=True) as connection:
                identity = peer_identity(connection)
                connection.sendall(b"!")
                connection.recv(1)
        except IdentityError as error:
            return error
        except OSError as error:
            return refusal_of(error)
        return identity


def _dial(raw: socket.socket, context: ssl.SSLContext) -> Verdict:
    try:
        with context.wrap_socket(raw) as connection:
            identity = peer_identity(connection)
            if connection.recv(1) != b"!":
                raise ConnectionResetError("the other end closed")
            connection.sendall(b"!")
    except IdentityError as error:
        return error
    except OSError as error:
        return refusal_of(error)
    return identity
