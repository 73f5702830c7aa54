"""The one place on a worker's side that dials its trainer again: keeps one work connection to it.

One thread; whom to dial and when is `DialOrder`'s decision, with the trainer as the only parent.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import RefusedError, TransportError
from sync_runtime.identity.tls import peer_certificate
from sync_runtime.transport.dialler import DialOrder
from sync_runtime.transport.events import DialFailed, Emit, Event, WorkConnected, WorkGone
from sync_runtime.transport.handshake import Attempt, dial
from sync_runtime.transport.messages import Hello
from sync_runtime.transport.wire import TO_WORKER
from sync_runtime.transport.work_link import WorkLink

_JOIN_S: Final = 10.0
_POLL_S: Final = 0.25


class WorkDialler:
    """Keeps one WorkLink alive while there is a trainer to dial."""

    def __init__(
        self,
        trainer: Endpoint | None,
        *,
        tls: Callable[[], ssl.SSLContext],
        hello: Hello,
        emit: Emit,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tls, self._hello, self._emit = tls, hello, emit
        self._lock = threading.Lock()
        self._trainer = trainer
        self._order = DialOrder(() if trainer is None else (trainer,), dice)
        self._link: WorkLink | None = None
        self._attempt = Attempt()
        self._end: tuple[str, str] = ("Lost", "")
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="work dialler", daemon=True)

    @property
    def link(self) -> WorkLink | None:
        """The link that lives now."""
        with self._lock:
            return self._link

    def start(self) -> None:
        """Dial from now on."""
        self._thread.start()

    def set_trainer(self, trainer: Endpoint | None) -> None:
        """A new plan; a link to another endpoint ends."""
        with self._lock:
            if trainer == self._trainer:
                return
            self._trainer = trainer
            self._order.replace(() if trainer is None else (trainer,))
            link = self._link
        if link:
            link.close("NewPlan", "the plan names another trainer")
        self._changed.set()

    def set_term(self, term: int) -> None:
        """The newest term that is known here: whoever led before is left, and refuses the next HELLO."""
        with self._lock:
            self._hello = self._hello.model_copy(update={"term": term})
            link = self._link
        if link:
            link.close("NewPlan", f"term {term} began")

    def renew(self) -> None:
        """Dial anew, for new certificates; what waits is sent again."""
        link = self.link
        if link:
            link.close("Renewed", "this member has a new certificate")

    def close(self) -> None:
        """End the link and dial no more."""
        with self._lock:
            self._closed = True
            link = self._link
            self._attempt.cancel()
        self._changed.set()
        if link:
            link.close("ShuttingDown", "this member ends")
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._closed:
            self._changed.clear()
            with self._lock:
                turn = self._order.turn(time.monotonic())
            if turn is None:
                self._changed.wait()
            elif not self._changed.wait(turn.wait_s):
                self._dial(turn.endpoint)

    def _dial(self, endpoint: Endpoint) -> None:
        with self._lock:
            hello, attempt = self._hello, Attempt()
            self._attempt = attempt
            if self._closed:
                return
        try:
            connection, welcome = dial(endpoint, self._tls(), hello, attempt)
        except TransportError as error:
            refusal = error if isinstance(error, RefusedError) else RefusedError("Unreachable", str(error), retry=True)
            with self._lock:
                self._order.failed(endpoint, time.monotonic(), retry=refusal.retry)
            self._emit(DialFailed(endpoint.member, refusal.reason, str(error), refusal.retry))
            return
        link = WorkLink(
            connection,
            name=endpoint.member,
            takes=TO_WORKER,
            heartbeat_s=welcome.heartbeat_ms / 1000,
            ends_at=peer_certificate(connection).not_after,
            emit=self._note,
        )
        self._stay(endpoint, link)

    def _stay(self, endpoint: Endpoint, link: WorkLink) -> None:
        with self._lock:
            self._link = link
            closed = self._closed
        began_s = time.monotonic()
        self._emit(WorkConnected(link))
        link.start()
        if closed:
            link.close("ShuttingDown", "this member ends")
        while not link.closed.wait(_POLL_S):
            pass
        link.join()
        with self._lock:
            self._link = None
            now_s = time.monotonic()
            self._order.ended(endpoint, now_s, lasted_s=now_s - began_s, reason=self._end[0])

    def _note(self, event: Event) -> None:
        if isinstance(event, WorkGone):
            self._end = event.reason, event.message
        self._emit(event)
