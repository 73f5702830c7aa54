"""Which objects lead a reader from the version it holds to the newest one, at the least cost. Pure (STORE.md, 4).

A pointer in, steps out. Every step starts where the one before ends. Knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.transport.object_store.pointer import Line, Pointer, Row

OBJECT_COST_BYTES: Final = 64 << 10
"""What asking for one more object costs, in bytes: a round trip, most of which runs beside others."""


@dataclass(frozen=True)
class Route:
    """What to fetch, in order."""

    steps: tuple[Row, ...]
    is_anchor: bool = False
    """It begins with whole weights, for members out of service only."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(row.size_bytes for row in self.steps)


def find_route(pointer: Pointer, held: VersionRef | None) -> Route | None:
    """The deltas from the held version to the newest; None: none lead there. Nothing to do: a route without steps."""
    if not pointer.lines or held is None:
        return None
    at = next((index for index, line in enumerate(pointer.lines) if line.lineage == held.lineage), None)
    if at is None:
        return None
    steps: list[Row] = []
    seq = held.seq
    for index in range(at, -1, -1):
        line = pointer.lines[index]
        if not line.base.seq <= seq <= line.head.seq:
            return None
        steps += _forward(line, seq)
        if index:
            way = pointer.lines[index - 1].way
            if way is None:
                return None
            steps.append(way)
            seq = way.key.target_seq
    return Route(tuple(steps))


def find_anchor_route(pointer: Pointer) -> Route | None:
    """The newest anchor and what follows it; None: the store has none."""
    line = pointer.lines[0] if pointer.lines else None
    anchor = None if line is None else line.anchor
    if line is None or anchor is None:
        return None
    return Route((anchor, *_forward(line, anchor.key.target_seq)), is_anchor=True)


def _forward(line: Line, seq: int) -> list[Row]:
    """The cheapest chain of links and skip deltas from a version of the line to its head."""
    rows_by_base: dict[int, list[Row]] = {}
    for row in (*line.links, *line.skips):
        if row.key.base_seq is not None and row.key.base_seq >= seq:
            rows_by_base.setdefault(row.key.base_seq, []).append(row)
    best: dict[int, tuple[int, Row | None]] = {seq: (0, None)}
    for at in range(seq, line.head.seq):
        if at not in best:
            continue
        for row in rows_by_base.get(at, ()):
            cost = best[at][0] + row.size_bytes + OBJECT_COST_BYTES
            if row.key.target_seq not in best or cost < best[row.key.target_seq][0]:
                best[row.key.target_seq] = cost, row
    chain: list[Row] = []
    at = line.head.seq
    while at != seq:
        taken = best[at][1]
        if taken is None or taken.key.base_seq is None:
            break
        chain.append(taken)
        at = taken.key.base_seq
    return chain[::-1]
