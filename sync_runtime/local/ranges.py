"""Block numbers as ranges: messages stay small where many blocks lie side by side. Pure."""

from __future__ import annotations

from typing import Final

from sync_runtime.errors import LocalProtocolError

MAX_RANGES: Final = 1 << 16
Ranges = tuple[tuple[int, int], ...]
"""Numbers as ascending `[from, to)` ranges that do not touch."""


def to_ranges(numbers: list[int]) -> Ranges:
    """Ascending numbers as ranges; where there are too many, ranges that hold them and more."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    while len(found) > MAX_RANGES:
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        found = [(pair[0][0], pair[-1][1]) for pair in pairs]
    return tuple(found)


def from_ranges(ranges: Ranges, limit: int) -> list[int]:
    """The numbers of ranges, all below a limit; raises LocalProtocolError otherwise."""
    if ranges and ranges[-1][1] > limit:
        raise LocalProtocolError(f"a message names block {ranges[-1][1] - 1}; there are {limit}")
    return [number for begin, end in ranges for number in range(begin, end)]
