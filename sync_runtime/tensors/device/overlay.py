"""A base under staged entries: what a reader of blocks sees while live weights stay as they are, only read.

Readers that walk whole blocks do so in parts. One part of every block with staged entries is copied into a slab and
patched there, and the addresses of these blocks point into the slab; every other block is read where it lies. Readers
that want single elements read live ones, and `restage` then corrects those that are staged. Knows neither codecs nor
digests.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from sync_runtime.tensors.device.bind import BITS_OF_WIDTH, Bound, Rectangles
from sync_runtime.tensors.device.bitops import CONTEXT_SHIFT, POSITION_MASK, bits_pointer, tile_offset
from sync_runtime.tensors.device.fold import rank_of
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import UNIT_ELEMENTS, Section

_PARTS, _SIZE = 4, 1024


class Overlay:
    """One section's base with a list of new bits over it."""

    def __init__(self, base: Bound, staged: ChangeList) -> None:
        self.base, self.staged = base, staged
        section = base.section
        self._has_staged: NDArray[np.bool_] = np.diff(staged.first.cpu().numpy()) > 0
        self._slab = torch.empty(0, dtype=BITS_OF_WIDTH[section.dtype.width_bits], device=section.device)
        self._patched = torch.empty(0, dtype=torch.int32, device=section.device)

    def open(self, walked: NDArray[np.bool_], part_units: NDArray[np.int64]) -> None:
        """Makes room for one part, of so many units per block, of every walked block that has staged entries."""
        section = self.base.section
        patched = np.flatnonzero(walked & self._has_staged)
        sizes = np.zeros(section.num_blocks, np.int64)
        sizes[patched] = part_units[patched] * UNIT_ELEMENTS
        total = int(sizes.sum())
        if self._slab.numel() < total:
            self._slab = torch.empty(0, dtype=self._slab.dtype, device=section.device)
            self._slab = torch.empty(total, dtype=self._slab.dtype, device=section.device)
        at = torch.as_tensor(patched, device=section.device)
        bytes_before = (np.cumsum(sizes) - sizes)[patched] * section.dtype.width_bytes
        base = self.base.blocks
        self._patched = at.to(torch.int32)
        self._part_size = torch.as_tensor(sizes, device=section.device)
        self._rectangles = Rectangles(
            address=base.address.index_copy(
                0, at, self._slab.data_ptr() + torch.as_tensor(bytes_before, device=section.device)
            ),
            row_stride=base.row_stride.index_copy(0, at, base.cols[at].to(torch.int64)),
            col_stride=base.col_stride.index_fill(0, at, 1),
            cols=base.cols,
        )

    def part(self, number: int) -> Bound:
        """The state as a walk over this part must read it, by block index; holds until the next part is asked for."""
        if not self._patched.numel():
            return self.base
        section, base = self.base.section, self.base.blocks
        grid, width = (self._patched.numel(), _PARTS), section.dtype.width_bits
        copy_parts[grid](
            self._patched, self._part_size, number, section.elements, base.address, base.row_stride, base.col_stride,
            base.cols, self._rectangles.address, WIDTH=width, FLAT=self.base.flat, SIZE=_SIZE,
        )  # fmt: skip
        patch_parts[grid](
            self._patched, self._part_size, number, section.elements, self.staged.first, self.staged.where,
            self.staged.value, self._rectangles.address, WIDTH=width, SIZE=_SIZE,
        )  # fmt: skip
        shifted = self._rectangles.address - number * self._part_size * section.dtype.width_bytes
        return replace(self.base, blocks=replace(self._rectangles, address=shifted))

    def restage(self, changes: ChangeList, elements: torch.Tensor, *, added: bool) -> None:
        """Corrects a list that was made of live elements, in blocks whose `elements` are not 0.

        Entries hold the old bits and their context; `added`: new bits, the old ones plus a difference, no context.
        """
        section, base = self.base.section, self.base.blocks
        restage_entries[(section.num_blocks, _PARTS)](
            changes.first, changes.where, changes.value, self.staged.first, self.staged.where, self.staged.value,
            elements, base.address, base.row_stride, base.col_stride, base.cols, WIDTH=section.dtype.width_bits,
            SHIFT=section.dtype.context_shift, CONTEXTS=section.dtype.num_contexts, FLAT=self.base.flat, ADDED=added,
            SIZE=_SIZE,
        )  # fmt: skip


@triton.jit
def copy_parts(
    which, part_size, part, elements, address, row_stride, col_stride, cols, target,
    WIDTH: tl.constexpr, FLAT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (listed block, share): one part of a block, in index order, to its target address."""
    block = tl.load(which + tl.program_id(0).to(tl.int64)).to(tl.int64)
    begin = (tl.load(part_size + block) * part).to(tl.int32)
    end = tl.minimum(begin + tl.load(part_size + block).to(tl.int32), tl.load(elements + block))
    width = tl.load(cols + block)
    source = bits_pointer(tl.load(address + block), WIDTH)
    sink = bits_pointer(tl.load(target + block), WIDTH)
    down, across = tl.load(row_stride + block), tl.load(col_stride + block)
    for k in range(begin + tl.program_id(1) * SIZE, end, SIZE * tl.num_programs(1)):
        i = k + tl.arange(0, SIZE)  # [SIZE]
        x = tl.load(source + tile_offset(i, down, across, width, FLAT), mask=i < end, other=0)
        tl.store(sink + (i - begin), x, mask=i < end)


@triton.jit
def patch_parts(
    which, part_size, part, elements, first, where, value, target, WIDTH: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """Programs (listed block, share): the entries of a list that lie in one part, over what lies at the target."""
    block = tl.load(which + tl.program_id(0).to(tl.int64)).to(tl.int64)
    begin = (tl.load(part_size + block) * part).to(tl.int32)
    end = tl.minimum(begin + tl.load(part_size + block).to(tl.int32), tl.load(elements + block))
    last = tl.load(first + block + 1)
    sink = bits_pointer(tl.load(target + block), WIDTH)
    for k in range(tl.load(first + block) + tl.program_id(1) * SIZE, last, SIZE * tl.num_programs(1)):
        at = k + tl.arange(0, SIZE)  # [SIZE]
        i = tl.load(where + at, mask=at < last, other=0) & POSITION_MASK
        inside = (at < last) & (i >= begin) & (i < end)
        bits = tl.load(value + at, mask=inside, other=0)
        tl.store(sink + (i - begin), bits.to(sink.dtype.element_ty, bitcast=True), mask=inside)


@triton.jit
def restage_entries(
    first, where, value, staged_first, staged_where, staged_value, elements, address, row_stride, col_stride, cols,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, FLAT: tl.constexpr, ADDED: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (block, share): entries whose position is staged get the staged bits for the live ones they came of."""
    block = tl.program_id(0).to(tl.int64)
    size, width = tl.load(elements + block), tl.load(cols + block)
    begin, end = tl.load(staged_first + block), tl.load(staged_first + block + 1)
    last = tl.load(first + block + 1)
    live = bits_pointer(tl.load(address + block), WIDTH)
    down, across = tl.load(row_stride + block), tl.load(col_stride + block)
    if (size > 0) & (end > begin):
        for k in range(tl.load(first + block) + tl.program_id(1) * SIZE, last, SIZE * tl.num_programs(1)):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            i = tl.load(where + at, mask=at < last, other=0) & POSITION_MASK
            inside = (at < last) & (i < size)  # hostile bytes may have left entries that nothing filled
            place = begin + rank_of(staged_where, begin, end, i, inside)
            there = inside & (place < end)
            same = there & ((tl.load(staged_where + place, mask=there, other=0) & POSITION_MASK) == i)
            bits = tl.load(staged_value + place, mask=same, other=0).to(live.dtype.element_ty, bitcast=True)
            if ADDED:
                old = tl.load(live + tile_offset(i, down, across, width, FLAT), mask=same, other=0)
                new = tl.load(value + at, mask=same, other=0).to(live.dtype.element_ty, bitcast=True)
                bits = new - old + bits
            else:
                context = (bits.to(tl.uint32) >> SHIFT) & (CONTEXTS - 1)
                entry = i.to(tl.uint32, bitcast=True) | (context << CONTEXT_SHIFT)
                tl.store(where + at, entry.to(tl.int32, bitcast=True), mask=same)
            tl.store(value + at, bits.to(value.dtype.element_ty, bitcast=True), mask=same)


def plain_overlay(section: Section, block: int, bits: torch.Tensor, staged: ChangeList) -> torch.Tensor:
    """The reference in plain torch: a block's elements (flat, any integer dtype) under its staged entries."""
    begin, end = int(staged.first[block]), int(staged.first[block + 1])
    patched = bits.clone()
    places = staged.where[begin:end].long() & 0xFFFFFF
    mask = (1 << section.dtype.width_bits) - 1
    patched[places] = (staged.value[begin:end].long() & mask).to(bits.dtype)
    return patched
