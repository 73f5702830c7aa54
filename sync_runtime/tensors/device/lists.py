"""Change lists in device memory, and how bit masks become them.

A list holds, block after block, an entry per changed element: its block index with a context or class above it
(`where`), and its bits (`value`): a difference when encoding, old and then new bits when decoding. Six bytes per
changed bf16 element; capacity is fixed until `grow`.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from sync_runtime.tensors.device.bind import BITS_OF_WIDTH, Bound
from sync_runtime.tensors.device.bitops import (
    CONTEXT_SHIFT,
    bits_pointer,
    popcount,
    tile_offset,
    wire_bits,
)
from sync_runtime.tensors.device.sections import UNIT_WORDS, Section

_FILL_PARTS, _FILL_SIZE = 4, 1024
_SPARE_ALIGN = 256


@dataclass
class ChangeList:
    """Changed elements of a section's blocks, in order."""

    first: torch.Tensor
    """int64[B + 1]: where each block's entries begin."""
    where: torch.Tensor
    """int32[capacity]: index | context << 24"""
    value: torch.Tensor
    """raw bits[capacity]"""

    @property
    def capacity(self) -> int:
        """Entries that there is room for."""
        return int(self.where.numel())

    def spare(self, used: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(where, value) beyond the used entries: memory that is free until the next list is made here."""
        begin = -(-used // _SPARE_ALIGN) * _SPARE_ALIGN
        return self.where[begin:], self.value[begin:]

    def grow(self, capacity: int) -> None:
        """The overflow path: more room, contents lost. The only allocation after warm-up, and only then."""
        device, dtype = self.where.device, self.value.dtype
        self.where, self.value = (torch.empty(0, device=device, dtype=kind) for kind in (torch.int32, dtype))
        self.where = torch.empty(capacity, dtype=torch.int32, device=device)
        self.value = torch.empty(capacity, dtype=dtype, device=device)


def new_list(section: Section, capacity: int) -> ChangeList:
    """An empty list."""
    return ChangeList(
        first=torch.zeros(section.num_blocks + 1, dtype=torch.int64, device=section.device),
        where=torch.empty(capacity, dtype=torch.int32, device=section.device),
        value=torch.empty(capacity, dtype=BITS_OF_WIDTH[section.dtype.width_bits], device=section.device),
    )


@triton.jit
def count_units(units, mask, word_base, unit_block, unit_first, elements, counts, WORDS: tl.constexpr):
    """One program per listed unit: set bits of its mask words. word_base[block]: where the block's first word is."""
    unit = tl.load(units + tl.program_id(0).to(tl.int64)).to(tl.int64)
    block = tl.load(unit_block + unit)
    index = (unit - tl.load(unit_first + block)) * WORDS + tl.arange(0, WORDS)  # [WORDS]
    inside = index < (tl.load(elements + block) + 31) // 32
    words = tl.load(mask + tl.load(word_base + block) + index, mask=inside, other=0).to(tl.uint32, bitcast=True)
    tl.store(counts + unit, tl.sum(popcount(words), 0))


@triton.jit
def expand_units(
    units, mask, word_base, unit_block, unit_first, elements, offsets, where, limits, WORDS: tl.constexpr
):  # fmt: skip
    """One program per listed unit: the places of its set bits, in order, as list entries.

    Entries at or above the block's limit are dropped: a mask from hostile bytes cannot write outside its block's part.
    """
    unit = tl.load(units + tl.program_id(0).to(tl.int64)).to(tl.int64)
    block = tl.load(unit_block + unit)
    size = tl.load(elements + block)
    index = (unit - tl.load(unit_first + block)).to(tl.int32) * WORDS + tl.arange(0, WORDS)  # [WORDS]
    words = tl.load(mask + tl.load(word_base + block) + index, mask=index < (size + 31) // 32, other=0)
    words = words.to(tl.uint32, bitcast=True)
    counts = popcount(words)
    begin = tl.load(offsets + unit)
    at = tl.cumsum(counts, 0) - counts  # [WORDS]
    room = tl.minimum(tl.load(limits + block) - begin, WORDS * 32).to(tl.int32)
    sink = where + begin
    for _ in range(tl.max(counts, 0)):
        i = index * 32 + popcount((words & (0 - words)) - 1)
        tl.store(sink + at, i, mask=(words != 0) & (i < size) & (at < room))
        words = words & (words - 1)
        at += 1


@triton.jit
def fill_entries(
    start, where, value, first, elements, limit, old_address, old_down, old_across, new_address, new_down, new_across,
    cols,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, OLD_FLAT: tl.constexpr, NEW_FLAT: tl.constexpr,
    DIFFERENCE: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (block, part): adds the old context to each entry; value = new - old with DIFFERENCE, else old."""
    block = tl.program_id(0).to(tl.int64) + start
    size, width = tl.load(elements + block), tl.load(cols + block)
    old = bits_pointer(tl.load(old_address + block), WIDTH)
    new = bits_pointer(tl.load(new_address + block), 32 if CAST else WIDTH)
    d0, a0 = tl.load(old_down + block), tl.load(old_across + block)
    d1, a1 = tl.load(new_down + block), tl.load(new_across + block)
    end = tl.minimum(tl.load(first + block + 1), limit)
    if size > 0:
        for k in range(tl.load(first + block) + tl.program_id(1) * SIZE, end, SIZE * tl.num_programs(1)):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            i = tl.load(where + at, mask=at < end, other=0)
            inside = (at < end) & (i >= 0) & (i < size)  # entries that no mask bit filled hold anything
            x = wire_bits(old, tile_offset(i, d0, a0, width, OLD_FLAT), inside, WIDTH, False, NAN)
            context = (x >> SHIFT) & (CONTEXTS - 1)
            if DIFFERENCE:
                x = wire_bits(new, tile_offset(i, d1, a1, width, NEW_FLAT), inside, WIDTH, CAST, NAN) - x
            entry = i.to(tl.uint32, bitcast=True) | (context << CONTEXT_SHIFT)
            tl.store(where + at, entry.to(tl.int32, bitcast=True), mask=inside)
            tl.store(value + at, x.to(value.dtype.element_ty), mask=inside)


def launch_count(
    units: torch.Tensor, mask: torch.Tensor, word_base: torch.Tensor, counts: torch.Tensor, section: Section,
    elements: torch.Tensor,
) -> None:  # fmt: skip
    """Set bits of some units, into counts[unit]. `elements` is 0 for blocks that have no mask."""
    if units.numel():
        count_units[(units.numel(),)](
            units, mask, word_base, section.unit_block, section.unit_first, elements, counts, WORDS=UNIT_WORDS
        )


def launch_expand(
    units: torch.Tensor, mask: torch.Tensor, word_base: torch.Tensor, offsets: torch.Tensor, limits: torch.Tensor,
    into: ChangeList, section: Section, elements: torch.Tensor,
) -> None:  # fmt: skip
    """Lists the set bits of some units from offsets[unit] on. `elements` is 0 for blocks that have no mask."""
    if units.numel():
        expand_units[(units.numel(),)](
            units, mask, word_base, section.unit_block, section.unit_first, elements, offsets, into.where, limits,
            WORDS=UNIT_WORDS,
        )  # fmt: skip


def launch_fill(into: ChangeList, old: Bound, new: Bound | None, elements: torch.Tensor, blocks: range) -> None:
    """Contexts and values of some blocks' listed places; `new` gives differences, its absence the old bits."""
    section, other = old.section, new or old
    fill_entries[(len(blocks), _FILL_PARTS)](
        blocks.start, into.where, into.value, into.first, elements, into.capacity, old.blocks.address,
        old.blocks.row_stride,
        old.blocks.col_stride, other.blocks.address, other.blocks.row_stride, other.blocks.col_stride,
        old.blocks.cols, WIDTH=section.dtype.width_bits, SHIFT=section.dtype.context_shift,
        CONTEXTS=section.dtype.num_contexts, OLD_FLAT=old.flat, NEW_FLAT=other.flat, DIFFERENCE=new is not None,
        CAST=other.cast, NAN=other.nan_bits, SIZE=_FILL_SIZE,
    )  # fmt: skip
