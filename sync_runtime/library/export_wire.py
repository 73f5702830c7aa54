"""One end of the connection between owner and GPU worker: frames over a Unix socket, requests and their answers.

Both ends are alike: one thread receives and calls a handler, any thread sends or asks. Checks who is at the other end
(`SO_PEERCRED`). Knows nothing of tensors; does not dial again by itself.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.library.export_errors import error_of
from sync_runtime.library.export_messages import (
    LINK_ID,
    MAX_TEXT_CHARACTERS,
    Activated,
    Closed,
    Export,
    Failure,
    Message,
    Opened,
    Published,
    Scrubbed,
    Valid,
)
from sync_runtime.library.export_schema import limit_of, pack, parse
from sync_runtime.local.frames import FrameBuffer

SEND_TIMEOUT_S = 30.0
MAX_FIRST_BYTES = 4 << 10
"""Of a frame before the greeting is over."""
_RECEIVE_BYTES = 1 << 18
_CREDENTIALS = struct.Struct("3i")
Answer = Failure | Export | Opened | Valid | Published | Activated | Scrubbed | Closed
_ANSWERS = (Failure, Export, Opened, Valid, Published, Activated, Scrubbed, Closed)
T = TypeVar("T")


class Wire:
    """A connected socket. `lost` makes the error that whoever waits is told at the end."""

    def __init__(self, connection: socket.socket, lost: Callable[[str], SyncError]) -> None:
        self._socket, self._lost = connection, lost
        connection.settimeout(SEND_TIMEOUT_S)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._frames = FrameBuffer(self._limit_of)
        self._is_greeting = False
        self._due: SyncError | None = None
        """What the next `receive` raises: messages came before it, and were handed out first."""
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: dict[int, Answer | None] = {}
        self._ended: SyncError | None = None
        self._ids = itertools.count(LINK_ID + 1)
        _OPEN.add(self)

    def new_id(self) -> int:
        """For the next request of this end."""
        return next(self._ids)

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called: what was asked and not answered never will be."""
        with self._changed:
            return self._ended is not None

    def send(self, message: Message) -> None:
        """Sends a message whole; raises what the connection ended with, or what `lost` makes."""
        data = pack(message)
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            with self._changed:
                raise self._ended or self._lost(error.strerror or str(error)) from error

    def fail(self, request_id: int, error: SyncError) -> None:
        """Answers a request with an error; says nothing to an end that is gone."""
        try:
            self.send(Failure(request_id, type(error).__name__, str(error)[:MAX_TEXT_CHARACTERS], error.retry_helps))
        except LocalError:
            return

    def ask(self, request: Message, request_id: int, answer: type[T] | tuple[type[T], ...], timeout_s: float) -> T:
        """Sends a request and waits for its answer, which another thread receives; raises what is answered instead."""
        with self._changed:
            self._waiting[request_id] = None
        try:
            self.send(request)
            with self._changed:
                self._changed.wait_for(lambda: self._waiting[request_id] is not None or self._ended, timeout_s)
                found = self._waiting[request_id]
                if found is None:
                    raise self._ended or self._lost(f"no answer to {type(request).__name__} for {timeout_s:.3g} s")
        finally:
            with self._changed:
                del self._waiting[request_id]
        if isinstance(found, Failure):
            raise error_of(found.kind, found.message, retry=found.retry)
        if not isinstance(found, answer):
            raise LocalProtocolError(f"{type(request).__name__} was answered by {type(found).__name__}")
        return found

    def resolve(self, message: Message) -> bool:
        """Hands an answer to whoever waits for it; False where nobody does."""
        if not isinstance(message, _ANSWERS):
            return False
        with self._changed:
            if message.id not in self._waiting:
                return False
            self._waiting[message.id] = message
            self._changed.notify_all()
        return True

    def run(self, handle: Callable[[Message], None], silent_s: float | None = None) -> SyncError:
        """Receives until the end, which it returns; a message that breaks the protocol is answered and ends it.

        `silent_s`: an end that says nothing for so long is lost.
        """
        try:
            while True:
                for message in self.receive(silent_s):
                    handle(message)
        except SyncError as error:
            if isinstance(error, LocalProtocolError):
                self.fail(LINK_ID, error)
            self.end(error)
            return error

    def receive(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages; raises what `lost` makes at the end, and what the other end ended the connection with."""
        if self._due is not None:
            raise self._due
        try:
            if not self._poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
                raise self._lost(f"it said nothing for {timeout_s:.3g} s")
            data = self._socket.recv(_RECEIVE_BYTES)
        except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
            raise self._lost(str(error)) from error
        if not data:
            raise self._lost("it closed the connection")
        found: list[Message] = []
        try:
            for kind, body in self._frames.feed(data):
                message = parse(kind, body)
                if isinstance(message, Failure) and message.id == LINK_ID:
                    raise error_of(message.kind, message.message, retry=message.retry)
                found.append(message)
        except SyncError as error:
            if not found:
                raise
            self._due = error
        return found

    def first(self, timeout_s: float) -> Message:
        """The first message of the other end, whole within `timeout_s`; it says nothing more before it is answered."""
        deadline = time.monotonic() + timeout_s
        found: list[Message] = []
        self._is_greeting = True
        try:
            while not found:
                rest_s = deadline - time.monotonic()
                if rest_s <= 0:
                    raise self._lost(f"its first message did not come within {timeout_s:.3g} s")
                found = self.receive(rest_s)
        finally:
            self._is_greeting = False
        if len(found) > 1:
            raise LocalProtocolError("the other end spoke before it was answered")
        return found[0]

    def end(self, error: SyncError) -> None:
        """Whoever waits is told; the connection is closed."""
        with self._changed:
            self._ended = self._ended or error
            self._changed.notify_all()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was faster
            pass
        finally:
            self._socket.close()
            _OPEN.discard(self)

    def _limit_of(self, code: int) -> int:
        """Whoever has not introduced itself gets no memory."""
        limit_bytes = limit_of(code)
        return min(limit_bytes, MAX_FIRST_BYTES) if self._is_greeting else limit_bytes

    def forget(self) -> None:
        """In a forked child: a copy of the descriptor would hide the parent's death from the other end."""
        self._socket.close()


_OPEN: weakref.WeakSet[Wire] = weakref.WeakSet()


def _forget_in_child() -> None:
    for wire in list(_OPEN):
        wire.forget()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def check_peer(connection: socket.socket, allowed: frozenset[int] = frozenset()) -> None:
    """Raises LocalError unless the other end runs as this user, as root, or as a user that was allowed."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    check_user(_CREDENTIALS.unpack(data)[1], os.getuid(), allowed)


def check_user(uid: int, own_uid: int, allowed: frozenset[int]) -> None:
    """Whoever opens handles can read and write the weights: one user, or root."""
    if uid not in {own_uid, 0} | allowed:
        raise LocalError(f"user {uid} may not share tensors with user {own_uid}: run both under one user")
