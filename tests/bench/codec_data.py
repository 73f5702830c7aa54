"""Synthetic updates as Adam makes them, block by block, in any amount: a block is made again whenever it is asked for.

Gaussian weights in fp32, cast to bf16 before and after a step of lr · m/√v with m/√v in its stationary law (β1 0.9, a
drift of a tenth of the noise). No spatial structure: positions cost what the exponents leave. Density follows from lr.
"""

# ruff: noqa: PLR0917 -- compiled loops take flat arguments

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sync_runtime.offline.pool import ordered_map
from sync_runtime.tensors.bits import BitTensor, gather
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.layout import Layout, make_layout

WEIGHT_SIGMA = 0.02
STEP_SIGMA = (0.1**2 + 0.1 / 1.9) ** 0.5
"""Spread of m/√v: drift and filtered noise."""
COLS = 4096
LAYER_ROWS = 16_384
_TABLE_BITS = 16

U16 = NDArray[np.uint16]


def _quantiles() -> NDArray[np.float32]:
    """The normal law at the borders of equal shares; the outermost shares end at the ends of the table."""
    count = 1 << _TABLE_BITS
    law = NormalDist()
    inner = [law.inv_cdf(k / count) for k in range(1, count)]
    ends = law.inv_cdf(1 / (8 * count))
    return np.array([ends, *inner, -ends], np.float32)


_QUANTILES = _quantiles()


class AdamBlocks:
    """Blocks of one step at one learning rate."""

    def __init__(self, learning_rate: float, seed: int = 1) -> None:
        self._step = np.float32(learning_rate * STEP_SIGMA)
        self._seed = seed

    def pair(self, block: Block, step: int = 0) -> tuple[U16, U16]:
        """A block before and after one of several consecutive steps."""
        old, new = np.empty(block.num_elements, np.uint16), np.empty(block.num_elements, np.uint16)
        self.fill(block, old, new, step)
        return old, new

    def fill(self, block: Block, old: U16, new: U16, step: int = 0) -> None:
        """The same, into memory at hand."""
        seed = self._seed + 1000 * block.number
        _fill(seed, step, np.float32(WEIGHT_SIGMA), self._step, _QUANTILES, old, new)


class HeldPair(NamedTuple):
    """Two states in memory, one step apart."""

    layout: Layout
    before: dict[str, BitTensor]
    after: dict[str, BitTensor]

    @property
    def num_elements(self) -> int:
        """Elements of one state."""
        return sum(spec.numel for spec in self.layout.tensors)


def layout_for(num_elements: int) -> Layout:
    """Layers of one kind, 64 Mi elements each at most."""
    rows = -(-num_elements // COLS)
    heights = [min(LAYER_ROWS, rows - first) for first in range(0, rows, LAYER_ROWS)]
    return make_layout([(f"layers.{at}.weight", "BF16", (height, COLS)) for at, height in enumerate(heights)])


def held_pair(density: float, num_elements: int) -> HeldPair:
    """States of so many elements, of which a share differs."""
    layout = layout_for(num_elements)
    blocks, data = BlockMap(layout), AdamBlocks(learning_rate_for(density))
    states = [[bf16(spec.shape, np.empty(spec.numel, np.uint16)) for spec in layout.tensors] for _ in range(2)]
    before, after = (dict(enumerate(tensors)) for tensors in states)

    def fill(block: Block) -> None:
        data.fill(block, gather(block, before), gather(block, after))  # whole rows: views, not copies

    for _ in ordered_map(fill, blocks, None):
        pass
    names = [spec.name for spec in layout.tensors]
    return HeldPair(layout, *(dict(zip(names, tensors, strict=True)) for tensors in states))


def bf16(shape: tuple[int, ...], bits: U16) -> BitTensor:
    """A tensor over bits at hand."""
    return BitTensor(wire_dtype("BF16"), shape, bits.reshape(-1, shape[-1]))


@cache
def learning_rate_for(density: float) -> float:
    """The rate at which a share of the elements changes, by bisection on a sample."""
    old, new = np.empty(1 << 20, np.uint16), np.empty(1 << 20, np.uint16)
    low, high = 1e-9, 1.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        _fill(99_999_999, 0, np.float32(WEIGHT_SIGMA), np.float32(middle * STEP_SIGMA), _QUANTILES, old, new)
        low, high = (middle, high) if np.mean(old != new) < density else (low, middle)
    return float((low * high) ** 0.5)


@compiled
def _normal(seed: Any, number: Any, quantiles: NDArray[np.float32]) -> Any:
    """A normal number for every pair of a seed and a number."""
    z = (np.uint64(seed) << np.uint64(40)) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    share = np.int64(z >> np.uint64(48))
    part = np.float32(np.float64(z & np.uint64(0xFFFFFFFF)) * 2.0**-32)
    return quantiles[share] + part * (quantiles[share + 1] - quantiles[share])


@compiled
def _fill(
    seed: int, steps: int, sigma: np.float32, size: np.float32, quantiles: NDArray[np.float32], old: U16, new: U16
) -> None:
    both = np.empty(2, np.float32)
    view = both.view(np.uint32)
    for i in range(old.size):
        weight = sigma * _normal(seed, i, quantiles)
        for step in range(1, steps + 1):
            weight += size * _normal(seed + step, i, quantiles)
        both[0] = weight
        both[1] = weight + size * _normal(seed + steps + 1, i, quantiles)
        old[i] = (view[0] + np.uint32(0x7FFF) + ((view[0] >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        new[i] = (view[1] + np.uint32(0x7FFF) + ((view[1] >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
