"""The one place on the child's side that dials again: keeps one link to the first parent that answers.

`DialOrder` decides whom to dial and when (pure but for the dice it is given); `Dialler` does it in one thread.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import RefusedError, TransportError
from sync_runtime.transport.events import DialFailed, Emit, Event, ParentConnected, ParentGone
from sync_runtime.transport.handshake import Attempt, dial
from sync_runtime.transport.messages import Hello, Welcome
from sync_runtime.transport.parent import ParentLink
from sync_runtime.transport.stream import BucketSink

FIRST_WAIT_S: Final = 0.2
LAST_WAIT_S: Final = 5.0
SHUNNED_S: Final = 60.0
STEADY_S: Final = 10.0
"""A link that lived so long was a success: back-off starts anew."""
LOOK_AROUND_S: Final = 10.0
"""How often a child with a parent that is not its first choice tries those before it."""
POLL_S: Final = 0.25
IDLE_S: Final = 1.0
"""Nothing came for so long: a change of parent interrupts nothing."""
_UNFORGIVEN: Final = frozenset({"BadParent", "BadFrame", "Replaced", "UnprovedTerm"})
"""Ends of a link after which the same parent is not dialled at once."""
RENEWED: Final = "Renewed"
NEW_PLAN: Final = "NewPlan"
BETTER_PARENT: Final = "BetterParent"
_OUR_WISH: Final = frozenset({NEW_PLAN, BETTER_PARENT})
_JOIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Whom to dial next, after waiting."""

    endpoint: Endpoint
    wait_s: float


@dataclass(frozen=True, slots=True)
class _Answered:
    """A parent that welcomed us."""

    endpoint: Endpoint
    hello: Hello
    connection: ssl.SSLSocket
    welcome: Welcome


class DialOrder:
    """Parents in their order; back-off after a round in which none answered; those that said never stay away 60 s."""

    def __init__(self, parents: Sequence[Endpoint], dice: Callable[[], float]) -> None:
        self._parents = tuple(parents)
        self._dice = dice
        self._shunned_until_s: dict[str, float] = {}
        self._next = 0
        self._wait_s = 0.0

    @property
    def parents(self) -> tuple[Endpoint, ...]:
        """The list in use."""
        return self._parents

    def replace(self, parents: Sequence[Endpoint]) -> None:
        """A new plan: everyone gets a new chance."""
        self._parents = tuple(parents)
        self._shunned_until_s.clear()
        self._next = 0
        self._wait_s = 0.0

    def turn(self, now_s: float) -> Turn | None:
        """None: nobody to dial."""
        if not self._parents:
            return None
        for at in range(self._next, len(self._parents)):
            if self._shunned_until_s.get(self._parents[at].member, now_s) <= now_s:
                self._next = at + 1
                return Turn(self._parents[at], 0.0)
        # The round is over: wait, then begin with the first that may be dialled by then.
        wait_s = self._wait_s * (0.5 + self._dice() / 2)
        self._wait_s = min(max(2 * self._wait_s, FIRST_WAIT_S), LAST_WAIT_S)
        free = [self._shunned_until_s.get(parent.member, now_s) - now_s for parent in self._parents]
        wait_s = max(wait_s, min(free))
        at = next(place for place, left_s in enumerate(free) if left_s <= wait_s)
        self._next = at + 1
        return Turn(self._parents[at], wait_s)

    def before(self, endpoint: Endpoint, now_s: float) -> tuple[Endpoint, ...]:
        """The parents that are preferred to this one and may be dialled."""
        at = self._parents.index(endpoint) if endpoint in self._parents else 0
        return tuple(
            parent for parent in self._parents[:at] if self._shunned_until_s.get(parent.member, now_s) <= now_s
        )

    def failed(self, endpoint: Endpoint, now_s: float, *, retry: bool) -> None:
        """It could not be reached, or refused."""
        if not retry:
            self._shunned_until_s[endpoint.member] = now_s + SHUNNED_S
        self._wait_s = max(self._wait_s, FIRST_WAIT_S)

    def ended(self, endpoint: Endpoint, now_s: float, *, lasted_s: float, reason: str) -> None:
        """A link to it is over: begin with the first again."""
        at = self._parents.index(endpoint) if endpoint in self._parents else None
        self._next = 0
        if reason in _UNFORGIVEN:
            self.failed(endpoint, now_s, retry=False)
        elif reason == RENEWED:
            self._next = at or 0
        elif lasted_s >= STEADY_S or reason in _OUR_WISH:
            self._wait_s = 0.0
        else:
            self._next = 0 if at is None else at + 1
            self._wait_s = max(self._wait_s, FIRST_WAIT_S)


class Dialler:
    """Keeps one ParentLink alive."""

    def __init__(
        self,
        parents: Sequence[Endpoint],
        *,
        tls: Callable[[], ssl.SSLContext],
        hello: Hello,
        emit: Emit,
        sink: BucketSink,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._tls = tls
        self._hello = hello
        self._emit = emit
        self._sink = sink
        self._dice = dice
        self._lock = threading.Lock()
        self._order = DialOrder(parents, dice)
        self._link: ParentLink | None = None
        self._renewing: ParentLink | None = None
        self._attempt = Attempt()
        self._gone: ParentGone | None = None
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dialler", daemon=True)

    @property
    def link(self) -> ParentLink | None:
        """The link that lives now."""
        with self._lock:
            return self._link

    def start(self) -> None:
        """Dial from now on."""
        self._thread.start()

    def set_parents(self, parents: Sequence[Endpoint]) -> None:
        """A new plan. A link to one that is no longer the first choice ends; what is verified stays."""
        with self._lock:
            if tuple(parents) == self._order.parents:
                return
            self._order.replace(parents)
            link = self._link
        if link and (not parents or link.endpoint != parents[0]):
            link.close(NEW_PLAN, "the plan names another parent")
        self._changed.set()

    def set_term(self, term: int) -> None:
        """The newest term that is known here, for the next HELLO."""
        with self._lock:
            self._hello = self._hello.model_copy(update={"term": term})

    def renew(self) -> None:
        """Dial the same parent anew, for new certificates, in the next pause: what is verified stays."""
        with self._lock:
            self._renewing = self._link

    def close(self, reason: str = "ShuttingDown", message: str = "this member ends") -> None:
        """End the link and dial no more."""
        with self._lock:
            self._closed = True
            link = self._link
            self._attempt.cancel()
        self._changed.set()
        if link:
            link.close(reason, message)
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
                answered = self._dial(turn.endpoint)
                while answered is not None:
                    answered = self._stay(answered)

    def _dial(self, endpoint: Endpoint) -> _Answered | None:
        """Dial one parent; None: it is away or refused, and that is noted."""
        with self._lock:
            hello = self._hello
            attempt = self._attempt = Attempt()
            if self._closed:
                return None
        try:
            connection, welcome = dial(endpoint, self._tls(), hello, attempt)
        except TransportError as error:
            refusal = error if isinstance(error, RefusedError) else RefusedError("Unreachable", str(error), retry=True)
            with self._lock:
                self._order.failed(endpoint, time.monotonic(), retry=refusal.retry)
            self._emit(DialFailed(endpoint.member, refusal.reason, str(error), refusal.retry))
            return None
        return _Answered(endpoint, hello, connection, welcome)

    def _stay(self, answered: _Answered) -> _Answered | None:
        """Live with a parent as long as it lasts, or until a better one answers: that one then."""
        endpoint = answered.endpoint
        link = ParentLink(
            answered.connection,
            answered.welcome,
            endpoint=endpoint,
            hello=answered.hello,
            tls=self._tls,
            emit=self._note,
            sink=self._sink,
        )
        with self._lock:
            self._link, self._gone, self._renewing = link, None, None
            closed = self._closed
        began_s = time.monotonic()
        self._emit(ParentConnected(link, answered.welcome))
        link.start()
        if closed:
            link.close("ShuttingDown", "this member ends")
        better = self._look_around(link)
        link.join()
        with self._lock:
            self._link = None
            reason = self._gone.reason if self._gone else "Lost"
            now_s = time.monotonic()
            self._order.ended(endpoint, now_s, lasted_s=now_s - began_s, reason=reason)
        return better

    def _look_around(self, link: ParentLink) -> _Answered | None:
        """Wait for the link's end. Meanwhile, in pauses, dial those that come before this parent in the list."""
        next_look_s = time.monotonic() + self._look_around_s()
        while not link.closed.wait(POLL_S):
            now_s = time.monotonic()
            if link.idle_s < IDLE_S:
                continue
            with self._lock:
                renewing = self._renewing is link
                candidates = self._order.before(link.endpoint, now_s) if now_s >= next_look_s else ()
            if renewing:
                link.close(RENEWED, "this member has a new certificate")
                return None
            for endpoint in candidates:
                next_look_s = now_s + self._look_around_s()
                if answered := self._dial(endpoint):
                    link.close(BETTER_PARENT, f"{endpoint.member} is back")
                    return answered
        return None

    def _look_around_s(self) -> float:
        return LOOK_AROUND_S * (0.5 + self._dice() / 2)

    def _note(self, event: Event) -> None:
        if isinstance(event, ParentGone):
            self._gone = event
        self._emit(event)
