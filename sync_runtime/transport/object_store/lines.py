"""What a pointer names and how that changes: a version more, a skip delta, a new lineage, old ones let go. Pure.

STORE.md, sections 3 and 7. Retention only ever shortens rows; what may be removed from the store is what no row names
any more. Knows no store and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sync_runtime.bucket.manifest import Version
from sync_runtime.errors import ChainError
from sync_runtime.transport.object_store.errors import StoreAheadError
from sync_runtime.transport.object_store.pointer import MAX_LINES, MAX_SKIPS, MAX_VERSIONS, Line, Row

MAX_SPAN: Final = 1 << 12
Lines = tuple[Line, ...]


@dataclass(frozen=True)
class Place:
    """Where a layout lies."""

    layout_hash: str
    place: str


def spans_ending_at(seq: int, oldest: int) -> Iterator[int]:
    """The bases of the skip deltas that a version should have: 2^j below it wherever 2^j divides it."""
    span = 2
    while span <= MAX_SPAN and seq % span == 0 and seq - span >= oldest:
        yield seq - span
        span *= 2


def begun(lines: Lines, lineage: str, start: Version, layout: Place, way: Row | None) -> Lines:
    """A new lineage in front. Older lines stay only where a way leads out of the newest of them."""
    if any(line.lineage == lineage for line in lines):
        raise ChainError(f"lineage {lineage} is in the store already")
    line = Line(lineage, layout.layout_hash, layout.place, versions=(start,), links=(), way=way)
    if way is None or not lines or way.key.base != lines[0].head_ref:
        return (replace(line, way=None),)
    older = (replace(lines[0], anchor=None), *lines[1:])
    return _cut_lines((line, *older))


def extended(
    lines: Lines, link: Row, base: Version, target: Version, *, label: str, published_unix_ns: int, trace: str = ""
) -> Lines:
    """One version more in the newest lineage."""
    check_continues(lines, link.key.lineage, base)
    line = lines[0]
    longer = replace(
        line,
        versions=(*line.versions, target),
        links=(*line.links, link),
        label=label,
        published_unix_ns=published_unix_ns,
        trace=trace,
    )
    return (longer, *lines[1:])


def check_continues(lines: Lines, lineage: str, base: Version) -> None:
    """Whether a version that starts from `base` is the store's next one; raises StoreAheadError or ChainError."""
    if not lines or lines[0].lineage != lineage:
        raise ChainError(f"lineage {lineage} has not begun in the store")
    head = lines[0].head
    if head == base:
        return
    if base.seq > head.seq:
        raise ChainError(f"the store has version {head.seq}; the one after it must come first, not {base.seq + 1}")
    raise _ahead(head, lineage, base.seq)


def missing_from(lines: Lines, lineage: str, versions: Sequence[Version]) -> tuple[int, ...]:
    """Which of the spool's versions, oldest first, the store lacks; raises StoreAheadError where they contradict it."""
    line = next((line for line in lines[:1] if line.lineage == lineage), None)
    if line is None or not versions:
        return tuple(version.seq for version in versions[1:])
    head = line.head
    own = {version.seq: version.digest for version in versions}
    if head.seq > versions[-1].seq or own.get(head.seq, head.digest) != head.digest:
        raise _ahead(head, lineage, versions[-1].seq)
    return tuple(version.seq for version in versions if version.seq > head.seq)


def with_skips(lines: Lines, skips: Iterable[Row]) -> Lines:
    """Skip deltas that are in the store by now; those of versions that went meanwhile are left out."""
    if not lines:
        return lines
    line = lines[0]
    have = {row.key for row in line.skips}
    fitting = [
        row
        for row in skips
        if row.key.lineage == line.lineage
        and row.key not in have
        and row.key.base_seq is not None
        and line.base.seq <= row.key.base_seq
        and row.key.target_seq <= line.head.seq
    ]
    return (replace(line, skips=(*line.skips, *fitting)), *lines[1:])


def with_anchor(lines: Lines, anchor: Row) -> Lines:
    """A newer anchor in place of the last one."""
    line = lines[0]
    if anchor.key.lineage != line.lineage or not line.base.seq <= anchor.key.target_seq <= line.head.seq:
        raise ChainError(f"{anchor.key} is of no version that the store keeps")
    return (replace(line, anchor=anchor), *lines[1:])


def trimmed(lines: Lines, keep_versions: int) -> Lines:
    """Lets go of the oldest, so that `keep_versions` links stay; never of what a joiner needs after the anchor."""
    keep = max(1, min(keep_versions, MAX_VERSIONS))
    if not lines:
        return lines
    newest = lines[0]
    base_seq = max(newest.base.seq, newest.head.seq - keep)
    if newest.anchor is not None and newest.head.seq - newest.anchor.key.target_seq < MAX_VERSIONS:
        base_seq = min(base_seq, newest.anchor.key.target_seq)
    kept = [_from_base(newest, base_seq)]
    room = max(0, keep - len(kept[0].links))
    for line in lines[1:]:
        if kept[-1].way is None:
            break
        shorter = _from_base(replace(line, anchor=None), max(line.base.seq, line.head.seq - room))
        room -= len(shorter.links)
        kept.append(shorter)
    kept[-1] = replace(kept[-1], way=None)
    return _cut_lines(tuple(kept))


def rows_of(lines: Lines) -> frozenset[Row]:
    """All objects that lines name."""
    return frozenset(row for line in lines for row in line.rows())


def layouts_of(lines: Lines) -> frozenset[Place]:
    """All layouts that lines name."""
    return frozenset(Place(line.layout_hash, line.layout_place) for line in lines)


def _ahead(head: Version, lineage: str, own_seq: int) -> StoreAheadError:
    return StoreAheadError(
        f"the store has version {head.seq} of lineage {lineage} and the spool, at {own_seq}, does not lead there: the "
        "spool is an old copy; start the trainer from weights that begin a new lineage"
    )


def _from_base(line: Line, base_seq: int) -> Line:
    """A line that begins later. Rows from below its base go with it."""
    drop = base_seq - line.base.seq
    anchor, way = line.anchor, line.way
    skips = tuple(row for row in line.skips if row.key.base_seq is not None and row.key.base_seq >= base_seq)
    return replace(
        line,
        versions=line.versions[drop:],
        links=line.links[drop:],
        skips=skips[-MAX_SKIPS // 2 :],
        anchor=anchor if anchor is not None and anchor.key.target_seq >= base_seq else None,
        way=way if way is not None and way.key.target_seq >= base_seq else None,
    )


def _cut_lines(lines: Lines) -> Lines:
    if len(lines) <= MAX_LINES:
        return lines
    return (*lines[: MAX_LINES - 1], replace(lines[MAX_LINES - 1], way=None))
