"""Who of several ranks has which blocks, and what their parts add up to. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from sync_runtime.codec.limits import END_BLOCK
from sync_runtime.errors import LayoutError, LocalProtocolError
from sync_runtime.local.messages import Part, Publish, Totals, VersionRef
from sync_runtime.local.ranges import Ranges, to_ranges
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest, parse_digest, total

NOTHING = VersionRef("0" * 32, 0)
"""What a rank asks leave for that has no version, nor anything staged."""


class Owners:
    """Which rank counts which block: every block is counted once."""

    def __init__(self, blocks: BlockMap, counted: Mapping[int, Ranges]) -> None:
        """Raises LayoutError for a block that no rank counts, or two do."""
        self.blocks = blocks
        runs = sorted((begin, end, rank) for rank, ranges in counted.items() for begin, end in ranges)
        at, before = 0, -1
        for begin, end, rank in runs:
            if begin < at:
                raise LayoutError(
                    f"{self._name(begin)} is counted by ranks {before} and {rank}: one of them has a copy"
                )
            if begin > at:
                raise LayoutError(f"{self._name(at)} is counted by no rank: all ranks together hold the whole model")
            at, before = end, rank
        if at > len(blocks):
            raise LayoutError(f"rank {before} counts block {at - 1}; the layout has {len(blocks)}")
        if at < len(blocks):
            raise LayoutError(f"{self._name(at)} is counted by no rank: all ranks together hold the whole model")
        self._begins = [begin for begin, _, _ in runs]
        self._ranks = [rank for _, _, rank in runs]

    def of(self, number: int) -> int:
        """The rank that counts a block of the layout."""
        return self._ranks[bisect_right(self._begins, number) - 1]

    def split(self, numbers: Iterable[int]) -> dict[int, Ranges]:
        """Ascending block numbers by rank."""
        found: dict[int, list[int]] = {}
        for number in numbers:
            found.setdefault(self.of(number), []).append(number)
        return {rank: to_ranges(mine) for rank, mine in found.items()}

    def check(self, rank: int, number: int) -> None:
        """Raises LocalProtocolError where a rank sends a block that is not its own."""
        if number >= len(self.blocks):
            raise LocalProtocolError(
                f"rank {rank} sent block {number}, which nobody has: the layout has {len(self.blocks)}"
            )
        owner = self.of(number)
        if owner != rank:
            raise LocalProtocolError(f"rank {rank} sent block {number}, which is rank {owner}'s")

    def _name(self, number: int) -> str:
        if number >= len(self.blocks):
            return f"block {number}"
        tensor = self.blocks.layout.tensors[self.blocks.block(number).pieces[0].tensor]
        return f"block {number} (of {tensor.name!r})"


def holds(ranges: Ranges, number: int) -> bool:
    """Whether ranges hold a number."""
    at = bisect_right(ranges, (number, END_BLOCK)) - 1
    return at >= 0 and number < ranges[at][1]


def opened_digest(parts: Mapping[int, Part]) -> str:
    """The digest of what an engine's ranks hold; a copy that is not what it is a copy of makes it another one.

    Raises LocalProtocolError where a rank's digests are not those of its blocks.
    """
    counted: dict[int, Digest] = {}
    copies: list[tuple[int, Digest]] = []
    for rank, part in parts.items():
        own, others = numbers_of(part.blocks), numbers_of(part.copies)
        if len(part.digests) != 32 * (len(own) + len(others)):
            raise LocalProtocolError(f"rank {rank} sent other digests than its blocks have")
        found = [parse_digest(part.digests[at : at + 32]) for at in range(0, len(part.digests), 32)]
        counted.update(zip(own, found, strict=False))
        copies.extend(zip(others, found[len(own) :], strict=True))
    wrong = (digest.minus(counted[number]) for number, digest in copies if digest != counted.get(number, digest))
    return str(total([*counted.values(), *wrong]))


def numbers_of(ranges: Ranges) -> list[int]:
    """All numbers of ranges that were checked."""
    return [number for begin, end in ranges for number in range(begin, end)]


def earliest(asked: Iterable[VersionRef], chain: Sequence[VersionRef]) -> VersionRef | None:
    """The newest version that every rank asking has: `chain` is what all of them have, in order, live first.

    A rank may have one more already, which is not in the chain yet. None: one of them has nothing.
    """
    found = []
    for one in asked:
        if one == NOTHING or not chain:
            return None
        found.append(chain.index(one) if one in chain else len(chain) - 1)
    return chain[min(found)] if found else None


def summed(digests: Iterable[str]) -> str:
    """The digest of all parts together."""
    return str(total([parse_digest(digest) for digest in digests]))


def agreed(requests: Mapping[int, Publish]) -> Publish:
    """What all ranks publish; raises LocalProtocolError where they do not agree."""
    ranks = sorted(requests)
    first = requests[ranks[0]]
    for rank in ranks[1:]:
        if requests[rank] != first:
            raise LocalProtocolError(
                f"rank {ranks[0]} publishes step {first.step}, label {first.label!r}, and rank {rank} step "
                f"{requests[rank].step}, label {requests[rank].label!r}: all ranks publish the same version"
            )
    return first


def joined_totals(parts: Sequence[Totals]) -> Totals:
    """What the manifest of the joined object says; raises LocalProtocolError."""
    sizes = {(part.codec, len(part.digest_changes)) for part in parts}
    if len(sizes) != 1:
        raise LocalProtocolError("ranks sent totals of different codecs or layouts")
    columns = range(0, len(parts[0].digest_changes), 32)
    changes = (summed(part.digest_changes[at : at + 32] for part in parts) for at in columns)
    return Totals(
        parts[0].codec,
        sum(part.blocks for part in parts),
        sum(part.changed for part in parts),
        summed(part.digest for part in parts),
        "".join(changes),
    )


def joined_timings(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Ranks work side by side: the slowest counts."""
    found: dict[str, int] = {}
    for part in parts:
        for name, spent_us in part.items():
            found[name] = max(spent_us, found.get(name, 0))
    return found
