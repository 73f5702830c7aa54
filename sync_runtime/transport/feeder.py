"""The sending half of a link: one queue of buckets, the streams that take from it, and the care for streams that fail.

Thread-safe; holds the one lock of a link's queue. Knows sockets and buckets, but neither control messages nor children:
what is to be said to the other end is returned or reported to its owner.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sync_runtime.bucket.objects import BucketSource
from sync_runtime.errors import RefusedError, SyncError, TransportError
from sync_runtime.transport import sockets
from sync_runtime.transport.delivered import Delivered
from sync_runtime.transport.pace import (
    SHORT_RTT_S,
    WARMING_FRAME_BYTES,
    PeakRate,
    capped_for_s,
    starting_rate,
    unsent_bytes,
    warming_bytes,
)
from sync_runtime.transport.schedule import Acked, QueueTotals, SendQueue, TransferState
from sync_runtime.transport.stream import Outgoing, SendStream, Warming
from sync_runtime.transport.stuck import Progress, StuckWatch
from sync_runtime.transport.wire import MAX_STREAMS, MAX_TRANSFERS, BucketHead

MIN_WINDOW_BYTES: Final = 64 << 20
_WINDOW_BDPS: Final = 4
_JOIN_S: Final = 5.0
NOT_NEEDED: Final = "no longer needed"
"""Why a stream is dropped that did nothing wrong."""


class FeederOwner(Protocol):
    """Who is told what happens to streams. Called from the streams' threads and from the caller's."""

    def stream_dropped(self, stream: SendStream, reason: str) -> None:
        """It takes no more buckets; its thread is about to end."""

    def stream_over(self, stream: SendStream) -> None:
        """Its thread has ended; the socket may be closed."""

    def source_failed(self, transfer: int) -> None:
        """A bucket of this transfer could not be read; it was cancelled."""


@dataclass(slots=True)
class SentTransfer:
    """What the queue does not need to know of a transfer."""

    key: str
    source: BucketSource | None
    tcp_info_before: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FeederStats:
    """How it stands."""

    streams: int
    active_streams: int
    unacked_bytes: int
    transfers: int
    congestion_control: str
    totals: QueueTotals


class Feeder:
    """The queue and the streams of one link."""

    def __init__(self, owner: FeederOwner, name: str, streams: int) -> None:
        self._owner = owner
        self._name = name
        self._ready = threading.Condition()
        self._queue = SendQueue(MIN_WINDOW_BYTES)
        self._stuck = StuckWatch()
        self._transfers: dict[int, SentTransfer] = {}
        self._streams: dict[int, SendStream] = {}
        self._active: frozenset[int] = frozenset()
        self._wanted_streams = self._held_streams = streams
        self._next_stream = 0
        self._pacing_bits_per_s: int | None = None
        self._peak = PeakRate()
        self._rtt_s = 0.0
        self._capped_until_s: float | None = None
        self._warming_left: int | None = 0  # None: to be told by the first stream's round-trip time
        self._delivered = Delivered()
        self._closed = False

    @property
    def stats(self) -> FeederStats:
        """How it stands now."""
        with self._ready:
            controls = {stream.facts.congestion_control for stream in self._streams.values()}
            return FeederStats(
                streams=len(self._streams),
                active_streams=len(self._active),
                unacked_bytes=self._queue.unacked_bytes,
                transfers=len(self._transfers),
                congestion_control=",".join(sorted(controls)) or "unknown",
                totals=self._queue.totals,
            )

    # ---------------------------------------------------------------------------------------------------- transfers

    def begin(
        self,
        priority: int,
        key: str,
        source: BucketSource | None,
        announce: Callable[[int], None],
        indices: Iterable[int],
    ) -> int:
        """A new transfer; `announce` is called with its number before a stream can take the first bucket."""
        with self._ready:
            if self._closed:
                raise TransportError(f"the link to {self._name} has ended")
            if len(self._transfers) >= MAX_TRANSFERS:
                raise TransportError(f"{self._name} has {MAX_TRANSFERS} transfers under way: wait for one to end")
            if not self._queue.transfers:
                self._measure(time.monotonic())  # what came in between is no payload's
                self._peak.payload_over()
                self._start_anew()
            transfer = self._queue.begin(priority)
            self._transfers[transfer] = SentTransfer(key, source)
            announce(transfer)
            self._queue.add(transfer, indices)
            self._ready.notify_all()
        return transfer

    def set_source(self, transfer: int, source: BucketSource) -> None:
        """Where the buckets of a transfer are read from now on."""
        with self._ready:
            if found := self._transfers.get(transfer):
                found.source = source

    def add(self, transfer: int, indices: Iterable[int]) -> None:
        """More buckets of a transfer; one that is over takes none."""
        with self._ready:
            if self._queue.add(transfer, indices):
                self._ready.notify_all()

    def close_transfer(self, transfer: int, announce: Callable[[], None]) -> TransferState | None:
        """Nothing more will be added; the transfer, if it is finished by that. `announce` only if it is not over."""
        with self._ready:
            if self._queue.transfer(transfer) is None:
                return None
            announce()
            return self._queue.close(transfer)

    def cancel(self, transfer: int) -> bool:
        """Forget a transfer; whether there was one."""
        with self._ready:
            known = self._queue.cancel(transfer)
            self._transfers.pop(transfer, None)
            self._ready.notify_all()
        return known

    def ack(self, transfer: int, indices: tuple[int, ...]) -> Acked:
        """The other end has these; raises FrameError."""
        now_s = time.monotonic()
        with self._ready:
            acked = self._queue.ack(transfer, indices, now_s)
            self._measure(now_s)
            if not self._queue.transfers:
                self._peak.payload_over()
            self._ready.notify_all()
        return acked

    def nack(self, transfer: int, index: int) -> None:
        """The other end got it damaged; raises FrameError."""
        with self._ready:
            guilty = self._queue.nack(transfer, index)
            self._ready.notify_all()
        if guilty is not None:
            self.drop(guilty, "it damaged buckets")

    def settle(self, state: TransferState) -> tuple[SentTransfer, dict[int, SendStream]] | None:
        """What was known of a finished transfer, and the streams that live; None if it was dropped meanwhile."""
        with self._ready:
            transfer = self._transfers.pop(state.number, None)
            streams = dict(self._streams)
        if transfer is None:
            return None
        self._widen(state, [_progress(stream) for stream in streams.values()])
        return transfer, streams

    # ------------------------------------------------------------------------------------------------------ streams

    def set_streams(self, count: int, held: int) -> None:
        """Let `count` streams take buckets, and keep up to `held`, warm."""
        with self._ready:
            self._wanted_streams, self._held_streams = count, held
            self._choose_active()
            self._pace()
            self._ready.notify_all()

    def set_pacing(self, bits_per_s: int | None, loss: float) -> None:
        """The most that all streams together send a second, None: no limit; and the share that the link loses."""
        with self._ready:
            self._pacing_bits_per_s, self._peak.loss = bits_per_s, loss
            self._pace()

    def remember_rate(self, bytes_per_s: float) -> None:
        """What the link carried before this process began."""
        with self._ready:
            self._peak.remember(bytes_per_s)
            if bytes_per_s > 0:
                self._warming_left = None
                self._ready.notify_all()

    def attach(self, connection: ssl.SSLSocket) -> SendStream:
        """A new stream, not started yet; raises RefusedError."""
        facts = sockets.prepare(connection)
        sockets.set_unsent_limit(connection)
        with self._ready:
            if self._closed:
                raise RefusedError("ShuttingDown", "the link has ended", retry=True)
            if len(self._streams) >= MAX_STREAMS:
                raise RefusedError("TooMany", f"a link has at most {MAX_STREAMS} data streams", retry=True)
            stream = SendStream(self._next_stream, connection, facts, self, self._name)
            self._next_stream += 1
            self._streams[stream.number] = stream
            self._choose_active()
            self._pace()
        return stream

    def drop(self, number: int, reason: str) -> None:
        """Give a stream up: what it carried unacknowledged goes on others. Any thread, any number of times."""
        with self._ready:
            found = self._streams.pop(number, None)
            if found is None:
                return
            self._queue.lose_stream(number)
            self._stuck.forget(number)
            self._choose_active()
            self._ready.notify_all()
        found.stop()
        self._owner.stream_dropped(found, reason)

    def drop_resting(self) -> None:
        """Close the streams that are not to be held and carry nothing."""
        with self._ready:
            beyond = sorted(self._streams)[self._held_streams :]
            resting = [number for number in beyond if not self._queue.carries(number)]
        for number in resting:
            self.drop(number, NOT_NEEDED)

    def close(self) -> list[SendStream]:
        """End all streams; those that lived."""
        with self._ready:
            self._closed = True
            streams = list(self._streams.values())
            self._ready.notify_all()
        for stream in streams:
            stream.stop()
        for stream in streams:
            stream.join(_JOIN_S)
        return streams

    def next_bucket(self, stream: SendStream) -> Outgoing | Warming | None:
        """For the stream's thread: wait for its next bucket; None: end."""
        while True:
            with self._ready:
                assignment = None
                while assignment is None:
                    if self._closed or stream.number not in self._streams:
                        return None
                    if stream.number in self._active:
                        assignment = self._queue.take(stream.number, time.monotonic())
                        if assignment is None and self._warms(stream):
                            return Warming(WARMING_FRAME_BYTES)
                    if assignment is None:
                        self._ready.wait()
                transfer = self._transfers[assignment.transfer]
            try:
                if transfer.source is None:
                    raise TransportError("the transfer has no source: give it one with set_source")
                offset, data, sha256 = transfer.source.read(assignment.index)
            except SyncError:
                if self.cancel(assignment.transfer):
                    self._owner.source_failed(assignment.transfer)
                continue
            with self._ready:
                if stream.number not in transfer.tcp_info_before:
                    transfer.tcp_info_before[stream.number] = sockets.read_tcp_info(stream.connection)
                if self._queue.started(stream.number, assignment, len(data), time.monotonic()):
                    head = BucketHead(assignment.transfer, assignment.index, offset, sha256, len(data))
                    return Outgoing(head, data)

    def stream_ended(self, stream: SendStream, reason: str) -> None:
        """For the stream's thread: its last act."""
        self.drop(stream.number, reason)
        self._owner.stream_over(stream)

    def look_after(self, now_s: float) -> None:
        """Re-issue what stuck streams carry; close the hopeless; let go a payload that has found its pace."""
        with self._ready:
            if self._capped_until_s is not None and now_s >= self._capped_until_s:
                self._capped_until_s = None
                self._pace()
            if not self._queue.unacked_bytes:
                return
            carrying = {
                number: progress
                for number, stream in self._streams.items()
                if self._queue.carries(number) and (progress := _progress(stream))
            }
            verdicts = self._stuck.observe(carrying, now_s)
            for number in verdicts.stuck:
                self._queue.reissue(number)
            if verdicts.stuck:
                self._ready.notify_all()
        for number in verdicts.hopeless:
            self.drop(number, "stuck")

    def _choose_active(self) -> None:
        """The oldest streams are the warmest."""
        self._active = frozenset(sorted(self._streams)[: self._wanted_streams])

    def _start_anew(self) -> None:
        """The first transfer after a pause: streams start at the known rate of the link, with the windows they have.

        BBR would go by what it believed when the last payload ended, and in one payload of three stop almost entirely
        for 200 ms to measure the round trip again, which it does every ten seconds. Pauses are for that.
        """
        if not self._peak.bytes_per_s:
            return
        unsent = unsent_bytes(self._peak.bytes_per_s, len(self._active))
        for stream in self._streams.values():
            sockets.set_unsent_limit(stream.connection, unsent)
        if self._rtt_s < SHORT_RTT_S:
            return
        self._capped_until_s = time.monotonic() + capped_for_s(self._rtt_s)
        self._pace()
        for stream in self._streams.values():
            if stream.facts.congestion_control == "bbr":
                sockets.restart_congestion_control(stream.connection, "bbr")

    def _measure(self, now_s: float) -> None:
        came = self._delivered.since_last(self._streams, now_s)
        if came is not None:
            self._peak.delivered(came, now_s, self._rtt_s)

    def _warms(self, stream: SendStream) -> bool:
        """Whether a stream without work opens its window: only where the link's rate is remembered and nothing waits.

        A payload that comes meanwhile goes first: what was written before it is a frame.
        """
        if self._queue.transfers or not self._peak.bytes_per_s or self._warming_left == 0:
            return False
        if self._warming_left is None:
            progress = _progress(stream)
            if progress is None or not progress.rtt_s:
                return False
            self._rtt_s = progress.rtt_s
            self._warming_left = warming_bytes(self._peak.bytes_per_s, progress.rtt_s)
        taken = min(self._warming_left, WARMING_FRAME_BYTES)
        self._warming_left -= taken
        return taken > 0

    def _pace(self) -> None:
        asked = None if self._pacing_bits_per_s is None else self._pacing_bits_per_s / 8
        rate = asked if self._capped_until_s is None else starting_rate(self._peak, asked)
        share = None if rate is None else int(rate / max(1, len(self._active)))
        for stream in self._streams.values():
            sockets.set_pacing(stream.connection, share)

    def _widen(self, state: TransferState, progresses: list[Progress | None]) -> None:
        """Long fast links have more in flight than the least window."""
        took_s = state.last_s - (state.first_s or state.last_s)
        rtt_s = max((progress.rtt_s for progress in progresses if progress), default=0.0)
        if took_s > 0:
            with self._ready:
                self._rtt_s = rtt_s
                wanted = int(_WINDOW_BDPS * rtt_s * state.acked_bytes / took_s)
                self._queue.window_bytes = max(MIN_WINDOW_BYTES, wanted)


def _progress(stream: SendStream) -> Progress | None:
    return sockets.progress_of(sockets.read_tcp_info(stream.connection))
