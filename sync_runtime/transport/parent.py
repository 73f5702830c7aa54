"""The child's end of a link to its parent: a control channel, and data streams that it dials and keeps alive.

Verified buckets go to the sink in the streams' own threads and are acknowledged at once. Judges bytes, not objects:
what to follow, want or drop is the session's business. Which parent to dial is the dialler's.
"""

from __future__ import annotations

import datetime
import random
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract.plan import Endpoint
from sync_runtime.errors import FrameError, RefusedError, SyncError, TransportError
from sync_runtime.identity.tls import peer_certificate
from sync_runtime.transport.channel import Channel
from sync_runtime.transport.events import BucketFailed, BucketKept, Emit, MessageArrived, ParentGone
from sync_runtime.transport.handshake import Attempt, dial
from sync_runtime.transport.messages import (
    Abort,
    Begin,
    Drop,
    Hello,
    ManifestEnvelope,
    Message,
    Refuse,
    Streams,
    Welcome,
)
from sync_runtime.transport.stream import BucketSink, ReceiveStream
from sync_runtime.transport.wire import (
    FROM_PARENT,
    MAX_TRANSFERS,
    MAX_WARMING_BYTES,
    BucketHead,
    pack_acks,
    pack_nack,
)

BEGIN_WAIT_S: Final = 10.0
"""A bucket may overtake its BEGIN, which travels on another connection."""
MAX_REMEMBERED: Final = 4 * MAX_TRANSFERS
FIRST_REDIAL_S: Final = 0.2
LAST_REDIAL_S: Final = 5.0
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReceivedTotals:
    """Counters over the life of a link."""

    kept_bytes: int
    repeated_bytes: int
    """Arrived though they were there."""
    damaged_buckets: int
    warming_bytes: int
    """Meant nothing: they opened windows before the first payload."""


@dataclass(slots=True)
class _Incoming:
    """A transfer that is being received."""

    begin: Begin
    damaged: dict[int, int]


class ParentLink:
    """A parent that welcomed us."""

    def __init__(
        self,
        connection: ssl.SSLSocket,
        welcome: Welcome,
        *,
        endpoint: Endpoint,
        hello: Hello,
        tls: Callable[[], ssl.SSLContext],
        emit: Emit,
        sink: BucketSink,
    ) -> None:
        self.endpoint = endpoint
        self.welcome = welcome
        self._expires_at = peer_certificate(connection).not_after
        self._hello = hello.model_copy(update={"kind": "data", "token": welcome.token})
        self._tls = tls
        self._emit = emit
        self._sink = sink
        self._state = threading.Condition()
        self._transfers: dict[int, _Incoming] = {}
        self._next_transfer = 0
        self._acks: dict[int, list[int]] = defaultdict(list)
        self._wanted_streams = welcome.streams
        self._streams: dict[int, ReceiveStream | Attempt] = {}
        self._next_stream = 0
        self._threads: dict[int, threading.Thread] = {}
        self._leaving = threading.Event()
        self._closed = threading.Event()
        self._kept_bytes = self._repeated_bytes = self._damaged = self._warming_bytes = 0
        self._last_bucket_s = 0.0
        self._channel = Channel(
            connection,
            name=endpoint.member,
            takes=FROM_PARENT,
            heartbeat_s=welcome.heartbeat_ms / 1000,
            handler=self,
        )

    @property
    def name(self) -> str:
        """The parent's member name."""
        return self.endpoint.member

    @property
    def closed(self) -> threading.Event:
        """Set once the link is over."""
        return self._closed

    @property
    def totals(self) -> ReceivedTotals:
        """What came so far."""
        with self._state:
            return ReceivedTotals(self._kept_bytes, self._repeated_bytes, self._damaged, self._warming_bytes)

    @property
    def streams(self) -> int:
        """Data streams that are open."""
        with self._state:
            return sum(isinstance(stream, ReceiveStream) for stream in self._streams.values())

    @property
    def idle_s(self) -> float:
        """How long no bucket has come."""
        with self._state:
            return time.monotonic() - self._last_bucket_s

    def start(self) -> None:
        """Serve the control connection and dial the data streams."""
        self._channel.start()
        self._dial_missing()

    def send(self, message: Message) -> None:
        """FOLLOW, WANT, DROP, STATUS; in order."""
        if isinstance(message, Drop):
            self._forget(message.transfer)
        self._channel.send_message(message)

    def finish(self, transfer: int) -> None:
        """The object is complete: forget the transfer. Late copies of its buckets go nowhere."""
        self._forget(transfer)

    def end_if_expired(self, now: datetime.datetime) -> bool:
        """End the link where the parent's certificate has ended: an honest parent does so itself."""
        expired = self._expires_at <= now
        if expired:
            self.close("Expired", "the certificate under this link has ended: renew it")
        return expired

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """Tell the parent why, and end the link."""
        self._leaving.set()
        self._channel.close(reason, message, refuse=Refuse(reason=reason, message=message, retry=retry))

    def join(self, timeout_s: float = _JOIN_S) -> None:
        """Wait until its threads are over; after `close`."""
        self._channel.join(timeout_s)

    # ---------------------------------------------------------------------------------------- the channel's handler

    def on_message(self, message: Message) -> None:
        """BEGIN, ABORT and STREAMS are noted here; the session hears of all but the last."""
        match message:
            case Streams(count=count):
                with self._state:
                    self._wanted_streams = count
                self._dial_missing()
                return
            case Begin():
                self._note_begin(message)
                return
            case Abort(transfer=transfer):
                self._forget(transfer)
            case ManifestEnvelope(transfer, _) if transfer >= self._next_transfer:
                raise FrameError(f"a manifest for transfer {transfer}, which never began")
            case _:
                pass
        self._emit(MessageArrived(self, message))

    def on_wake(self) -> Iterable[bytes]:
        """The acknowledgements since the last time, many in one frame."""
        with self._state:
            acks, self._acks = self._acks, defaultdict(list)
        return [frame for transfer, indices in acks.items() for frame in pack_acks(transfer, indices)]

    def on_tick(self, now_s: float) -> None:
        """Nothing to do."""

    def on_close(self, reason: str, message: str) -> None:
        """The link is over."""
        self._leaving.set()
        self._closed.set()
        with self._state:
            streams = [(stream, self._threads[number]) for number, stream in self._streams.items()]
            self._state.notify_all()
        for stream, _ in streams:
            if isinstance(stream, Attempt):
                stream.cancel()
            else:
                stream.stop()
        for stream, thread in streams:
            if isinstance(stream, ReceiveStream):  # one that dials may need seconds, and brings nothing any more
                thread.join(_JOIN_S)
        self._emit(ParentGone(self, reason, message))

    def _note_begin(self, begin: Begin) -> None:
        """The session hears of a transfer before any of its buckets is judged: one that cannot be kept ends it."""
        with self._state:
            if begin.transfer < self._next_transfer:
                raise FrameError(f"transfer {begin.transfer} began twice")
            # The parent has MAX_TRANSFERS at most; whoever was idle longest among many more has long ended.
            if len(self._transfers) >= MAX_REMEMBERED:
                del self._transfers[next(iter(self._transfers))]
            self._next_transfer = begin.transfer + 1
            self._transfers[begin.transfer] = _Incoming(begin, {})
            self._emit(MessageArrived(self, begin))
            self._state.notify_all()

    def _forget(self, transfer: int) -> None:
        with self._state:
            self._transfers.pop(transfer, None)

    # ------------------------------------------------------------------------------------ buckets, in their threads

    def take(self, head: BucketHead, data: memoryview) -> None:
        """A bucket with its true hash: keep it, acknowledge it."""
        incoming = self._transfer_of(head)
        if incoming is None:
            return
        begin = incoming.begin
        try:
            fresh = self._sink.put(
                transfer=head.transfer,
                key=begin.key,
                index=head.index,
                offset=head.offset,
                data=data,
                sha256=head.sha256,
            )
        except SyncError as error:
            self.send(Drop(transfer=head.transfer, reason=type(error).__name__.removesuffix("Error")))
            self._emit(BucketFailed(self, head.transfer, begin.key, head.index, error))
            return
        if fresh:
            self._emit(BucketKept(self, head.transfer, begin.key, head.index, head.size_bytes))
        with self._state:
            self._last_bucket_s = time.monotonic()
            self._kept_bytes += head.size_bytes if fresh else 0
            self._repeated_bytes += 0 if fresh else head.size_bytes
            self._acks[head.transfer].append(head.index)
        self._channel.wake()

    def damaged(self, head: BucketHead) -> None:
        """A bucket that is not what its name says: ask again; twice the same, and the parent is bad."""
        incoming = self._transfer_of(head)
        if incoming is None:
            return
        with self._state:
            self._damaged += 1
            count = incoming.damaged[head.index] = incoming.damaged.get(head.index, 0) + 1
        self._channel.send(pack_nack(head.transfer, head.index))
        if count >= 2:
            self.close(
                "BadParent", f"bucket {head.index} of {incoming.begin.key} came damaged {count} times", retry=False
            )

    def warmed(self, size_bytes: int) -> None:
        """Bytes that mean nothing, up to a limit."""
        with self._state:
            self._warming_bytes += size_bytes
            if self._warming_bytes > MAX_WARMING_BYTES:
                raise FrameError(f"more than {MAX_WARMING_BYTES} bytes of WARMING on one link")

    def _transfer_of(self, head: BucketHead) -> _Incoming | None:
        """The transfer of a bucket, once its BEGIN is there; None: it is over, the bucket goes nowhere."""
        with self._state:
            self._state.wait_for(lambda: head.transfer < self._next_transfer or self._closed.is_set(), BEGIN_WAIT_S)
            if head.transfer >= self._next_transfer:
                raise FrameError(f"a bucket of transfer {head.transfer}, which never began")
            incoming = self._transfers.pop(head.transfer, None)
            if incoming is None:
                return None
            self._transfers[head.transfer] = incoming  # the last one used goes last
        total_bytes, buckets = incoming.begin.bytes, incoming.begin.buckets
        if total_bytes is not None and head.offset + head.size_bytes > total_bytes:
            raise FrameError(f"bucket {head.index} ends behind the {total_bytes} bytes of its object")
        if buckets is not None and head.index >= buckets:
            raise FrameError(f"bucket {head.index} of an object of {buckets}")
        return incoming

    # ------------------------------------------------------------------------------------------- streams, dialled

    def _dial_missing(self) -> None:
        with self._state:
            while len(self._streams) < self._wanted_streams and not self._leaving.is_set():
                number = self._next_stream
                self._next_stream += 1
                self._streams[number] = Attempt()
                thread = threading.Thread(
                    target=self._keep_stream, args=(number,), name=f"stream {number} {self.name}", daemon=True
                )
                self._threads[number] = thread
                thread.start()

    def _keep_stream(self, number: int) -> None:
        """Hold one data stream open, as long as it is wanted."""
        wait_s = FIRST_REDIAL_S
        while self._is_wanted(number):
            began_s = time.monotonic()
            try:
                self._run_stream(number)
            except FrameError as error:
                self.close("BadFrame", str(error), retry=False)
            except RefusedError as error:
                if not error.retry:
                    self.close(error.reason, f"a data stream was refused: {error}")
            except (OSError, TransportError):
                pass  # broken or unreachable: dialled again below
            if time.monotonic() - began_s > LAST_REDIAL_S:
                wait_s = FIRST_REDIAL_S
            # The word that fewer are wanted may come a moment after the end of the stream.
            self._leaving.wait(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 spreads load, hides nothing
            wait_s = min(2 * wait_s, LAST_REDIAL_S)

    def _is_wanted(self, number: int) -> bool:
        """Whether this stream shall be dialled; otherwise it is forgotten."""
        with self._state:
            wanted = len(self._streams) <= self._wanted_streams and not self._leaving.is_set()
            if not wanted:
                self._streams.pop(number, None)
                self._threads.pop(number, None)
        return wanted

    def _run_stream(self, number: int) -> None:
        attempt = Attempt()
        with self._state:
            self._streams[number] = attempt
        if self._leaving.is_set():
            return
        connection, _ = dial(self.endpoint, self._tls(), self._hello, attempt)
        stream = ReceiveStream(connection, self)
        try:
            with self._state:
                self._streams[number] = stream
                if self._leaving.is_set():
                    stream.stop()
            stream.run()
        finally:
            with self._state:
                self._streams[number] = Attempt()
            connection.close()
