"""Shards: what one rank of several holds of a tensor, and the blocks of the layout that follow from it. Pure.

Every rank names all tensors, whole or as shards, so that all make the same layout. Knows no sidecar and no coder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from sync_runtime.errors import LayoutError
from sync_runtime.local.messages import Part
from sync_runtime.local.ranges import MAX_RANGES, from_ranges, to_ranges
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.layout import SMALL_ELEMENTS, Layout, Shards
from sync_runtime.tensors.places import Place, Places, holds

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Shard:
    """A rank's rectangle of a tensor. The tensor's matrix has its last dimension as columns, all others as rows.

    Args:
        tensor: the rank's own memory; without elements where the rank holds nothing of it.
        shape: of the whole tensor.
        start: row and column of the matrix at which the rank's memory begins.
        step: rows and columns at whose multiples ranks cut the matrix; None: not cut. The same in every rank. A tensor
            that is small enough to be packed with others must be whole in one rank unless this is said.
        counted: False for a copy of what another rank publishes, or counts in its digest, too.
    """

    tensor: torch.Tensor
    shape: tuple[int, ...]
    start: tuple[int, int] = (0, 0)
    step: tuple[int | None, int | None] = (None, None)
    counted: bool = True


class Holding(NamedTuple):
    """What a rank has of the layout's blocks, ascending."""

    counted: tuple[int, ...]
    """Those that it publishes, and that its digest is the sum of: every block is counted by one rank."""
    copies: tuple[int, ...]
    """Held besides: another rank counts them."""


def layout_shards(shards: Mapping[str, Shard]) -> dict[str, Shards]:
    """How the layout's grid is cut."""
    return {name: Shards(*shard.step) for name, shard in shards.items()}


def places_of(layout: Layout, shards: Mapping[str, Shard]) -> Places:
    """Where shards lie; raises LayoutError for one outside its tensor, or of a tensor that travels whole."""
    found = {}
    for spec in layout.tensors:
        shard = shards.get(spec.name)
        if shard is None:
            continue
        shape, (row, col) = tuple(shard.tensor.shape), shard.start
        rows, cols = prod(shape[:-1]), shape[-1] if shape else 1
        whole_cols = spec.shape[-1] if spec.shape else 1
        if row < 0 or col < 0 or (rows * cols and (row + rows > spec.rows or col + cols > whole_cols)):
            raise LayoutError(
                f"the shard of {spec.name!r} begins at {list(shard.start)} and has the shape {list(shape)}: that lies "
                f"outside {list(spec.shape)}"
            )
        if spec.grid is None and rows * cols not in {0, spec.numel // spec.dtype.elements_per_item}:
            raise LayoutError(
                f"{spec.name!r} has fewer than {SMALL_ELEMENTS} elements and is packed with others: say the `step` at "
                "which ranks cut it, or give it whole, in rank 0, and without elements elsewhere"
            )
        found[spec.name] = Place(row, col * spec.dtype.elements_per_item, shape)
    return found


def holding_of(blocks: BlockMap, shards: Mapping[str, Shard], places: Places, rank: int) -> Holding:
    """The blocks that a rank has; tensors that are given whole are counted by rank 0. Raises LayoutError."""
    counted: list[int] = []
    copies: list[int] = []
    for block in blocks:
        if _holds(blocks, block, places):
            names = (blocks.layout.tensors[piece.tensor].name for piece in block.pieces)
            counts = all(shards[name].counted if name in shards else rank == 0 for name in names)
            (counted if counts else copies).append(block.number)
    return Holding(tuple(counted), tuple(copies))


def part_of(holding: Holding, digests: str = "") -> Part:
    """What a rank says of its blocks; raises LayoutError where they lie too scattered to be said."""
    part = Part(to_ranges(list(holding.counted)), to_ranges(list(holding.copies)), digests)
    for ranges, numbers in ((part.blocks, holding.counted), (part.copies, holding.copies)):
        if numbers and len(from_ranges(ranges, numbers[-1] + 1)) != len(numbers):
            raise LayoutError(f"a rank's blocks lie in more than {MAX_RANGES} runs: cut tensors by rows, or coarser")
    return part


def _holds(blocks: BlockMap, block: Block, places: Places) -> bool:
    whole = True
    for piece in block.pieces:
        spec = blocks.layout.tensors[piece.tensor]
        here = holds(spec, places, piece)
        if here is None:
            raise LayoutError(
                f"block {block.number} lies only partly in the shard of {spec.name!r}: `step` must say where all ranks "
                "cut this tensor"
            )
        whole = whole and here
    return whole
