"""Which transfers of a child give way to one merged object when a newer version exists (PROTOCOL.md, 3.6). Pure.

Sizes and the link's pace come in, a verdict with its reason goes out. Abandons nothing where a size is not known; what
a merged object would cost that does not exist yet is only estimated, and decides no more than whether to make it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key
from sync_runtime.session.shelf import LinkPace
from sync_runtime.tuning.supersede import predict

SizeOf = Callable[[ObjectKey], int | None]
"""The bytes of a whole object; None: not known."""


@dataclass(frozen=True)
class Chain:
    """Transfers under way that follow each other, and where the child stands without them."""

    start: VersionRef
    end: VersionRef
    transfers: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """What to do with a chain."""

    key: ObjectKey
    """The merged object."""
    abandons: bool
    """It is there and ends sooner: the chain gives way to it."""
    make: bool
    """It is not there, but may be worth making."""
    reason: str


def chain_to(end: VersionRef | None, transfers: Mapping[int, ObjectKey]) -> Chain | None:
    """The transfers that lead to where a child will stand; None: there are none, or they begin with an anchor."""
    at, found = end, list[int]()
    while at is not None:
        number = next((one for one, key in transfers.items() if key.target == at and one not in found), None)
        if number is None:
            break
        found.insert(0, number)
        at = transfers[number].base
    if not found or at is None or end is None:
        return None
    return Chain(at, end, tuple(found))


def judge(
    chain: Chain,
    head: VersionRef,
    *,
    rest_bytes: float | None,
    size_of: SizeOf,
    pace: LinkPace,
    merged_share: float | None,
) -> Verdict | None:
    """None: nothing newer leads on from the chain, or too little is known.

    `merged_share`: what merged objects had of the sum of their links, as far as any were made.
    """
    if chain.start.lineage != head.lineage or chain.end.lineage != head.lineage or head.seq < chain.end.seq:
        return None
    if chain.start.seq >= chain.end.seq:
        return None  # a way back, which only a child can have asked for
    if head == chain.end and len(chain.transfers) < 2:
        return None  # one object brings the newest version already
    next_bytes = span_bytes(chain.end, head, size_of)
    key = delta_key(head.lineage, chain.start.seq, head.seq)
    merged_bytes: float | None = size_of(key)
    exists = merged_bytes is not None
    links_bytes = links_sum(chain.start, head, size_of)
    if merged_bytes is None and links_bytes is not None and merged_share is not None:
        merged_bytes = links_bytes * merged_share
    if rest_bytes is None or next_bytes is None or merged_bytes is None:
        return None
    found = predict(
        rest_bytes=rest_bytes,
        next_bytes=next_bytes,
        merged_bytes=merged_bytes,
        seconds_per_byte=pace.seconds_per_byte,
        rtt_s=pace.rtt_s,
        in_flight_bytes=pace.in_flight_bytes,
    )
    reason = (
        f"{chain.start.seq}-{head.seq} merged ends in {found.merged_s:.2f} s, what runs up to {chain.end.seq} and the "
        f"next one in {found.goes_on_s:.2f} s"
    )
    return Verdict(key, found.abandons and exists, found.abandons and not exists, reason)


def span_bytes(base: VersionRef, target: VersionRef, size_of: SizeOf) -> int | None:
    """What the way between two versions of a lineage costs: one object where there is one, otherwise its links."""
    whole = None if base == target else size_of(delta_key(target.lineage, base.seq, target.seq))
    return links_sum(base, target, size_of) if whole is None else whole


def links_sum(base: VersionRef, target: VersionRef, size_of: SizeOf) -> int | None:
    """All links between two versions of a lineage; None: one of them is not known."""
    total = 0
    for seq in range(base.seq, target.seq):
        size = size_of(delta_key(target.lineage, seq, seq + 1))
        if size is None:
            return None
        total += size
    return total
