"""What transport tells the sidecar's brain: one frozen value per happening, through one callback.

Values only: who made them is named by the link itself, so that the receiver may answer through it. Times are of
`time.monotonic()`. An `Emit` is called from transport's threads; it must be thread-safe and must not block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sync_runtime.transport.child import ChildLink
    from sync_runtime.transport.messages import Message, Welcome
    from sync_runtime.transport.object_store.parent import StoreParent
    from sync_runtime.transport.parent import ParentLink
    from sync_runtime.transport.work_link import WorkLink


@dataclass(frozen=True, slots=True)
class ChildConnected:
    """A child was admitted. Nothing is sent to it before it says FOLLOW or WANT."""

    link: ChildLink


@dataclass(frozen=True, slots=True)
class ChildGone:
    """The link to a child ended; its transfers are over."""

    link: ChildLink
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ParentConnected:
    """A parent welcomed us, or a store in its place."""

    link: ParentLink | StoreParent
    welcome: Welcome


@dataclass(frozen=True, slots=True)
class ParentGone:
    """The link to the parent ended; the dialler is already looking for the next one."""

    link: ParentLink | StoreParent
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DialFailed:
    """A parent could not be reached, or refused us."""

    member: str
    reason: str
    message: str
    retry: bool


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A control message that transport does not act on alone. Messages of one link come in order."""

    link: ChildLink | ParentLink | StoreParent
    message: Message


@dataclass(frozen=True, slots=True)
class BucketsAcked:
    """The child verified and kept buckets."""

    link: ChildLink
    transfer: int
    indices: tuple[int, ...]
    size_bytes: int
    now_s: float


@dataclass(frozen=True, slots=True)
class BucketKept:
    """A bucket from the parent is verified and in the sink; a relay forwards it now."""

    link: ParentLink | StoreParent
    transfer: int
    key: str
    index: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BucketFailed:
    """The sink could not keep a bucket; the transfer was dropped."""

    link: ParentLink | StoreParent
    transfer: int
    key: str
    index: int
    error: Exception


@dataclass(frozen=True, slots=True)
class StreamSample:
    """What one stream carried of one payload, and its TCP_INFO before and after (raw, as the kernel gave it)."""

    link: ChildLink
    transfer: int
    stream: int
    size_bytes: int
    started_s: float
    ended_s: float
    tcp_info_before: bytes
    tcp_info: bytes
    congestion_control: str


@dataclass(frozen=True, slots=True)
class PayloadDone:
    """Every bucket of a transfer was acknowledged. Its StreamSamples came just before."""

    link: ChildLink
    transfer: int
    key: str
    priority: int
    size_bytes: int
    repeated_bytes: int
    buckets: int
    streams: int
    started_s: float
    """When the first bucket was handed to a stream."""
    ended_s: float
    waited_s: float
    """Of that time: no bucket was there to send (an object still being written, or cut-through)."""


@dataclass(frozen=True, slots=True)
class StreamLost:
    """A data stream broke, was given up, or is not needed any more; its buckets go on other streams."""

    link: ChildLink
    stream: int
    reason: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A peer was turned away, or broke the rules."""

    reason: str
    peer: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkConnected:
    """A work connection is there, at either end."""

    link: WorkLink


@dataclass(frozen=True, slots=True)
class WorkArrived:
    """A message on a work connection; those of one link come in order."""

    link: WorkLink
    message: Message


@dataclass(frozen=True, slots=True)
class WorkGone:
    """A work connection ended."""

    link: WorkLink
    reason: str
    message: str


WorkEvent: TypeAlias = WorkConnected | WorkArrived | WorkGone
Event: TypeAlias = (
    ChildConnected
    | ChildGone
    | ParentConnected
    | ParentGone
    | DialFailed
    | MessageArrived
    | BucketsAcked
    | BucketKept
    | BucketFailed
    | StreamSample
    | PayloadDone
    | StreamLost
    | Refused
    | WorkEvent
)
Emit: TypeAlias = Callable[[Event], None]
