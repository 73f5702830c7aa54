"""What all ranks counted for the tables of one `tight` object, added up as it comes (PROTOCOL.md, section 6, Ranks).

Ranks are checked as far as sums need it: as many counts as the layout has, none that cannot be. Knows no sockets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sync_runtime.codec.tables import build_tables, histograms_of, num_counts, pack_tables
from sync_runtime.errors import FormatError, LocalProtocolError, TruncatedError
from sync_runtime.tensors.blocks import BlockMap

_WORD_BYTES = 8
_MAX_COUNT = 1 << 48
"""Elements of the largest tensor; so sums of all ranks stay inside 64 bits."""


@dataclass
class _Arriving:
    at: int = 0
    """Counts that have come."""
    rest: bytes = b""
    """Of a count that has come in part."""
    ended: bool = False


class Counting:
    """One sum."""

    def __init__(self, blocks: BlockMap, size: int) -> None:
        self._blocks, self._size = blocks, size
        self._sum = np.zeros(num_counts(blocks), np.int64)
        self._ranks: dict[int, _Arriving] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all ranks' counts are in."""
        return len(self._ranks) == self._size and all(one.ended for one in self._ranks.values())

    def begin(self, rank: int) -> None:
        """HISTOGRAMS of a rank; raises LocalProtocolError for a second one."""
        if rank in self._ranks:
            raise LocalProtocolError(f"rank {rank} sends its counts twice")
        self._ranks[rank] = _Arriving()

    def feed(self, rank: int, data: memoryview) -> None:
        """The next bytes; raises FormatError where they are no counts."""
        mine = self._ranks[rank]
        whole = mine.rest + bytes(data)
        counts = np.frombuffer(whole[: len(whole) // _WORD_BYTES * _WORD_BYTES], "<i8")
        mine.rest = whole[counts.nbytes :]
        end = mine.at + counts.size
        if end > self._sum.size:
            raise FormatError(f"rank {rank} sent more than {self._sum.size} counts")
        if counts.size and (counts.min() < 0 or counts.max() > _MAX_COUNT):
            raise FormatError(f"rank {rank} counted what cannot be")
        self._sum[mine.at : end] += counts
        mine.at = end

    def end(self, rank: int) -> None:
        """All of a rank's counts have come."""
        mine = self._ranks[rank]
        if mine.rest or mine.at != self._sum.size:
            raise TruncatedError(f"rank {rank} sent {mine.at} counts; the layout has {self._sum.size}")
        mine.ended = True

    def tables(self) -> bytes:
        """The tables section that the sum makes; raises FormatError where the counts contradict each other."""
        return pack_tables(build_tables(histograms_of(self._sum, self._blocks), self._blocks.groups))
