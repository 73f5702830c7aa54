"""A store in a parent's place: what the session says to a parent is heard here, and answered from the store.

The session above does not change: it hears SIGNER, TERM, INDEX, HEAD, BEGIN, buckets and manifests, and checks them all
itself. `StoreParent` is the link it talks to; `StoreFollower` polls and fetches, in one thread and the reader's own.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.objects import KeptBucket
from sync_runtime.errors import FormatError, SpoolError, SyncError
from sync_runtime.transport.events import (
    BucketFailed,
    BucketKept,
    DialFailed,
    Emit,
    MessageArrived,
    ParentConnected,
    ParentGone,
)
from sync_runtime.transport.messages import (
    Abort,
    Drop,
    Follow,
    LayoutDocument,
    ManifestEnvelope,
    Message,
    Want,
    Welcome,
)
from sync_runtime.transport.object_store.errors import StoreMissingError
from sync_runtime.transport.object_store.pointer import Line, Pointer, Row
from sync_runtime.transport.object_store.reader import StoreReader
from sync_runtime.transport.object_store.route import find_anchor_route, find_route
from sync_runtime.transport.object_store.telling import (
    find_row,
    find_version,
    line_of,
    news_of,
    offer_of,
    void_offer,
)
from sync_runtime.transport.stream import BucketSink

STORE_NAME: Final = "object-store"
POLL_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0
SHUNNED_S: Final = 60.0
"""After the session turned the store away for what it said."""
_JOIN_S: Final = 10.0


class Witness(Protocol):
    """Who is told how a follower fares; in the follower's thread."""

    def fine(self, seq: int | None) -> None:
        """A turn ended well; the newest version that the store names."""

    def failed(self, error: Exception) -> None:
        """A turn failed."""

    def fetched(self, key: ObjectKey, size_bytes: int, spent_s: float) -> None:
        """All of an object was handed over."""


@dataclass
class StoreParent:
    """What the session takes for a link to its parent. Thread-safe."""

    wake: threading.Event
    name: str = STORE_NAME
    held: VersionRef | None = None
    """What the member will hold when all that was begun is there."""
    follow: Follow | None = None
    """Its last word; None: it waits for nothing, or must say anew what it holds."""
    closed: tuple[str, str, bool] | None = None
    """Reason, sentence, and whether trying again can help."""
    layouts: set[str] = field(default_factory=set)
    _wants: deque[Want] = field(default_factory=deque)
    _dropped: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Message) -> None:
        """Hears what the session says; what a store cannot heed it does not hear."""
        with self._lock:
            match message:
                case Follow():
                    self.follow = message
                    known = message.lineage is not None and message.seq is not None
                    self.held = VersionRef(message.lineage or "", message.seq or 0) if known else None
                case Want():
                    self._wants.append(message)
                case Drop(transfer=transfer):
                    self._dropped.add(transfer)
                    self.follow = None
                case _:
                    return
        self.wake.set()

    def finish(self, transfer: int) -> None:
        """Nothing is kept of a transfer that is over."""
        with self._lock:
            self._dropped.discard(transfer)

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """The session turns away what the store says."""
        with self._lock:
            self.closed = self.closed or (reason, message, retry)
        self.wake.set()

    def end_if_expired(self, now: datetime.datetime) -> bool:
        """A store has no certificate of ours that could end."""
        del now
        return False

    def advance(self, follow: Follow, target: VersionRef) -> bool:
        """Reckons with a version that was sent; False: the session has said something else since."""
        with self._lock:
            is_current = self.follow is follow
            if is_current:
                self.held = target
            return is_current

    def take_want(self) -> Want | None:
        """The next object that was asked for by name."""
        with self._lock:
            return self._wants.popleft() if self._wants else None

    def is_dropped(self, transfer: int) -> bool:
        """Whether the session wants no more of a transfer."""
        with self._lock:
            return self.closed is not None or transfer in self._dropped


class StoreFollower:
    """Follows a store for a session, as a dialler keeps a link to a parent."""

    def __init__(
        self,
        reader: StoreReader,
        emit: Emit,
        sink: BucketSink,
        *,
        poll_s: float = POLL_S,
        renewed: Callable[[], None] = lambda: None,
        stopping: threading.Event | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`renewed` is called in the follower's own thread after `renew`: certificates changed. `stopping` is set when
        it closes; a reader whose patience heeds it ends with it."""
        self._reader = reader
        self._renewed = renewed
        self._renewing = False
        self._emit = emit
        self._witness = witness
        self._sink = sink
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._link: StoreParent | None = None
        self._next_transfer = 1
        self._failures = 0
        self._shunned_until_s = 0.0
        self._stopping = stopping or threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-follower", daemon=True)

    @property
    def link(self) -> StoreParent | None:
        """What the session talks to; None: the store has said nothing yet."""
        return self._link

    def start(self) -> None:
        """Polls from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Polls now: somebody knows of news."""
        self._wake.set()

    def renew(self) -> None:
        """Heeds new certificates at the next turn."""
        self._renewing = True
        self._wake.set()

    def close(self) -> None:
        """Polls no more; what was fetched stays."""
        self._stopping.set()
        if self._link is not None:
            self._link.close("ShuttingDown", "this member ends")
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        self._reader.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self.turn()
                if self._witness is not None:  # also while there is nothing yet: the store has answered
                    head = None if self._reader.pointer is None else self._reader.pointer.head
                    self._witness.fine(None if head is None else head.seq)
            except SyncError as error:
                self._failures += 1
                if self._witness is not None:
                    self._witness.failed(error)
                reason = type(error).__name__.removesuffix("Error")
                self._emit(DialFailed(STORE_NAME, reason, str(error), error.retry_helps))
            self._wake.wait(self._pause_s())
            if self._failures:
                self._stopping.wait(min(self._pause_s(), self._poll_s))  # what wakes us does not mend it: no circles

    def turn(self) -> None:
        """One look at the store, and all that the session waits for; raises SyncError."""
        self._let_go()
        if self._renewing:
            self._renewing = False
            self._renewed()
        news = self._reader.poll()
        pointer = self._reader.pointer
        if pointer is None or time.monotonic() < self._shunned_until_s:
            return
        link = self._link
        if link is None:
            link = self._link = StoreParent(self._wake)
            self._emit(ParentConnected(link, _welcome(pointer)))
            news = pointer
        if news is not None:
            for message in news_of(news):
                self._emit(MessageArrived(link, message))
        while (want := link.take_want()) is not None:
            self._answer(link, pointer, want)
        self._bring_on(link, pointer)
        self._failures = 0

    def _let_go(self) -> None:
        link = self._link
        if link is None or link.closed is None:
            return
        reason, message, retry = link.closed
        self._link = None
        self._shunned_until_s = time.monotonic() + (0.0 if retry else SHUNNED_S)
        self._emit(ParentGone(link, reason, message))

    def _answer(self, link: StoreParent, pointer: Pointer, want: Want) -> None:
        """An object that was asked for by name; an anchor of another version is as good, with what follows it."""
        try:
            key = parse_key(want.key)
        except FormatError:
            return
        row = find_row(pointer, key)
        anchored = find_anchor_route(pointer) if key.is_anchor and key.part is None else None
        if row is None and anchored is not None:
            row = anchored.steps[0]
        if row is None:
            self._answer_otherwise(link, pointer, key)
            return
        have = frozenset(index for first, end in want.have for index in range(first, end)) if row.key == key else ()
        self._fetch(link, pointer, row, frozenset(have))

    def _answer_otherwise(self, link: StoreParent, pointer: Pointer, key: ObjectKey) -> None:
        """A store merges nothing: what leads to the same version comes instead, and whoever asked looks again."""
        route = find_route(pointer, key.base)
        reason = "NotFound"
        if route is not None and key.target == pointer.head:
            reason = "Superseded"
            for row in route.steps:
                if not self._fetch(link, pointer, row, frozenset()):
                    return
        transfer = self._number()
        self._emit(MessageArrived(link, void_offer(pointer, key, transfer)))
        self._emit(MessageArrived(link, Abort(transfer=transfer, reason=reason)))

    def _bring_on(self, link: StoreParent, pointer: Pointer) -> None:
        """What follows the version that the member said it holds."""
        follow = link.follow
        if follow is None:
            return
        held = link.held or find_version(pointer, follow.digest)
        route = find_route(pointer, held)
        if route is None and follow.want_anchor and follow.out_of_service:
            route = find_anchor_route(pointer)
        for row in () if route is None else route.steps:
            if not self._fetch(link, pointer, row, frozenset()) or not link.advance(follow, row.key.target):
                return

    def _fetch(self, link: StoreParent, pointer: Pointer, row: Row, have: frozenset[int]) -> bool:
        """Brings an object to the session; whether all of it came. A store that is away raises SyncError."""
        transfer, began_s = self._number(), time.monotonic()
        try:
            envelope, manifest = self._reader.manifest(pointer, row)
            self._bring_layout(link, line_of(pointer, row))
        except StoreMissingError:
            self._emit(MessageArrived(link, void_offer(pointer, row.key, transfer)))
            self._give_up(link, transfer, "NotFound")  # the pointer was read a moment ago: the store has lost it
            raise
        self._emit(MessageArrived(link, offer_of(pointer, row, manifest, transfer)))
        missing = [index for index in range(len(manifest.buckets)) if index not in have]
        try:
            self._reader.fetch_buckets(row, manifest, missing, _Keeper(self, link, row.key, transfer).keep)
        except _DroppedError:
            return False
        except SyncError as error:
            self._give_up(link, transfer, "NotFound" if isinstance(error, StoreMissingError) else "Gone")
            raise
        if self._witness is not None:
            self._witness.fetched(row.key, manifest.size_bytes, time.monotonic() - began_s)
        self._emit(MessageArrived(link, ManifestEnvelope(transfer, envelope)))
        return not link.is_dropped(transfer)

    def _bring_layout(self, link: StoreParent, line: Line) -> None:
        if line.layout_hash not in link.layouts:
            self._emit(MessageArrived(link, LayoutDocument(self._reader.layout(line))))
            link.layouts.add(line.layout_hash)

    def _give_up(self, link: StoreParent, transfer: int, reason: str) -> None:
        link.follow = None  # the session says anew what it holds
        self._emit(MessageArrived(link, Abort(transfer=transfer, reason=reason)))

    def kept(self, link: StoreParent, key: ObjectKey, transfer: int, bucket: KeptBucket, data: memoryview) -> None:
        """Hands one bucket over; in one of the reader's threads."""
        if link.is_dropped(transfer):
            raise _DroppedError("the session wants no more of it")
        text = key.text
        try:
            self._sink.put(
                transfer=transfer, key=text, index=bucket.index, offset=bucket.offset, data=data, sha256=bucket.sha256
            )
        except (SpoolError, FormatError) as error:
            self._emit(BucketFailed(link, transfer, text, bucket.index, error))
            raise _DroppedError("it could not be kept") from error
        self._emit(BucketKept(link, transfer, text, bucket.index, bucket.size_bytes))

    def _number(self) -> int:
        number = self._next_transfer
        self._next_transfer += 1
        return number

    def _pause_s(self) -> float:
        if not self._failures:
            return self._poll_s
        return float(min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LAST_PAUSE_S))


class _DroppedError(SyncError):
    """A transfer that the session let go of; it never leaves this module."""


@dataclass(frozen=True)
class _Keeper:
    """Where the buckets of one transfer go."""

    follower: StoreFollower
    link: StoreParent
    key: ObjectKey
    transfer: int

    def keep(self, bucket: KeptBucket, data: memoryview) -> None:
        """One bucket."""
        self.follower.kept(self.link, self.key, self.transfer, bucket, data)


def _welcome(pointer: Pointer) -> Welcome:
    """As a parent would greet, for whoever looks at it."""
    return Welcome(
        protocol=1,
        member=STORE_NAME,
        term=pointer.term,
        incarnation=pointer.incarnation,
        token="0" * 32,
        streams=1,
        heartbeat_ms=1000,
    )
