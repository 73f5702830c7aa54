"""The parent's end of a link to one child: its control channel, and the feeder of its data streams.

Methods are thread-safe and never wait for the network. Sends what it is told to send; what a child should have is the
session's business.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from sync_runtime.bucket.objects import BucketSource
from sync_runtime.errors import TransportError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.transport import sockets
from sync_runtime.transport.channel import Channel
from sync_runtime.transport.events import (
    BucketsAcked,
    ChildGone,
    Emit,
    MessageArrived,
    PayloadDone,
    StreamLost,
    StreamSample,
)
from sync_runtime.transport.feeder import NOT_NEEDED, Feeder, FeederStats
from sync_runtime.transport.messages import (
    Abort,
    Ack,
    Begin,
    Drop,
    Hello,
    ManifestEnvelope,
    Message,
    Nack,
    Refuse,
    Streams,
)
from sync_runtime.transport.schedule import TransferState
from sync_runtime.transport.stream import SendStream
from sync_runtime.transport.wire import FROM_CHILD, MAX_STREAMS

_JOIN_S: Final = 5.0


class ChildLink:
    """A child that was admitted."""

    def __init__(
        self,
        connection: ssl.SSLSocket,
        hello: Hello,
        identity: MemberIdentity,
        *,
        token: str,
        streams: int,
        heartbeat_s: float,
        emit: Emit,
    ) -> None:
        self.hello = hello
        self.identity = identity
        self.token = token
        self._emit = emit
        self._lock = threading.Lock()
        self._asked_streams = streams
        self._wanted_streams = streams
        self._over: list[SendStream] = []
        self._ended = False
        self._feeder = Feeder(self, identity.member, streams)
        self._channel = Channel(
            connection, name=identity.member, takes=FROM_CHILD, heartbeat_s=heartbeat_s, handler=self
        )

    @property
    def name(self) -> str:
        """The child's member name."""
        return self.identity.member

    @property
    def stats(self) -> FeederStats:
        """How it stands now."""
        return self._feeder.stats

    def start(self) -> None:
        """Serve the control connection; called once the child was welcomed."""
        self._channel.start()

    def send(self, message: Message) -> None:
        """A control message, in order behind those before it."""
        self._channel.send_message(message)

    def begin(self, message: Begin, source: BucketSource | None, indices: Iterable[int] = ()) -> int:
        """Announce an object and queue these of its buckets; the transfer's number. Raises TransportError."""

        def announce(transfer: int) -> None:
            self._channel.send_message(message.model_copy(update={"transfer": transfer}))

        return self._feeder.begin(message.priority, message.key, source, announce, indices)

    def set_source(self, transfer: int, source: BucketSource) -> None:
        """Where the buckets of a transfer are read from now on."""
        self._feeder.set_source(transfer, source)

    def add_bucket(self, transfer: int, index: int) -> None:
        """Another bucket of a transfer: cut-through, or an object that is still being written."""
        self._feeder.add(transfer, (index,))

    def add_buckets(self, transfer: int, indices: Iterable[int]) -> None:
        """Several of them. A transfer that is over takes none; that is no error, the two may cross."""
        self._feeder.add(transfer, indices)

    def complete(self, transfer: int, envelope: bytes) -> None:
        """All buckets were added, and this is the manifest."""
        finished = self._feeder.close_transfer(
            transfer, lambda: self._channel.send_message(ManifestEnvelope(transfer, envelope))
        )
        if finished:
            self._channel.post(lambda: self._report(finished))

    def abort(self, transfer: int, reason: str) -> None:
        """Send no more of it; what was sent is void."""
        if self._feeder.cancel(transfer):
            self._channel.send_message(Abort(transfer=transfer, reason=reason))

    def set_streams(self, count: int, held: int | None = None) -> None:
        """Feed `count` streams and hold `held` open; those beyond rest, warm.

        More are asked for at once; fewer stay open until `trim_streams`.
        """
        count = max(1, min(count, MAX_STREAMS))
        held = max(count, min(held or count, MAX_STREAMS))
        with self._lock:
            self._wanted_streams = held
            ask = held > self._asked_streams
            self._asked_streams = max(held, self._asked_streams)
        self._feeder.set_streams(count, held)
        if ask:
            self._channel.send_message(Streams(count=held))

    def trim_streams(self) -> None:
        """Close the streams that rest."""
        with self._lock:
            count = self._wanted_streams
            ask = count < self._asked_streams
            self._asked_streams = count
        if ask:
            self._channel.send_message(Streams(count=count))
        self._feeder.drop_resting()

    def set_pacing(self, bits_per_s: int | None, loss: float = 0.0) -> None:
        """The most that all streams together send a second, None: no limit; and the share that the link loses."""
        self._feeder.set_pacing(bits_per_s, loss)

    def remember_rate(self, bytes_per_s: float) -> None:
        """What the link carried before a restart; the first payloads start from it."""
        self._feeder.remember_rate(bytes_per_s)

    def close(self, reason: str, message: str, *, retry: bool = True) -> None:
        """Tell the child why, and end the link."""
        self._channel.close(reason, message, refuse=Refuse(reason=reason, message=message, retry=retry))

    def join(self, timeout_s: float = _JOIN_S) -> None:
        """Wait until its threads are over; after `close`."""
        self._channel.join(timeout_s)

    def attach(self, connection: ssl.SSLSocket, say_welcome: Callable[[], None]) -> None:
        """A data stream of this child: counted first, then welcomed, then fed. Raises RefusedError."""
        stream = self._feeder.attach(connection)
        try:
            say_welcome()
        except TransportError as error:
            self._feeder.drop(stream.number, str(error))
            raise

        def hang_up() -> None:
            # A child never writes on a data stream: whatever can be read there is its end.
            self._feeder.drop(stream.number, "the child closed it")

        self._channel.post(lambda: self._channel.watch(connection, hang_up))
        stream.start()

    # ------------------------------------------------------------------------------------------- the feeder's owner

    def stream_dropped(self, stream: SendStream, reason: str) -> None:
        """Stop watching it; nobody else may get its descriptor's number before that."""
        self._channel.post(lambda: self._channel.unwatch(stream.connection))
        self._emit(StreamLost(self, stream.number, reason, failed=reason != NOT_NEEDED))

    def stream_over(self, stream: SendStream) -> None:
        """Close its socket in the channel's thread, after it was unwatched."""
        with self._lock:
            ended = self._ended
            if not ended:
                self._over.append(stream)
        if ended:
            stream.connection.close()
        else:
            self._channel.post(self._close_over)

    def source_failed(self, transfer: int) -> None:
        """What was promised cannot be sent."""
        self._channel.send_message(Abort(transfer=transfer, reason="Gone"))

    def _close_over(self) -> None:
        with self._lock:
            over, self._over = self._over, []
        for stream in over:
            stream.connection.close()

    # ---------------------------------------------------------------------------------------- the channel's handler

    def on_message(self, message: Message) -> None:
        """What the child says; ACK and NACK are ours, the rest is the session's."""
        match message:
            case Ack(transfer, indices):
                acked = self._feeder.ack(transfer, indices)
                if acked.indices:
                    self._emit(BucketsAcked(self, transfer, acked.indices, acked.size_bytes, time.monotonic()))
                if acked.finished:
                    self._report(acked.finished)
            case Nack(transfer, index):
                self._feeder.nack(transfer, index)
            case _:
                if isinstance(message, Drop):
                    self._feeder.cancel(message.transfer)
                self._emit(MessageArrived(self, message))

    def on_wake(self) -> Iterable[bytes]:
        """Nothing beyond what was queued."""
        return ()

    def on_tick(self, now_s: float) -> None:
        """Look after the streams."""
        self._feeder.look_after(now_s)

    def on_close(self, reason: str, message: str) -> None:
        """The link is over."""
        streams = self._feeder.close()
        with self._lock:
            self._ended = True
        for stream in streams:
            stream.connection.close()
        self._close_over()
        self._emit(ChildGone(self, reason, message))

    def _report(self, state: TransferState) -> None:
        """What the payload taught, stream by stream."""
        settled = self._feeder.settle(state)
        if settled is None:
            return
        transfer, streams = settled
        for number, share in state.shares.items():
            stream = streams.get(number)
            sample = StreamSample(
                link=self,
                transfer=state.number,
                stream=number,
                size_bytes=share.size_bytes,
                started_s=share.started_s,
                ended_s=share.ended_s,
                tcp_info_before=transfer.tcp_info_before.get(number, b""),
                tcp_info=sockets.read_tcp_info(stream.connection) if stream else b"",
                congestion_control=stream.facts.congestion_control if stream else "unknown",
            )
            self._emit(sample)
        self._emit(_payload_done(self, transfer.key, state))


def _payload_done(link: ChildLink, key: str, state: TransferState) -> PayloadDone:
    return PayloadDone(
        link=link,
        transfer=state.number,
        key=key,
        priority=state.priority,
        size_bytes=state.acked_bytes,
        repeated_bytes=state.repeated_bytes,
        buckets=len(state.acked),
        streams=len(state.shares),
        started_s=state.first_s if state.first_s is not None else state.last_s,
        ended_s=state.last_s,
        waited_s=state.waited_s,
    )
