"""Where children arrive: accepts, greets, admits, and gives every connection to its link.

Limits come before trust: so many connections before their HELLO, so many children, so many streams, ten seconds for a
handshake. Every refusal is counted by reason and told. Who may come in is the policy's decision.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sync_runtime.errors import RefusedError, SyncError, TransportError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.transport import sockets
from sync_runtime.transport.child import ChildLink
from sync_runtime.transport.events import ChildConnected, ChildGone, Emit, Event, Refused, WorkConnected, WorkGone
from sync_runtime.transport.handshake import HANDSHAKE_S, Greeted, greet, turn_away, welcome
from sync_runtime.transport.messages import Hello, Welcome
from sync_runtime.transport.wire import FROM_WORKER, PROTOCOL_VERSIONS
from sync_runtime.transport.work_link import WorkLink

_OUT_OF_FILES_S: Final = 0.1
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a listener takes."""

    unproven: int = 64
    """Connections before their HELLO."""
    children: int = 256
    handshake_s: float = HANDSHAKE_S
    backlog: int = 128


@dataclass(frozen=True, slots=True)
class Admission:
    """What a child is told when it is let in."""

    member: str
    """Our own name."""
    term: int
    incarnation: str | None
    streams: int
    heartbeat_ms: int = 1000


class AdmissionPolicy(Protocol):
    """Who may come in. Called by several threads at once; must not block."""

    def admit(self, identity: MemberIdentity, hello: Hello) -> Admission:
        """For control connections and data streams alike; raises a SyncError or IdentityError."""


class Listener:
    """A listening port and the children behind it."""

    def __init__(
        self,
        address: tuple[str, int],
        tls: Callable[[], ssl.SSLContext],
        policy: AdmissionPolicy,
        emit: Emit,
        limits: Limits | None = None,
        *,
        ends_at: Callable[[], datetime.datetime] | None = None,
    ) -> None:
        self._tls = tls
        self._ends_at = ends_at
        """When our own certificate ends, the one that `tls` gives out."""
        self._policy = policy
        self._emit = emit
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._links: dict[str, ChildLink] = {}
        self._workers: dict[str, WorkLink] = {}
        self._ends: dict[ChildLink, datetime.datetime] = {}
        """When the first certificate under a link ends, the child's or ours."""
        self._newest: dict[tuple[str, str], int] = {}
        """By kind and member the number of the connection that has its link; they are numbered as they are accepted."""
        self._unproven: set[socket.socket] = set()
        self._refusals: Counter[str] = Counter()
        self._closed = False
        try:
            self._socket = sockets.listening_socket(*address, self._limits.backlog)
        except OSError as error:
            raise TransportError(f"cannot listen on {address[0]}:{address[1]}: {error}") from error
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=f"listener {self.port}", daemon=True)

    @property
    def children(self) -> tuple[ChildLink, ...]:
        """The links that live."""
        with self._lock:
            return tuple(self._links.values())

    @property
    def refusals(self) -> dict[str, int]:
        """How often each reason sent a peer away."""
        with self._lock:
            return dict(self._refusals)

    def start(self) -> None:
        """Accept from now on."""
        self._thread.start()

    def close(self, reason: str = "ShuttingDown", message: str = "this member ends") -> None:
        """Take nobody in any more, and tell every child."""
        with self._lock:
            self._closed = True
            links: list[ChildLink | WorkLink] = [*self._links.values(), *self._workers.values()]
            unproven = list(self._unproven)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        self._socket.close()
        for connection in unproven:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for link in links:
            link.close(reason, message)
        for link in links:
            link.join()

    def end_expired(self, now: datetime.datetime) -> None:
        """End the links that stand on a certificate that has ended: what holds for a handshake holds for them.

        A child that was renewed dials again at once and goes on where it was.
        """
        with self._lock:
            ended = [link for link, end in self._ends.items() if end <= now]
            for link in ended:
                del self._ends[link]
            over: list[tuple[ChildLink | WorkLink, str]] = [(link, str(link.identity)) for link in ended]
            over += [(link, link.name) for link in self._workers.values() if link.ends_at <= now]
        for one, name in over:
            message = "a certificate under this link has ended: renew it and dial again"
            one.close("Expired", message)
            self._count("Expired", name, message)

    def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                connection, address = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_OUT_OF_FILES_S)  # too many open files, or a peer that left: neither ends a listener
                continue
            peer = f"{address[0]}:{address[1]}"
            with self._lock:
                crowded = len(self._unproven) >= self._limits.unproven
                if not crowded:
                    self._unproven.add(connection)
            if crowded:
                connection.close()
                self._count("TooMany", peer, f"{self._limits.unproven} connections have not said HELLO yet")
            else:
                threading.Thread(
                    target=self._receive, args=(connection, peer, number), name=f"greeting {peer}", daemon=True
                ).start()

    def _receive(self, connection: socket.socket, peer: str, number: int) -> None:
        """One new connection, in a thread of its own until it has a link."""
        deadline_s = time.monotonic() + self._limits.handshake_s
        ours = None if self._ends_at is None else self._ends_at()  # before `tls`: never later than what that shows
        try:
            greeted = greet(connection, self._tls(), deadline_s)
        except RefusedError as error:
            self._count(error.reason, peer, str(error))
            return
        finally:
            with self._lock:
                self._unproven.discard(connection)
        try:
            admission = self._policy.admit(greeted.identity, greeted.hello)
            ends_at = min(greeted.expires_at, ours or greeted.expires_at)
            if greeted.hello.kind == "control":
                self._open_link(greeted, admission, ends_at, number)
            elif greeted.hello.kind == "work":
                self._open_work(greeted, admission, ends_at, number)
            else:
                self._add_stream(greeted, admission, deadline_s)
        except OSError as error:  # it left while its options were set
            greeted.connection.close()
            self._count("HandshakeFailed", f"{greeted.identity} at {peer}", f"the connection broke: {error}")
        except (SyncError, IdentityError) as error:
            refusal = _refusal(error)
            turn_away(greeted.connection, refusal)
            self._count(refusal.reason, f"{greeted.identity} at {peer}", str(refusal))

    def _take_turn(self, greeted: Greeted, number: int) -> None:
        """A member gave up waiting and dialled again: what it dialled last counts, whichever is greeted first.

        Otherwise the connection that it has left would end the one that it uses. The caller holds the lock.
        """
        key = greeted.hello.kind, greeted.identity.member
        if number < self._newest.get(key, 0):
            raise RefusedError("Replaced", "the member has connected anew", retry=False)
        self._newest[key] = number

    def _open_link(self, greeted: Greeted, admission: Admission, ends_at: datetime.datetime, number: int) -> None:
        sockets.prepare(greeted.connection)
        with self._lock:
            if self._closed:
                raise RefusedError("ShuttingDown", "this member ends", retry=True)
            replaced = self._links.get(greeted.identity.member)
            if replaced is None and len(self._links) >= self._limits.children:
                raise RefusedError("TooMany", f"this member has {self._limits.children} children", retry=True)
            self._take_turn(greeted, number)
            link = self._links[greeted.identity.member] = ChildLink(
                greeted.connection,
                greeted.hello,
                greeted.identity,
                token=secrets.token_hex(16),
                streams=admission.streams,
                heartbeat_s=admission.heartbeat_ms / 1000,
                emit=self._from_child,
            )
            self._ends[link] = ends_at
        if replaced:
            replaced.close("Replaced", "the member has connected anew", retry=False)
        link.send(_welcome(admission, link.token))
        self._emit(ChildConnected(link))
        link.start()

    def _open_work(self, greeted: Greeted, admission: Admission, ends_at: datetime.datetime, number: int) -> None:
        sockets.prepare(greeted.connection)
        name = greeted.identity.member
        with self._lock:
            if self._closed:
                raise RefusedError("ShuttingDown", "this member ends", retry=True)
            replaced = self._workers.get(name)
            if replaced is None and len(self._workers) >= self._limits.children:
                raise RefusedError("TooMany", f"this trainer has {self._limits.children} workers", retry=True)
            self._take_turn(greeted, number)
            link = self._workers[name] = WorkLink(
                greeted.connection,
                name=name,
                takes=FROM_WORKER,
                heartbeat_s=admission.heartbeat_ms / 1000,
                ends_at=ends_at,
                emit=self._from_worker,
            )
        if replaced:
            replaced.close("Replaced", "the member has connected anew", retry=False)
        link.send(_welcome(admission, secrets.token_hex(16)))
        self._emit(WorkConnected(link))
        link.start()

    def _from_worker(self, event: Event) -> None:
        if isinstance(event, WorkGone):
            with self._lock:
                if self._workers.get(event.link.name) is event.link:
                    del self._workers[event.link.name]
            if event.reason == "BadFrame":
                self._count(event.reason, event.link.name, event.message)
        self._emit(event)

    def _add_stream(self, greeted: Greeted, admission: Admission, deadline_s: float) -> None:
        with self._lock:
            link = self._links.get(greeted.identity.member)
        if link is None or not secrets.compare_digest(link.token, greeted.hello.token or ""):
            raise RefusedError("UnknownToken", "dial the control connection first", retry=False)
        answer = _welcome(admission, link.token)
        link.attach(greeted.connection, lambda: welcome(greeted, answer, deadline_s))

    def _from_child(self, event: Event) -> None:
        if isinstance(event, ChildGone):
            self._forget(event.link)
            if event.reason == "BadFrame":
                self._count(event.reason, str(event.link.identity), event.message)
        self._emit(event)

    def _forget(self, link: ChildLink) -> None:
        with self._lock:
            self._ends.pop(link, None)
            if self._links.get(link.name) is link:
                del self._links[link.name]

    def _count(self, reason: str, peer: str, message: str) -> None:
        with self._lock:
            self._refusals[reason] += 1
        self._emit(Refused(reason, peer, message))


def _refusal(error: SyncError | IdentityError) -> RefusedError:
    """Whatever stood against a peer, as it is told and counted."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, IdentityError):
        return RefusedError(error.reason, str(error), retry=error.retry_helps)
    return RefusedError(type(error).__name__.removesuffix("Error"), str(error), retry=error.retry_helps)


def _welcome(admission: Admission, token: str) -> Welcome:
    return Welcome(
        protocol=PROTOCOL_VERSIONS[-1],
        member=admission.member,
        term=admission.term,
        incarnation=admission.incarnation,
        token=token,
        streams=admission.streams,
        heartbeat_ms=admission.heartbeat_ms,
    )
