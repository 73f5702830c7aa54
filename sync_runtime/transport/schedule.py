"""Which bucket goes next on which stream of a link, and what happens to it until it is acknowledged.

Pure: no sockets, no threads, no clock (`now_s` is an argument). The link calls it under its own lock. One queue serves
all streams, so that a slow stream takes fewer buckets; a bucket is sent twice only when its stream broke, its bytes
arrived damaged, or its stream is provably stuck, and every such byte is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sync_runtime.errors import FrameError

NACKS_PER_STREAM: Final = 3
NACKS_PER_BUCKET: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """A bucket that a stream shall send now."""

    transfer: int
    index: int


@dataclass(slots=True)
class Share:
    """What one stream carried of one transfer."""

    size_bytes: int
    started_s: float
    ended_s: float


@dataclass(slots=True)
class _Flight:
    """A bucket on its way."""

    size_bytes: int
    streams: list[int]
    """Newest last; more than one only after a re-issue."""
    copies: int = 0
    nacks: int = 0


@dataclass(slots=True)
class TransferState:
    """One transfer of the link."""

    number: int
    priority: int
    ready: deque[int] = field(default_factory=deque)
    flights: dict[int, _Flight] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    known: set[int] = field(default_factory=set)
    closed: bool = False
    acked_bytes: int = 0
    repeated_bytes: int = 0
    first_s: float | None = None
    last_s: float = 0.0
    waited_s: float = 0.0
    shares: dict[int, Share] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Everything was added and acknowledged."""
        return self.closed and len(self.acked) == len(self.known)


@dataclass(frozen=True, slots=True)
class Acked:
    """What an ACK changed."""

    indices: tuple[int, ...]
    size_bytes: int
    finished: TransferState | None


@dataclass(slots=True)
class QueueTotals:
    """Counters over the life of a link."""

    sent_bytes: int = 0
    acked_bytes: int = 0
    repeated_bytes: int = 0
    reissued_buckets: int = 0
    lost_streams: int = 0
    nacks: int = 0


class SendQueue:
    """The buckets of all transfers of a link."""

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        """Bytes sent and not acknowledged; no stream gets a bucket while there are more."""
        self.totals = QueueTotals()
        self._transfers: dict[int, TransferState] = {}
        self._next_number = 0
        self._unacked_bytes = 0
        self._stream_nacks: dict[int, int] = {}
        self._empty_since_s: float | None = None

    @property
    def unacked_bytes(self) -> int:
        """Bytes on their way."""
        return self._unacked_bytes

    @property
    def transfers(self) -> tuple[TransferState, ...]:
        """Those that are not over."""
        return tuple(self._transfers.values())

    def transfer(self, number: int) -> TransferState | None:
        """A transfer that is not over."""
        return self._transfers.get(number)

    def begin(self, priority: int) -> int:
        """A new transfer; its number is never used again on this link."""
        number = self._next_number
        self._next_number += 1
        self._transfers[number] = TransferState(number, priority)
        return number

    def add(self, transfer: int, indices: Iterable[int]) -> bool:
        """Queue buckets behind the others of the transfer; False if it is over."""
        state = self._transfers.get(transfer)
        if state is None:
            return False
        for index in indices:
            if index not in state.known:
                state.known.add(index)
                state.ready.append(index)
        return True

    def close(self, transfer: int) -> TransferState | None:
        """Nothing will be added any more; the transfer, if that was the last thing it waited for."""
        state = self._transfers.get(transfer)
        if state is None:
            return None
        state.closed = True
        return self._forget(state) if state.finished else None

    def cancel(self, transfer: int) -> bool:
        """Forget a transfer; what is on its way arrives for nobody."""
        state = self._transfers.get(transfer)
        if state is None:
            return False
        self._forget(state)
        return True

    def has_work(self) -> bool:
        """Whether `take` could give something, window aside."""
        return any(state.ready for state in self._transfers.values())

    def take(self, stream: int, now_s: float) -> Assignment | None:
        """The next bucket for a stream: lowest priority number, then oldest transfer, then queue order."""
        if self._unacked_bytes >= self.window_bytes:
            return None
        for state in sorted(self._transfers.values(), key=lambda one: (one.priority, one.number)):
            if (index := self._pick(state, stream)) is not None:
                if state.first_s is None:
                    state.first_s = now_s
                elif self._empty_since_s is not None and not state.closed:
                    state.waited_s += now_s - max(self._empty_since_s, state.first_s)
                self._empty_since_s = None
                return Assignment(state.number, index)
        if self._empty_since_s is None:
            self._empty_since_s = now_s
        return None

    def started(self, stream: int, assignment: Assignment, size_bytes: int, now_s: float) -> bool:
        """The stream starts to send it. False: not wanted any more, it must not be sent."""
        state = self._transfers.get(assignment.transfer)
        if state is None or assignment.index in state.acked:
            return False
        flight = state.flights.setdefault(assignment.index, _Flight(size_bytes, []))
        if flight.copies:
            state.repeated_bytes += size_bytes
            self.totals.repeated_bytes += size_bytes
        flight.copies += 1
        flight.streams.append(stream)
        self._unacked_bytes += size_bytes
        self.totals.sent_bytes += size_bytes
        share = state.shares.setdefault(stream, Share(0, now_s, now_s))
        share.size_bytes += size_bytes
        return True

    def ack(self, transfer: int, indices: Iterable[int], now_s: float) -> Acked:
        """The child has these; an ACK for something never sent is the child's fault."""
        state = self._transfers.get(transfer)
        if state is None:
            self._check_number(transfer)
            return Acked((), 0, None)
        fresh: list[int] = []
        before = state.acked_bytes
        for index in indices:
            if index in state.acked:
                continue
            flight = state.flights.pop(index, None)
            if flight is None:
                raise FrameError(f"bucket {index} of transfer {transfer} was acknowledged but never sent")
            self._unacked_bytes -= flight.size_bytes * len(flight.streams)
            for stream in flight.streams:
                state.shares[stream].ended_s = now_s
            state.acked.add(index)
            state.acked_bytes += flight.size_bytes
            self.totals.acked_bytes += flight.size_bytes
            fresh.append(index)
        if fresh:
            state.last_s = now_s
        grown = state.acked_bytes - before
        return Acked(tuple(fresh), grown, self._forget(state) if state.finished else None)

    def nack(self, transfer: int, index: int) -> int | None:
        """Send it again, first; the number of the stream to close if it damaged too much."""
        state = self._transfers.get(transfer)
        if state is None:
            self._check_number(transfer)
            return None
        flight = state.flights.get(index)
        if flight is None or not flight.streams:
            if index in state.known:
                return None  # crossed with an ACK or with the loss of its stream
            raise FrameError(f"bucket {index} of transfer {transfer} was refused but never sent")
        stream = flight.streams.pop()
        self._unacked_bytes -= flight.size_bytes
        flight.nacks += 1
        self.totals.nacks += 1
        if flight.nacks > NACKS_PER_BUCKET:
            raise FrameError(f"bucket {index} of transfer {transfer} was refused {flight.nacks} times")
        state.ready.appendleft(index)
        count = self._stream_nacks[stream] = self._stream_nacks.get(stream, 0) + 1
        return stream if count >= NACKS_PER_STREAM else None

    def lose_stream(self, stream: int) -> int:
        """A stream broke: what it carried unacknowledged goes first again. How many buckets that were."""
        self._stream_nacks.pop(stream, None)
        self.totals.lost_streams += 1
        returned = 0
        for state in self._transfers.values():
            lost = [index for index, flight in state.flights.items() if stream in flight.streams]
            for index in reversed(lost):
                flight = state.flights[index]
                flight.streams.remove(stream)
                self._unacked_bytes -= flight.size_bytes
                if not flight.streams and index not in state.ready:
                    state.ready.appendleft(index)
                    returned += 1
        return returned

    def reissue(self, stream: int) -> int:
        """A stream is stuck: let others carry what it holds; it may still deliver first. How many buckets."""
        count = 0
        for state in self._transfers.values():
            held = [i for i, flight in state.flights.items() if flight.streams == [stream] and i not in state.ready]
            state.ready.extendleft(reversed(held))
            count += len(held)
        self.totals.reissued_buckets += count
        return count

    def carries(self, stream: int) -> bool:
        """Whether the stream has unacknowledged buckets."""
        return any(stream in flight.streams for state in self._transfers.values() for flight in state.flights.values())

    def _pick(self, state: TransferState, stream: int) -> int | None:
        """The first queued bucket that this stream does not carry already."""
        for _ in range(len(state.ready)):
            index = state.ready.popleft()
            if index in state.acked:
                continue  # re-issued, and the stuck stream was faster after all
            flight = state.flights.get(index)
            if flight is None or stream not in flight.streams:
                return index
            state.ready.append(index)
        return None

    def _forget(self, state: TransferState) -> TransferState:
        del self._transfers[state.number]
        self._unacked_bytes -= sum(flight.size_bytes * len(flight.streams) for flight in state.flights.values())
        return state

    def _check_number(self, transfer: int) -> None:
        if transfer >= self._next_number:
            raise FrameError(f"transfer {transfer} never began")
