"""The format's choices for many blocks at once (FORMAT.md, section 6), and lane tables. Equal to `codec.rules`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.codec.limits import FRAME_SYMBOLS, MAX_LANES
from sync_runtime.codec.rules import (
    ANCHOR_LANE_ELEMENTS,
    GAP_BITS,
    GAP_THRESHOLDS,
    POSITION_LANE_CHANGES,
    POSITION_LANE_ELEMENTS,
    VALUE_LANE_CHANGES,
)

Ints = NDArray[np.int64]
WARP_LANES = 32


def gap_bits(elements: Ints, changed: Ints) -> Ints:
    """b per block."""
    at = np.searchsorted(GAP_THRESHOLDS, 16 * elements // np.maximum(changed, 1), side="right") - 1
    return np.array(GAP_BITS, np.int64)[at]


def log2_position_lanes(elements: Ints, changed: Ints) -> Ints:
    """log2 of L per block."""
    return _log2(np.minimum(changed // POSITION_LANE_CHANGES, elements // POSITION_LANE_ELEMENTS))


def log2_value_lanes(changed: Ints) -> Ints:
    """log2 of V per block."""
    return _log2(changed // VALUE_LANE_CHANGES)


def log2_anchor_lanes(elements: Ints) -> Ints:
    """log2 of L per packed block of an anchor."""
    return _log2(elements // ANCHOR_LANE_ELEMENTS)


def _log2(wanted: Ints) -> Ints:
    """Rounded down, of what is wanted but not above the most lanes; 0 for 0."""
    exponent = np.frexp(np.clip(wanted, 1, MAX_LANES).astype(np.float64))[1]  # 2^(e-1) <= x < 2^e
    return exponent.astype(np.int64) - 1


def fast_bytes(symbols: Ints, bits: Ints, escapes: Ints, raws: Ints, width_bits: int) -> Ints:
    """Body of a fast block, per block. Also takes torch tensors."""
    frames = (symbols + FRAME_SYMBOLS - 1) // FRAME_SYMBOLS
    words = (symbols * (bits + 2) + 31) // 32
    return 12 + 12 * frames + 4 * words + (escapes + 3) // 4 * 4 + (raws * (width_bits // 8) + 3) // 4 * 4


@dataclass(frozen=True)
class Lanes:
    """All lanes of a section's blocks in one row, on the device."""

    log2: torch.Tensor
    """int32[B]"""
    first: torch.Tensor
    """int64[B]: the first lane of each block."""
    block: torch.Tensor
    """int32[Q]: the block of each lane; an idle one has the number of the block before it."""
    num_lanes: int
    """Lanes in all, idle ones included."""


def make_lanes(log2: Ints, present: NDArray[np.bool_], device: torch.device, *, steps_of: Ints | None = None) -> Lanes:
    """Lanes of the blocks that are present, block after block.

    With `steps_of`, lanes of blocks that agree in it and in their number of lanes stand together, and idle ones fill
    the last warp of each such set: no warp then waits for a lane that has more steps than its others.
    """
    sizes = np.where(present, 1 << log2, 0)
    order, padded = np.arange(sizes.size), sizes
    if steps_of is not None:
        order = np.lexsort((steps_of, log2, ~present))
        padded = _filled_warps(sizes, steps_of, order)
    first = np.empty(sizes.size, np.int64)
    first[order] = np.cumsum(padded) - padded
    wide = to_device(np.stack([padded, log2, first, order]), torch.int64, device)
    return Lanes(
        log2=wide[1].to(torch.int32),
        first=wide[2],
        block=torch.repeat_interleave(wide[3].to(torch.int32), wide[0], output_size=int(padded.sum())),
        num_lanes=int(padded.sum()),
    )


def _filled_warps(sizes: Ints, steps_of: Ints, order: Ints) -> Ints:
    """Lanes per block in this order; the last block of each set has as many more as its warp still takes."""
    padded = sizes[order]
    if not padded.size:
        return padded
    last = np.append((np.diff(padded) != 0) | (np.diff(steps_of[order]) != 0), True)
    ends = np.cumsum(padded)[last]
    padded[last] += -np.diff(ends, prepend=0) % WARP_LANES
    return padded


def to_device(values: NDArray[np.generic], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A numpy array as a tensor on the device."""
    return torch.as_tensor(np.ascontiguousarray(values)).to(dtype).to(device, non_blocking=True)
