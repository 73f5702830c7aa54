"""What others ship, in plain numpy: sizes of published formats for the same update. Sizes only; nobody's code.

Each is given the changed elements: old and new bits, flat positions, and the columns of the matrices.

int32 + bf16: a position and the new value. LEB128: gaps in seven-bit groups and the new value. u16 gaps with an escape
and the XOR of the value, two arrays in one zstd-1 frame. Row and column gaps with the new value in one zstd-1 frame.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import zstandard
from numpy.typing import NDArray

U16 = NDArray[np.uint16]
Positions = NDArray[np.int64]


def int32_and_bf16(old: U16, new: U16, at: Positions, cols: int) -> int:
    """Four bytes of position, two of value."""
    return at.astype(np.int32).nbytes + new.nbytes


def leb128_gaps_and_bf16(old: U16, new: U16, at: Positions, cols: int) -> int:
    """Seven bits of gap to the byte."""
    gaps = np.diff(at, prepend=-1)
    groups = at.size + sum(int((gaps >= 1 << 7 * count).sum()) for count in range(1, 5))
    return groups + new.nbytes


def u16_gaps_and_xor_zstd(old: U16, new: U16, at: Positions, cols: int) -> int:
    """Gaps of 16 bits (0xFFFF passes on), XOR of the value, zstd level 1."""
    gaps = np.diff(at, prepend=-1) - 1
    passes = gaps // 0xFFFF
    stream = np.full(int(passes.sum()) + at.size, 0xFFFF, np.uint16)
    stream[np.cumsum(passes + 1) - 1] = gaps % 0xFFFF
    return _zstd(stream.tobytes() + (old ^ new).tobytes())


def row_and_column_gaps_zstd(old: U16, new: U16, at: Positions, cols: int) -> int:
    """Row gaps of 8 or 16 bits, column gaps of 16, the new value, zstd level 1."""
    row, col = np.divmod(at, cols)
    row_gaps = np.diff(row, prepend=0)
    col_gaps = np.where(row_gaps > 0, col, np.diff(col, prepend=0))
    width = np.uint8 if row_gaps.max(initial=0) < 256 else np.uint16
    return _zstd(row_gaps.astype(width).tobytes() + col_gaps.astype(np.uint16).tobytes() + new.tobytes())


BASELINES: dict[str, Callable[[U16, U16, Positions, int], int]] = {
    "int32+bf16": int32_and_bf16,
    "leb128+bf16": leb128_gaps_and_bf16,
    "u16+xor zstd-1": u16_gaps_and_xor_zstd,
    "row/col zstd-1": row_and_column_gaps_zstd,
}


def _zstd(data: bytes) -> int:
    return len(zstandard.ZstdCompressor(level=1).compress(data))
