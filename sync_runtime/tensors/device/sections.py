"""Blocks of one dtype as tables in device memory: built once per layout, read by every kernel.

A *section* is all blocks of one wire dtype, in block order. A *unit* is a run of 32,768 elements of one block; its
change mask is 1,024 words. Kernels get one launch per section, never one per tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import tensor_keys
from sync_runtime.tensors.dtypes import WireDtype

UNIT_ELEMENTS = 1 << 15
UNIT_WORDS = UNIT_ELEMENTS // 32


@dataclass(frozen=True)
class Section:
    """The geometry of all blocks of one dtype. Arrays named `host_*` are numpy, the others lie on the device."""

    dtype: WireDtype
    blocks: tuple[Block, ...]
    device: torch.device
    host_elements: NDArray[np.int64]
    host_unit_first: NDArray[np.int64]
    """Per block the number of its first unit; one more entry than blocks."""
    numbers: torch.Tensor
    """int64[B]: block numbers of the layout."""
    elements: torch.Tensor
    """int32[B]"""
    groups: torch.Tensor
    """int32[B]: table groups."""
    unit_first: torch.Tensor
    """int32[B + 1]"""
    unit_block: torch.Tensor
    """int32[U]"""
    piece_block: torch.Tensor
    """int32[P]: pieces in block order."""
    piece_first: torch.Tensor
    """int32[P]: the piece's first index inside its block."""
    piece_shape: torch.Tensor
    """int32[P, 2]: rows, columns."""
    piece_origin: torch.Tensor
    """int64[P, 2]: first row and column in the tensor's matrix."""
    piece_tensor: torch.Tensor
    """int64[P]: tensor numbers of the layout."""
    piece_keys: torch.Tensor
    """int64[P, 4]: row and column keys of A, then of B."""

    @property
    def num_blocks(self) -> int:
        """Blocks of this dtype."""
        return len(self.blocks)

    @property
    def num_pieces(self) -> int:
        """Rectangles of this dtype."""
        return int(self.piece_block.numel())

    @property
    def num_units(self) -> int:
        """Runs of elements that masks are counted in."""
        return int(self.host_unit_first[-1])

    @property
    def num_elements(self) -> int:
        """Elements of this dtype."""
        return int(self.host_elements.sum())


def sections_of(
    blocks: BlockMap, device: torch.device | str, numbers: Iterable[int] | None = None
) -> tuple[Section, ...]:
    """The sections of a layout, or of the blocks that a rank owns, by ascending dtype code."""
    wanted = range(blocks.num_blocks) if numbers is None else sorted(set(numbers))
    by_dtype: dict[int, list[Block]] = {}
    for number in wanted:
        block = blocks.block(number)
        by_dtype.setdefault(block.dtype.code, []).append(block)
    return tuple(_section(blocks, by_dtype[code], torch.device(device)) for code in sorted(by_dtype))


def _section(blocks: BlockMap, members: list[Block], device: torch.device) -> Section:
    elements = np.array([block.num_elements for block in members], np.int64)
    units = -(-elements // UNIT_ELEMENTS)
    unit_first = np.concatenate([[0], np.cumsum(units)])
    pieces = [(at, piece) for at, block in enumerate(members) for piece in block.pieces]
    sizes = np.array([piece.num_elements for _, piece in pieces], np.int64)
    piece_block = np.array([at for at, _ in pieces], np.int64)
    before = np.cumsum(sizes) - sizes
    block_before = np.cumsum(elements) - elements
    keys = {piece.tensor: tensor_keys(blocks.layout.tensors[piece.tensor]) for _, piece in pieces}
    key_words = np.array([keys[piece.tensor] for _, piece in pieces], np.uint64).view(np.int64)

    def on_device(values: object, dtype: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values), device=device).to(dtype)

    return Section(
        dtype=members[0].dtype,
        blocks=tuple(members),
        device=device,
        host_elements=elements,
        host_unit_first=unit_first,
        numbers=on_device([block.number for block in members], torch.int64),
        elements=on_device(elements, torch.int32),
        groups=on_device([block.group for block in members], torch.int32),
        unit_first=on_device(unit_first, torch.int32),
        unit_block=on_device(np.repeat(np.arange(len(members)), units), torch.int32),
        piece_block=on_device(piece_block, torch.int32),
        piece_first=on_device(before - block_before[piece_block], torch.int32),
        piece_shape=on_device([(piece.num_rows, piece.num_cols) for _, piece in pieces], torch.int32),
        piece_origin=on_device([(piece.row_start, piece.col_start) for _, piece in pieces], torch.int64),
        piece_tensor=on_device([piece.tensor for _, piece in pieces], torch.int64),
        piece_keys=on_device(key_words, torch.int64),
    )
