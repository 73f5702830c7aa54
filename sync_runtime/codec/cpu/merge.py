"""Merging: the sum of a block's differences in several deltas, zeros dropped. Needs no base for fast and dense."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu.blocks import decode_block
from sync_runtime.codec.frame import Record
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits, SparseBlock

U64 = NDArray[np.uint64]


def _lowest_bit_numbers() -> NDArray[np.int64]:
    """The number of a single bit, found under the high six bits of its product with a de Bruijn sequence."""
    numbers = np.empty(64, np.int64)
    for bit in range(64):
        numbers[(_DE_BRUIJN << bit & 0xFFFFFFFFFFFFFFFF) >> 58] = bit
    return numbers


_DE_BRUIJN = 0x03F79D71B4CB0A89
_BIT_NUMBERS = _lowest_bit_numbers()


def merge_block(parts: Sequence[Record | SparseBlock], block: Block) -> SparseBlock:
    """The sum of one block's parts; a part that is tight must have been decoded before."""
    if len(parts) == 1:
        return _listed(parts[0], block)
    listed = [_listed(part, block) for part in parts]  # all of them first: what follows cannot fail
    total, touched = _scratch.of(block.num_elements, block.dtype.bits_dtype)
    for part in listed:
        _add(part.positions, part.differences, total, touched)
    at_most = min(block.num_elements, sum(part.num_changed for part in listed))
    return SparseBlock(block.number, *_compact(total, touched, at_most))


class _Scratch(threading.local):
    """Dense zeros per thread and width, left as zeros by their users: fresh pages would cost more than the sum."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Bits, U64]] = {}

    def of(self, num_elements: int, dtype: np.dtype[np.unsignedinteger]) -> tuple[Bits, U64]:
        """Room for a block's sum and for a bit per element."""
        num_words = -(-num_elements // 64)
        held = self._held.get(dtype.itemsize)
        if held is None or held[0].size < num_elements:
            held = np.zeros(num_elements, dtype), np.zeros(num_words, np.uint64)
            self._held[dtype.itemsize] = held
        return held[0][:num_elements], held[1][:num_words]


_scratch = _Scratch()


def _listed(part: Record | SparseBlock, block: Block) -> SparseBlock:
    return part if isinstance(part, SparseBlock) else decode_block(part, block)


@compiled
def _add(positions: U32, differences: U32, total: Bits, touched: U64) -> None:
    for k in range(positions.size):
        at = np.int64(positions[k])
        total[at] += differences[k]  # stored at the elements' width: the sum wraps as it must
        touched[at >> 6] |= np.uint64(1) << np.uint64(at & 63)


@compiled
def _compact(total: Bits, touched: U64, at_most: int) -> tuple[U32, U32]:
    """Positions and sums of what is not zero; looks only where something was added.

    Leaves zeros in `total` and `touched`.
    """
    positions, kept = np.empty(at_most + 1, np.uint32), np.empty(at_most + 1, np.uint32)
    at: Any = 0
    for word in range(touched.size):
        rest = touched[word]
        touched[word] = 0
        while rest:
            lowest = rest & (~rest + np.uint64(1))
            i = 64 * word + _BIT_NUMBERS[np.int64((lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58))]
            positions[at] = i
            kept[at] = total[i]
            at += total[i] != 0  # store always, advance if it counts
            total[i] = 0
            rest &= rest - np.uint64(1)
    return positions[:at], kept[:at]
