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
    """All lanes of a section's blocks in one row, and room for what they code. On the device but for `host_first`."""

    log2: torch.Tensor
    """int32[B]"""
    first: torch.Tensor
    """int64[B + 1]: the first lane of each block."""
    block: torch.Tensor
    """int32[Q]: the block of each lane."""
    host_first: Ints

    @property
    def num_lanes(self) -> int:
        """Lanes in all."""
        return int(self.host_first[-1])


def make_lanes(log2: Ints, present: NDArray[np.bool_], device: torch.device) -> Lanes:
    """Lanes of the blocks that are present."""
    sizes = np.where(present, 1 << log2, 0)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    wide = to_device(np.stack([sizes, log2, first[1:]]), torch.int64, device)
    numbers = torch.arange(sizes.size, dtype=torch.int32, device=device)
    return Lanes(
        log2=wide[1].to(torch.int32),
        first=torch.nn.functional.pad(wide[2], (1, 0)),
        block=torch.repeat_interleave(numbers, wide[0], output_size=int(first[-1])),
        host_first=first,
    )


def to_device(values: NDArray[np.generic], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A numpy array as a tensor on the device."""
    return torch.as_tensor(np.ascontiguousarray(values)).to(dtype).to(device, non_blocking=True)
