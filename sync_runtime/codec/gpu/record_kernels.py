"""Entries, the choice of modes, and `dense` bodies as Triton kernels (FORMAT.md, sections 5 and 6.1)."""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.codec.gpu.fast_kernels import FAULT_PADDING, FRAME, padding_fault, unsigned
from sync_runtime.tensors.device.bitops import POSITION_MASK, bits_pointer, tile_offset, wire_bits


@triton.jit
def dense_write(
    mode, body, out, elements, old_address, old_down, old_across, new_address, new_down, new_across, cols,
    WIDTH: tl.constexpr, OLD_FLAT: tl.constexpr, NEW_FLAT: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (block, part): differences of all elements of a dense block."""
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 3:
        size, width = tl.load(elements + block), tl.load(cols + block)
        sink = bits_pointer((out + tl.load(body + block)).to(tl.int64), WIDTH)
        old = bits_pointer(tl.load(old_address + block), WIDTH)
        new = bits_pointer(tl.load(new_address + block), 32 if CAST else WIDTH)
        for k in range(tl.program_id(1) * SIZE, size, SIZE * tl.num_programs(1)):
            i = k + tl.arange(0, SIZE)  # [SIZE]
            inside = i < size
            x = wire_bits(
                old, tile_offset(i, tl.load(old_down + block), tl.load(old_across + block), width, OLD_FLAT), inside,
                WIDTH, False, NAN,
            )  # fmt: skip
            y = wire_bits(
                new, tile_offset(i, tl.load(new_down + block), tl.load(new_across + block), width, NEW_FLAT), inside,
                WIDTH, CAST, NAN,
            )  # fmt: skip
            tl.store(sink + i, (y - x).to(sink.dtype.element_ty), mask=inside)


@triton.jit
def dense_mask(
    units, stream, body, mode, elements, mask, word_base, status, unit_block, unit_first,
    WIDTH: tl.constexpr, UNIT: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One program per listed unit: the mask of a dense block's differences that are not zero; padding is checked."""
    unit = tl.load(units + tl.program_id(0).to(tl.int64)).to(tl.int64)
    block = tl.load(unit_block + unit)
    if tl.load(mode + block) == 3:
        size = tl.load(elements + block)
        head = stream + tl.load(body + block)
        source = bits_pointer(head.to(tl.int64), WIDTH)
        first = ((unit - tl.load(unit_first + block)) * UNIT).to(tl.int32)
        for k in range(first, min(first + UNIT, size), 32 * WORDS):
            i = k + tl.arange(0, WORDS)[:, None] * 32 + tl.arange(0, 32)[None, :]  # [WORDS, 32]
            x = tl.load(source + i, mask=i < size, other=0).to(tl.uint32)
            words = tl.sum((x != 0).to(tl.uint32) << tl.arange(0, 32)[None, :], 1)
            at = k // 32 + tl.arange(0, WORDS)
            places = mask + tl.load(word_base + block) + at
            tl.store(places, words.to(tl.int32, bitcast=True), mask=at < (size + 31) // 32)
        if first == 0:
            tl.store(status + block, padding_fault(head, size * (WIDTH // 8)).to(tl.int32) * FAULT_PADDING)


@triton.jit
def dense_finish(stream, body, mode, elements, first, where, value, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """One program per block: adds the differences of a dense block to the old bits in its list."""
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 3:
        source = bits_pointer((stream + tl.load(body + block)).to(tl.int64), WIDTH)
        end = tl.load(first + block + 1)
        for k in range(tl.load(first + block), end, SIZE):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            inside = at < end
            position = tl.load(where + at, mask=inside, other=0) & POSITION_MASK
            inside = inside & (position < tl.load(elements + block))  # entries that no mask bit filled hold anything
            x = unsigned(tl.load(value + at, mask=inside, other=0), WIDTH)
            y = tl.load(source + position, mask=inside, other=0).to(tl.uint32)
            tl.store(where + at, position, mask=inside)
            tl.store(value + at, (x + y).to(value.dtype.element_ty), mask=inside)


@triton.jit
def write_entries(numbers, mode, parameter, first, body, body_bytes, out, num_blocks, SIZE: tl.constexpr):
    """The 16 bytes in front of each body, [SIZE] blocks per program."""
    block = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = block < num_blocks
    kind = tl.load(mode + block, mask=inside, other=0)
    named = inside & (kind > 0)
    place = out + tl.load(body + block, mask=inside, other=4) - 4
    count = tl.load(first + block + 1, mask=named, other=0) - tl.load(first + block, mask=named, other=0)
    tl.store(place, tl.load(numbers + block, mask=named, other=0).to(tl.int32), mask=named)
    tl.store(place + 1, kind | (tl.load(parameter + block, mask=named, other=0) << 8), mask=named)
    tl.store(place + 2, count.to(tl.int32), mask=named)
    tl.store(place + 3, tl.load(body_bytes + block, mask=named, other=0).to(tl.int32), mask=named)


@triton.jit
def choose_modes(
    first, elements, gap_bits, totals, tight_sizes, log2_places, mode, parameter, body_bytes, record_bytes, num_blocks,
    FAST: tl.constexpr, TIGHT: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The smallest body per block, of equals the lower mode; [SIZE] blocks per program. Unchanged: mode 0."""
    block = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = block < num_blocks
    changed = tl.load(first + block + 1, mask=inside, other=0) > tl.load(first + block, mask=inside, other=0)
    inside = inside & changed
    size = tl.load(elements + block, mask=inside, other=0).to(tl.int64)
    best = (size * (WIDTH // 8) + 3) // 4 * 4
    kind = tl.full([SIZE], 3, tl.int32)
    chosen = tl.zeros([SIZE], tl.int32)
    if TIGHT:
        tight = tl.load(tight_sizes + block, mask=inside, other=0)
        kind = tl.where(tight <= best, 2, kind)
        chosen = tl.where(tight <= best, tl.load(log2_places + block, mask=inside, other=0), chosen)
        best = tl.minimum(tight, best)
    if FAST:
        bits = tl.load(gap_bits + block, mask=inside, other=0)
        symbols = tl.load(totals + 3 * block, mask=inside, other=0).to(tl.int64)
        escapes = tl.load(totals + 3 * block + 1, mask=inside, other=0).to(tl.int64)
        raws = tl.load(totals + 3 * block + 2, mask=inside, other=0).to(tl.int64)
        fast = 12 + (symbols + FRAME - 1) // FRAME * 12 + (symbols * (bits + 2) + 31) // 32 * 4
        fast += (escapes + 3) // 4 * 4 + (raws * (WIDTH // 8) + 3) // 4 * 4
        kind = tl.where(fast <= best, 1, kind)
        chosen = tl.where(fast <= best, bits, chosen)
        best = tl.minimum(fast, best)
    live = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE) < num_blocks
    tl.store(mode + block, tl.where(inside, kind, 0), mask=live)
    tl.store(parameter + block, tl.where(inside, chosen, 0), mask=live)
    tl.store(body_bytes + block, tl.where(inside, best, 0), mask=live)
    tl.store(record_bytes + block, tl.where(inside, best + 16, 0), mask=live)
