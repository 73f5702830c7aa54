"""The blocks of a layout and their table groups (FORMAT.md, sections 2.2 and 2.3). Pure.

A block is a list of pieces: one tile for a large tensor, whole tensors for a pack of small ones. Blocks are computed
when asked for, not listed: a layout of hostile size costs a few integers per tensor.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from sync_runtime.errors import FormatError, LimitError
from sync_runtime.tensors.dtypes import WireDtype
from sync_runtime.tensors.layout import Layout, TensorSpec

MAX_BLOCKS = 1 << 24
MAX_GROUPS = 1 << 16
OWN_GROUP_ELEMENTS = 1 << 20
"""A kind with fewer elements shares the tables of its dtype."""

_DIGITS = re.compile(r"[0-9]+")


class Piece(NamedTuple):
    """A rectangle of one tensor's matrix."""

    tensor: int
    row_start: int
    num_rows: int
    col_start: int
    num_cols: int

    @property
    def num_elements(self) -> int:
        """Elements in it."""
        return self.num_rows * self.num_cols


class Block(NamedTuple):
    """The unit of coding."""

    number: int
    dtype: WireDtype
    group: int
    pieces: tuple[Piece, ...]
    num_elements: int


class Group(NamedTuple):
    """Blocks that share statistics."""

    dtype: WireDtype
    kind: str
    num_elements: int


def kind_of(name: str) -> str:
    """A name without its numbers: layers and experts of one kind behave alike."""
    return _DIGITS.sub("#", name)


def row_bands(tensor: TensorSpec) -> int:
    """How many bands of rows the tensor's grid has."""
    period, step, _ = tensor.grid or (1, 1, 1)
    whole, rest = divmod(tensor.rows, period)
    return whole * -(-period // step) + -(-rest // step)


class BlockMap:
    """All blocks of a layout, by number."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._first: list[int] = []
        self._large: list[int] = []
        total = 0
        for position, tensor in enumerate(layout.tensors):
            if tensor.grid is not None:
                self._large.append(position)
                self._first.append(total)
                total += row_bands(tensor) * -(-tensor.cols // tensor.grid.col_step)
                if total > MAX_BLOCKS:
                    raise LimitError(f"the layout has more than {MAX_BLOCKS} blocks")
        self._num_tiles = total
        self._packs = _packs(layout)
        self.num_blocks = total + len(self._packs)
        if len(self.groups) > MAX_GROUPS:
            raise LimitError(f"the layout has more than {MAX_GROUPS} table groups")

    def __len__(self) -> int:
        return self.num_blocks

    def __iter__(self) -> Iterator[Block]:
        return (self.block(number) for number in range(self.num_blocks))

    def block(self, number: int) -> Block:
        """The block of a number; raises FormatError for a number the layout does not have."""
        if not 0 <= number < self.num_blocks:
            raise FormatError(f"block {number} does not exist: the layout has {self.num_blocks}")
        if number >= self._num_tiles:
            members = self._packs[number - self._num_tiles]
            dtype = self.layout.tensors[members[0].tensor].dtype
            size = sum(piece.num_elements for piece in members)
            return Block(number, dtype, self._group_numbers[(dtype.code, "")], members, size)
        at = bisect_right(self._first, number) - 1
        position = self._large[at]
        piece = _tile(self.layout.tensors[position], position, number - self._first[at])
        dtype = self.layout.tensors[position].dtype
        return Block(number, dtype, self._tensor_groups[position], (piece,), piece.num_elements)

    def blocks_of(self, tensor: int) -> range:
        """The numbers of a large tensor's blocks; empty for a small one, which shares its block."""
        at = bisect_right(self._large, tensor) - 1
        if at < 0 or self._large[at] != tensor:
            return range(0)
        end = self._first[at + 1] if at + 1 < len(self._first) else self._num_tiles
        return range(self._first[at], end)

    @property
    def pack_numbers(self) -> range:
        """The numbers of the blocks that hold small tensors."""
        return range(self._num_tiles, self.num_blocks)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Table groups by number."""
        sizes: dict[tuple[int, str], int] = {}
        dtypes: dict[int, WireDtype] = {}
        for position, tensor in enumerate(self.layout.tensors):
            if tensor.numel:
                key = (tensor.dtype.code, self._kinds.get(position, ""))
                sizes[key] = sizes.get(key, 0) + tensor.numel
                dtypes[tensor.dtype.code] = tensor.dtype
        ordered = sorted(sizes, key=lambda key: (key[0], key[1].encode()))
        return tuple(Group(dtypes[code], kind, sizes[(code, kind)]) for code, kind in ordered)

    @cached_property
    def _kinds(self) -> dict[int, str]:
        """Kinds of the large tensors whose kind has a group of its own."""
        totals: dict[tuple[int, str], int] = {}
        kinds = {position: kind_of(self.layout.tensors[position].name) for position in self._large}
        for position, kind in kinds.items():
            tensor = self.layout.tensors[position]
            totals[(tensor.dtype.code, kind)] = totals.get((tensor.dtype.code, kind), 0) + tensor.numel
        own = {key for key, size in totals.items() if size >= OWN_GROUP_ELEMENTS}
        return {at: kind for at, kind in kinds.items() if (self.layout.tensors[at].dtype.code, kind) in own}

    @cached_property
    def _group_numbers(self) -> dict[tuple[int, str], int]:
        return {(group.dtype.code, group.kind): number for number, group in enumerate(self.groups)}

    @cached_property
    def _tensor_groups(self) -> dict[int, int]:
        """Group numbers of the large tensors."""
        tensors = self.layout.tensors
        return {at: self._group_numbers[(tensors[at].dtype.code, self._kinds.get(at, ""))] for at in self._large}


def _tile(tensor: TensorSpec, position: int, number: int) -> Piece:
    period, row_step, col_step = tensor.grid or (1, 1, 1)
    band, across = divmod(number, -(-tensor.cols // col_step))
    whole, inside = divmod(band, -(-period // row_step))
    row_start = whole * period + inside * row_step
    row_end = min(row_start + row_step, (whole + 1) * period, tensor.rows)
    col_start = across * col_step
    return Piece(position, row_start, row_end - row_start, col_start, min(col_step, tensor.cols - col_start))


def _packs(layout: Layout) -> list[tuple[Piece, ...]]:
    small = [at for at, tensor in enumerate(layout.tensors) if tensor.grid is None and tensor.numel]
    small.sort(key=lambda at: (layout.tensors[at].dtype.code, at))
    packs: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    size = 0
    for at in small:
        tensor = layout.tensors[at]
        full = size + tensor.numel > layout.block_elements
        if current and (full or layout.tensors[current[0].tensor].dtype != tensor.dtype):
            packs.append(tuple(current))
            current, size = [], 0
        current.append(Piece(at, 0, tensor.rows, 0, tensor.cols))
        size += tensor.numel
    if current:
        packs.append(tuple(current))
    return packs
