"""Digests on the device: a full scrub per piece, and the O(changed) digest of a list (FORMAT.md, section 3).

Two scrub kernels: `scrub_tiles` for tiles whose rows are whole words of aligned memory (nearly all of a model), where
row keys come from a table and column keys are multiplied in once per program; `scrub_any` for every other piece.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.tensors.device.bitops import (
    POSITION_MASK,
    bits_pointer,
    digest_key,
    mixed,
    rounded,
    wire_bits,
)

EIGHT = tl.constexpr(8)
"""Neighbours that one thread holds: sixteen bytes of bf16."""


@triton.jit
def scrub_any(
    which, address, row_stride, col_stride, shape, origin, keys, sums,
    WIDTH: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Programs (piece, part): the digest of a part of the piece, keys computed per element. Any strides."""
    piece = tl.load(which + tl.program_id(0).to(tl.int64)).to(tl.int64)
    rows, cols = tl.load(shape + 2 * piece), tl.load(shape + 2 * piece + 1)
    source = bits_pointer(tl.load(address + piece), 32 if CAST else WIDTH)
    down, across = tl.load(row_stride + piece), tl.load(col_stride + piece)
    row_a, col_a, row_b, col_b = _keys_of(keys, piece)
    first = tl.program_id(1) * SIZE * TILES
    sum_a = tl.zeros([SIZE], tl.uint64)
    sum_b = tl.zeros([SIZE], tl.uint64)
    for k in range(first, min(first + SIZE * TILES, rows * cols), SIZE):
        i = k + tl.arange(0, SIZE)  # [SIZE]
        inside = i < rows * cols
        row = (i // cols).to(tl.int64)
        col = (i % cols).to(tl.int64)
        x = wire_bits(source, row * down + col * across, inside, WIDTH, CAST, NAN)
        spread = tl.where(inside, mixed(x), 0).to(tl.uint64)
        row += tl.load(origin + 2 * piece)
        col += tl.load(origin + 2 * piece + 1)
        sum_a += digest_key(row_a, row) * digest_key(col_a, col) * spread
        sum_b += digest_key(row_b, row) * digest_key(col_b, col) * spread
    _add_words(sums, piece, tl.sum(sum_a, 0), tl.sum(sum_b, 0))


@triton.jit
def _keys_of(keys, piece):
    """The four uint64 keys of a piece's tensor, in the order of FORMAT.md."""
    return (
        tl.load(keys + 4 * piece).to(tl.uint64, bitcast=True),
        tl.load(keys + 4 * piece + 1).to(tl.uint64, bitcast=True),
        tl.load(keys + 4 * piece + 2).to(tl.uint64, bitcast=True),
        tl.load(keys + 4 * piece + 3).to(tl.uint64, bitcast=True),
    )


@triton.jit
def _add_words(sums, piece, a, b):
    tl.atomic_add(sums + 2 * piece, a.to(tl.int64, bitcast=True))
    tl.atomic_add(sums + 2 * piece + 1, b.to(tl.int64, bitcast=True))


@triton.jit
def row_keys(tensor_keys, tensor_first, numbers, out, count, SIZE: tl.constexpr):
    """Fills out[2, count] with A and B row keys; numbers[i] is the row, tensor_first[i] its keys' place."""
    i = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)  # [SIZE]
    inside = i < count
    at = tl.load(tensor_first + i, mask=inside, other=0)
    row = tl.load(numbers + i, mask=inside, other=0)
    key_a = tl.load(tensor_keys + 4 * at, mask=inside, other=0).to(tl.uint64, bitcast=True)
    key_b = tl.load(tensor_keys + 4 * at + 2, mask=inside, other=0).to(tl.uint64, bitcast=True)
    tl.store(out + i, digest_key(key_a, row).to(tl.int64, bitcast=True), mask=inside)
    tl.store(out + count + i, digest_key(key_b, row).to(tl.int64, bitcast=True), mask=inside)


@triton.jit
def tile_pass(
    unit_piece, unit_row, unit_col, start, shape, origin, keys, key_first, key_table, key_count, sums,
    new_address, new_down, old_address, old_down, mask, word_base, piece_block,
    WIDTH: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr, COMPARE: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, COLS: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """One program per part of ROWS by COLS of a tile: its digest and, with COMPARE, the mask of what differs from old.

    A thread holds EIGHT neighbours of a row: Σ key(column) · g(x) over them costs two 32-bit products per element and
    digest; the row's key is multiplied in once per eight. Row and column keys are 0 outside the tile, so masked
    elements add nothing. Addresses are multiples of 16 bytes and rows are whole mask words (cols % 32 = 0): the caller
    sees to it.
    """
    unit = tl.program_id(0).to(tl.int64) + start
    piece = tl.load(unit_piece + unit).to(tl.int64)
    row_first, col_first = tl.load(unit_row + unit), tl.load(unit_col + unit)
    rows, cols = tl.load(shape + 2 * piece), tl.multiple_of(tl.load(shape + 2 * piece + 1), 32)
    new = bits_pointer(tl.load(new_address + piece), 32 if CAST else WIDTH)
    down = tl.multiple_of(tl.load(new_down + piece), ALIGN)
    old = bits_pointer(tl.load(old_address + piece), WIDTH)
    old_stride = tl.multiple_of(tl.load(old_down + piece), ALIGN)
    table = key_table + tl.load(key_first + piece)
    if COMPARE:
        words = mask + tl.load(word_base + tl.load(piece_block + piece))
    col = tl.multiple_of(col_first, 32) + tl.arange(0, COLS)  # [COLS]
    across = col < cols
    number = col.to(tl.int64) + tl.load(origin + 2 * piece + 1)
    _, col_a, _, col_b = _keys_of(keys, piece)
    factor_a = tl.where(across, digest_key(col_a, number), 0).reshape(1, COLS // EIGHT, EIGHT)
    factor_b = tl.where(across, digest_key(col_b, number), 0).reshape(1, COLS // EIGHT, EIGHT)
    sum_a = tl.zeros([STEP, COLS // EIGHT], tl.uint64)
    sum_b = tl.zeros([STEP, COLS // EIGHT], tl.uint64)
    row = row_first + tl.arange(0, STEP)  # [STEP]
    x = _tile_rows(new, row, rows, down, col, across, COLS)
    y = x
    if COMPARE:
        y = _tile_rows(old, row, rows, old_stride, col, across, COLS)
    for _ in range(0, min(ROWS, rows - row_first), STEP):
        next_x = _tile_rows(new, row + STEP, rows, down, col, across, COLS)  # in flight while this step is worked on
        next_y = y
        if COMPARE:
            next_y = _tile_rows(old, row + STEP, rows, old_stride, col, across, COLS)
        bits = x.to(tl.uint32)
        if CAST:
            bits = rounded(bits, CAST, NAN)
        if COMPARE:
            _store_mask(words, bits != y.to(tl.uint32), row, col_first, rows, cols, STEP, COLS)
        spread = mixed(bits).reshape(STEP, COLS // EIGHT, EIGHT)
        key_a = tl.load(table + row, mask=row < rows, other=0).to(tl.uint64, bitcast=True)
        key_b = tl.load(table + key_count + row, mask=row < rows, other=0).to(tl.uint64, bitcast=True)
        sum_a += key_a[:, None] * _weighted(factor_a, spread)
        sum_b += key_b[:, None] * _weighted(factor_b, spread)
        x, y, row = next_x, next_y, row + STEP
    _add_words(sums, piece, tl.sum(tl.sum(sum_a, 1), 0), tl.sum(tl.sum(sum_b, 1), 0))


@triton.jit
def _weighted(factor, spread):
    """Σ factor · spread mod 2^64 over the last axis: two 32-bit products each instead of a 64-bit one."""
    low = tl.sum((factor & 0xFFFFFFFF) * spread.to(tl.uint64), 2)
    high = tl.sum((factor >> 32).to(tl.uint32) * spread, 2)
    return low + (high.to(tl.uint64) << 32)


@triton.jit
def _tile_rows(base, row, rows, stride, col, across, COLS: tl.constexpr):
    """Raw elements [STEP, COLS] of some rows, in 16-byte loads."""
    places = base + (row.to(tl.int64) * stride)[:, None] + col[None, :]
    places = tl.max_contiguous(tl.multiple_of(places, [1, 16]), [1, COLS])
    return tl.load(places, mask=(row < rows)[:, None] & across[None, :], other=0)


@triton.jit
def _store_mask(mask, changed, row, col_first, rows, cols, STEP: tl.constexpr, COLS: tl.constexpr):
    """changed[STEP, COLS] as bytes of eight columns; a thread holds eight, so that no exchange is needed."""
    bits = changed.to(tl.uint32).reshape(STEP, COLS // 8, 8) << tl.arange(0, 8)[None, None, :]
    octets = tl.sum(bits, 2)  # [STEP, COLS // 8]
    octet = col_first // 8 + tl.arange(0, COLS // 8)
    inside = (row < rows)[:, None] & (octet < cols // 8)[None, :]
    places = mask.to(tl.pointer_type(tl.uint8)) + (row * (cols // 8))[:, None] + octet[None, :]
    tl.store(places, octets.to(tl.uint8), mask=inside)


@triton.jit
def compare_any(
    units, unit_block, unit_first, elements, mask, word_base,
    new_address, new_down, new_across, old_address, old_down, old_across, block_cols,
    WIDTH: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr, UNIT: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One program per unit of a block that `tile_pass` cannot take: the mask alone, any strides."""
    unit = tl.load(units + tl.program_id(0).to(tl.int64)).to(tl.int64)
    block = tl.load(unit_block + unit)
    size, cols = tl.load(elements + block), tl.load(block_cols + block)
    first = ((unit - tl.load(unit_first + block)) * UNIT).to(tl.int32)
    new = bits_pointer(tl.load(new_address + block), 32 if CAST else WIDTH)
    old = bits_pointer(tl.load(old_address + block), WIDTH)
    for k in range(first, min(first + UNIT, size), 32 * WORDS):
        i = k + tl.arange(0, WORDS)[:, None] * 32 + tl.arange(0, 32)[None, :]  # [WORDS, 32]
        inside = i < size
        row = (i // cols).to(tl.int64)
        col = (i % cols).to(tl.int64)
        x = wire_bits(
            new, row * tl.load(new_down + block) + col * tl.load(new_across + block), inside, WIDTH, CAST, NAN
        )
        y = wire_bits(
            old, row * tl.load(old_down + block) + col * tl.load(old_across + block), inside, WIDTH, False, NAN
        )
        words = tl.sum((x != y).to(tl.uint32) << tl.arange(0, 32)[None, :], 1)  # [WORDS]
        at = k // 32 + tl.arange(0, WORDS)
        places = mask + tl.load(word_base + block) + at
        tl.store(places, words.to(tl.int32, bitcast=True), mask=at < (size + 31) // 32)


@triton.jit
def list_pass(
    where, value, first, piece_block, piece_first, shape, origin, keys, address, row_stride, col_stride, sums,
    WIDTH: tl.constexpr, CAST: tl.constexpr, DIGEST: tl.constexpr, STORE: tl.constexpr, ADD: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (piece, part): the list's entries that lie in the piece.

    DIGEST: what they add to the digest; STORE: write them; ADD: they are differences, to be added to what is there.
    """
    piece = tl.program_id(0).to(tl.int64)
    block = tl.load(piece_block + piece)
    begin = tl.load(piece_first + piece)
    rows, cols = tl.load(shape + 2 * piece), tl.load(shape + 2 * piece + 1)
    live = bits_pointer(tl.load(address + piece), WIDTH)
    down, across = tl.load(row_stride + piece), tl.load(col_stride + piece)
    sum_a = tl.zeros([SIZE], tl.uint64)
    sum_b = tl.zeros([SIZE], tl.uint64)
    end = tl.load(first + block + 1)
    row_a, col_a, row_b, col_b = _keys_of(keys, piece)
    for k in range(tl.load(first + block) + tl.program_id(1) * SIZE, end, SIZE * tl.num_programs(1)):
        at = k + tl.arange(0, SIZE)  # [SIZE]
        i = (tl.load(where + at, mask=at < end, other=0) & POSITION_MASK) - begin
        inside = (at < end) & (i >= 0) & (i < rows * cols)
        bits = tl.load(value + at, mask=inside, other=0)
        row = (i // cols).to(tl.int64)
        col = i.to(tl.int64) - row * cols
        places = live + row * down + col * across
        if DIGEST:
            x = bits.to(live.dtype.element_ty, bitcast=True).to(tl.uint32)
            y = tl.load(places, mask=inside, other=0).to(tl.uint32)
            step = tl.where(inside, mixed(x).to(tl.uint64) - mixed(y).to(tl.uint64), 0)
            row += tl.load(origin + 2 * piece)
            col += tl.load(origin + 2 * piece + 1)
            sum_a += digest_key(row_a, row) * digest_key(col_a, col) * step
            sum_b += digest_key(row_b, row) * digest_key(col_b, col) * step
        if STORE:
            tl.store(places, bits.to(live.dtype.element_ty, bitcast=True), mask=inside)
        if ADD:
            x = tl.load(places, mask=inside, other=0) + bits.to(live.dtype.element_ty, bitcast=True)
            tl.store(places, x, mask=inside)
    if DIGEST:
        _add_words(sums, piece, tl.sum(sum_a, 0), tl.sum(sum_b, 0))
