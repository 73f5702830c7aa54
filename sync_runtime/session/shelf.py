"""What the parent's side of a sidecar works with: objects that can be sent, children, and where things come from.

Values and protocols only; `relay` decides. Knows neither sockets nor what is in an object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sync_runtime.bucket.keys import FAST, ObjectKey, VersionRef
from sync_runtime.bucket.objects import BucketSource
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.session.versions import MAX_VERSIONS, Versions
from sync_runtime.transport.messages import BaseVersion, Begin, Head, Index, Message, Place, Status

FRESH, CATCH_UP, ANCHOR = 0, 1, 2
_NO_LAYOUT = "0" * 64
_NO_INCARNATION = "0" * 32
_Spoken = TypeVar("_Spoken", Begin, Head)


class Child(Protocol):
    """A link to a child, as far as it is used here."""

    def begin(self, message: Begin, source: BucketSource | None) -> int:
        """Starts a transfer; returns its number."""

    def add_bucket(self, transfer: int, index: int) -> None:
        """One more bucket can be sent."""

    def complete(self, transfer: int, envelope: bytes) -> None:
        """All buckets were added; the manifest follows."""

    def abort(self, transfer: int, reason: str) -> None:
        """What was sent is void."""

    def send(self, message: Message) -> None:
        """A control message."""


@dataclass(frozen=True)
class LinkPace:
    """What is believed of a link to a child; zero where nothing is known."""

    seconds_per_byte: float = 0.0
    rtt_s: float = 0.0
    capacity_bytes_per_s: float = 0.0
    in_flight_bytes: float = 0.0


@dataclass
class Shelved:
    """An object that can be sent, whole or in part."""

    key: ObjectKey
    begin: Begin
    source: BucketSource
    indices: list[int] = field(default_factory=list)
    """Buckets that are there, in the order they came."""
    envelope: bytes | None = None
    """None: not complete yet."""


@dataclass
class ChildView:
    """What is known of one child."""

    link: Child
    name: str
    holds: VersionRef | None = None
    """What it will hold when all transfers are done."""
    digest: str | None = None
    """Of its weights, where it does not know which version they are; we may come to know."""
    codecs: tuple[str, ...] = (FAST,)
    out_of_service: bool = False
    want_anchor: bool = False
    following: bool = False
    transfers: dict[int, ObjectKey] = field(default_factory=dict)
    acked_bytes: dict[int, int] = field(default_factory=dict)
    """Of transfers under way: what the child has of them."""
    postponed: dict[ObjectKey, frozenset[int]] = field(default_factory=dict)
    """What it asked for while its link had enough to do, with the buckets that it has."""
    layouts: set[str] = field(default_factory=set)
    status: Status | None = None
    superseded: int = 0
    """Transfers that gave way to a merged object."""
    tight_pays: bool = True
    codec_reason: str = ""
    """Why it gets the codec it gets, where that was decided here."""

    def over(self, transfer: int) -> ObjectKey | None:
        """Forgets a transfer; its object, if there was one."""
        self.acked_bytes.pop(transfer, None)
        return self.transfers.pop(transfer, None)


@dataclass(frozen=True)
class Supply:
    """Where objects and documents come from."""

    stored: Callable[[ObjectKey], StoredObject | None]
    layout: Callable[[str], bytes | None]
    request: Callable[[ObjectKey, list[list[int]] | None], None]
    """Makes an object, or asks the own parent; `begun` or `missing` follows, never silence."""
    makes: bool = False
    """Whether objects are made here (a trainer), rather than asked for."""
    chain: Callable[[], Collection[ObjectKey]] = tuple
    """What a child that is behind may be led on with, one object after the other, where nobody can merge it for it:
    what a relay has from an object store."""
    pace: Callable[[Child], LinkPace] = lambda _: LinkPace()
    superseded: Callable[[Child, tuple[int, ...], str], None] = lambda *_: None
    """Told which transfers of a child gave way, and why."""


def offer(key: ObjectKey, stored: StoredObject | None, versions: Versions, trace: str = "") -> Begin:
    """BEGIN for an object of the spool, or (None) for one that nobody has: an ABORT follows."""
    term, incarnation = versions.fence.speaker or (versions.fence.term, _NO_INCARNATION)
    base = None if stored is None else stored.facts.base
    return Begin(
        key=key.text,
        base=None if base is None else BaseVersion(seq=base.seq, digest=str(base.digest)),
        target_seq=key.target_seq,
        codec="anchor" if key.is_anchor else "tight" if key.codec == "tight" else "fast",
        layout=_NO_LAYOUT if stored is None else stored.facts.layout_hash,
        term=term,
        incarnation=incarnation,
        trace=trace,
        priority=ANCHOR if key.is_anchor else FRESH if key.is_link else CATCH_UP,
        bytes=None if stored is None else stored.size_bytes,
        buckets=None if stored is None else stored.num_buckets,
    )


def spoken_now(message: _Spoken, versions: Versions) -> _Spoken | None:
    """The message under the term that is spoken for now, though it came under an older one; None: under none yet."""
    speaker = versions.fence.speaker
    if speaker is None:
        return None
    return message.model_copy(update={"term": speaker[0], "incarnation": speaker[1]})


def index_of(name: str, versions: Versions) -> Index | None:
    """INDEX of a lineage as it is known now; None: it is not, or no trainer was heard of."""
    lineage, speaker = versions.lineages.get(name), versions.fence.speaker
    if lineage is None or speaker is None:
        return None
    return Index(
        lineage=name,
        term=speaker[0],
        incarnation=speaker[1],
        start=place(lineage.start),
        versions=sorted(lineage.digests.items())[-MAX_VERSIONS:],
    )


def place(version: VersionRef | None) -> Place | None:
    """A version as messages carry it."""
    return None if version is None else Place(lineage=version.lineage, seq=version.seq)


def covered(ranges: Iterable[list[int]]) -> frozenset[int]:
    """Indices in [from, to) ranges that the other end gave; bounded by what an object may have.

    No index is looked at twice: a thousand ranges that say the same would otherwise stop the loop for minutes.
    """
    found: set[int] = set()
    done = 0
    for start, end in sorted(ranges):
        found.update(range(max(start, done), min(end, 1 << 20)))
        done = max(done, end)
    return frozenset(found)
