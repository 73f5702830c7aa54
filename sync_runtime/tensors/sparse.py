"""The difference of one block: where it changed and by how much, in memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]
Bits = NDArray[np.unsignedinteger]
"""Raw elements: uint8, uint16 or uint32."""


class SparseBlock(NamedTuple):
    """A block's changed elements: strictly ascending block indices and (new - old) mod 2^w, never zero."""

    block: int
    positions: U32
    differences: U32

    @property
    def num_changed(self) -> int:
        """How many elements changed."""
        return int(self.positions.size)


def within(positions: U32, first: int, count: int) -> slice:
    """Which of some ascending positions lie in the `count` indices from `first`.

    In the positions' own type: numpy would otherwise copy all of them into a wider one, for two look-ups.
    """
    begin, end = np.searchsorted(positions, np.array((first, first + count), positions.dtype))
    return slice(int(begin), int(end))


def inverted(delta: SparseBlock, width_bits: int) -> SparseBlock:
    """The way back: negation mod 2^w."""
    mask = np.uint32(0xFFFFFFFF >> (32 - width_bits))
    return delta._replace(differences=(np.uint32(0) - delta.differences) & mask)
