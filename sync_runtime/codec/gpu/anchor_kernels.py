"""Anchor blocks as Triton kernels (FORMAT.md, section 8): contexts by rANS under a table per block, the rest as bits.

All kernels work on a batch: entry k of `which` is a block of the section. Lanes of all blocks of a batch stand in one
row. Readers bound every read by sizes that the host has checked and note faults in a status word per entry.
"""

# mypy: disable-error-code="assignment, import-untyped, no-untyped-call, no-untyped-def, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.codec.gpu.tight_kernels import CONTEXT_ROOM, STATE_LOW, lane_of
from sync_runtime.tensors.device.bitops import bits_pointer, tile_offset, wire_bits

ONE = tl.constexpr(1 << 12)
BITS = tl.constexpr(12)
SPILL = tl.constexpr(20)
FAULT_TABLE = tl.constexpr(1)
FAULT_SIZE = tl.constexpr(2)
FAULT_LANE = tl.constexpr(4)
FAULT_PADDING = tl.constexpr(8)


@triton.jit
def count_anchor_contexts(
    which, elements, address, row_stride, col_stride, cols, counts,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, FLAT: tl.constexpr, SIZE: tl.constexpr,
    BINS: tl.constexpr,
):  # fmt: skip
    """Programs (entry, share): elements per context, int64[K, 256], added up."""
    k = tl.program_id(0).to(tl.int64)
    block = tl.load(which + k).to(tl.int64)
    size, width = tl.load(elements + block), tl.load(cols + block)
    source = bits_pointer(tl.load(address + block), WIDTH)
    down, across = tl.load(row_stride + block), tl.load(col_stride + block)
    found = tl.zeros([BINS], tl.int32)
    for first in range(tl.program_id(1) * SIZE, size, SIZE * tl.num_programs(1)):
        i = first + tl.arange(0, SIZE)  # [SIZE]
        x = wire_bits(source, tile_offset(i, down, across, width, FLAT), i < size, WIDTH, 0, 0)
        found += tl.histogram(((x >> SHIFT) & (CONTEXTS - 1)).to(tl.int32), BINS, mask=i < size)
    sink = counts + k * CONTEXT_ROOM + tl.arange(0, BINS)
    tl.atomic_add(sink, found.to(tl.int64), mask=found > 0, sem="relaxed")


@triton.jit
def encode_contexts(
    which, lane_entry, lane_first, log2_lanes, elements, address, row_stride, col_stride, cols, table, scratch,
    scratch_first, capacity, states, counts, num_lanes,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, FLAT: tl.constexpr, LANES: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """LANES lanes per program, last element first, words downwards; table[entry, context] = f << 16 | start."""
    q, live, k, lane = lane_of(lane_entry, lane_first, log2_lanes, num_lanes, LANES)
    block = tl.load(which + k).to(tl.int64)
    stride = 1 << tl.load(log2_lanes + k)
    steps = (tl.load(elements + block) - lane + stride - 1) // stride
    source = bits_pointer(tl.load(address + block), WIDTH)
    down, across, width = tl.load(row_stride + block), tl.load(col_stride + block), tl.load(cols + block)
    rows = table + k * CONTEXT_ROOM
    room = tl.load(capacity + k)
    words = (scratch + tl.load(scratch_first + k) + lane.to(tl.int64) * room).to(tl.pointer_type(tl.uint16))
    x = tl.full([LANES], STATE_LOW, tl.uint32)
    at = room
    for done in range(0, tl.max(steps, 0), STEPS):
        group = ()
        for u in tl.static_range(STEPS):
            t = steps - 1 - done - u
            on = (t >= 0) & live
            bits = wire_bits(source, tile_offset(t * stride + lane, down, across, width, FLAT), on, WIDTH, 0, 0)
            context = ((bits >> SHIFT) & (CONTEXTS - 1)).to(tl.int32)
            group = group + (tl.load(rows + context, mask=on, other=0),)  # noqa: RUF005 -- Triton knows no unpacking
        tl.debug_barrier()
        for u in tl.static_range(STEPS):
            on = (steps - 1 - done - u >= 0) & live
            entry = group[u].to(tl.uint32, bitcast=True)
            f = entry >> 16
            spill = ((x >> SPILL) >= f) & on
            at -= spill.to(tl.int32)
            tl.store(words + at, x.to(tl.uint16), mask=spill)
            x = tl.where(spill, x >> 16, x)
            quotient = x // tl.maximum(f, 1)
            x = tl.where(on, (quotient << BITS) + (x - quotient * f) + (entry & 0xFFFF), x)
    tl.store(states + q, x.to(tl.int32, bitcast=True), mask=live)
    tl.store(counts + q, room - at, mask=live)


@triton.jit
def write_packed(
    out, body, mode, first_context, num_contexts, frequency, log2_lanes, lane_first, states, counts, scratch,
    scratch_first, capacity,
    LANES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One program per entry: table, states, word counts and words of a packed body, after its seq."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 4:
        head = out + tl.load(body + k) + 2
        first, used = tl.load(first_context + k), tl.load(num_contexts + k)
        tl.store(head, first | (used << 16))
        context = tl.arange(0, 256)  # [256]
        f = tl.load(frequency + k * CONTEXT_ROOM + first + context, mask=context < used, other=0)
        tl.store(head.to(tl.pointer_type(tl.uint16)) + 2 + context, f.to(tl.uint16), mask=context < used)
        lanes = 1 << tl.load(log2_lanes + k)
        lane_at, room = tl.load(lane_first + k), tl.load(capacity + k)
        source = (scratch + tl.load(scratch_first + k)).to(tl.pointer_type(tl.uint16))
        state_place = head + 1 + (used + 1) // 2
        count_place = (state_place + lanes).to(tl.pointer_type(tl.uint16))
        sink = (state_place + lanes + (lanes + 1) // 2).to(tl.pointer_type(tl.uint16))
        done = 0
        for begin in range(0, lanes, LANES):
            lane = begin + tl.arange(0, LANES)  # [LANES]
            inside = lane < lanes
            size = tl.load(counts + lane_at + lane, mask=inside, other=0)
            tl.store(state_place + lane, tl.load(states + lane_at + lane, mask=inside, other=0), mask=inside)
            tl.store(count_place + lane, size.to(tl.uint16), mask=inside)
            start = done + tl.cumsum(size, 0) - size
            done += tl.sum(size, 0)
            for w in range(0, tl.max(size, 0), WORDS):
                word = w + tl.arange(0, WORDS)  # [WORDS]
                taken = word[None, :] < size[:, None]  # [LANES, WORDS]
                place = (lane.to(tl.int64) * room + room - size)[:, None] + word[None, :]
                tl.store(
                    sink + start[:, None] + word[None, :], tl.load(source + place, mask=taken, other=0), mask=taken
                )


@triton.jit
def write_rest(
    which, out, rest, mode, elements, address, row_stride, col_stride, cols,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXT_BITS: tl.constexpr, REST: tl.constexpr, FLAT: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (entry, share): what stands beside the context, REST bits an element; a word gathers all it holds."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 4:
        block = tl.load(which + k).to(tl.int64)
        size, width = tl.load(elements + block), tl.load(cols + block)
        source = bits_pointer(tl.load(address + block), WIDTH)
        down, across = tl.load(row_stride + block), tl.load(col_stride + block)
        sink = out + tl.load(rest + k)
        words = ((size.to(tl.int64) * REST + 31) // 32).to(tl.int32)
        for first in range(tl.program_id(1) * SIZE, words, SIZE * tl.num_programs(1)):
            word = first + tl.arange(0, SIZE)  # [SIZE]
            bit = word.to(tl.int64) * 32
            held = tl.zeros([SIZE], tl.uint32)
            for u in tl.static_range(32 // REST + 2):
                i = (bit // REST).to(tl.int32) + u
                place = (i.to(tl.int64) * REST - bit).to(tl.int32)  # where the element's bits begin, from 1 - REST on
                inside = (word < words) & (i < size) & (place < 32)
                x = wire_bits(source, tile_offset(i, down, across, width, FLAT), inside, WIDTH, 0, 0)
                bits = x & ((1 << SHIFT) - 1)
                if SHIFT + CONTEXT_BITS < WIDTH:
                    bits = bits | ((x >> (SHIFT + CONTEXT_BITS)) << SHIFT)
                up = bits << tl.minimum(tl.maximum(place, 0), 31).to(tl.uint32)
                down_ = bits >> tl.minimum(tl.maximum(0 - place, 0), 31).to(tl.uint32)
                held = held | tl.where(inside, tl.where(place >= 0, up, down_), 0)
            tl.store(sink + word, held.to(tl.int32, bitcast=True), mask=word < words)


@triton.jit
def write_raw(
    which, out, body, mode, elements, address, row_stride, col_stride, cols,
    WIDTH: tl.constexpr, FLAT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (entry, share): the elements of a raw body, after its seq."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 5:
        block = tl.load(which + k).to(tl.int64)
        size, width = tl.load(elements + block), tl.load(cols + block)
        source = bits_pointer(tl.load(address + block), WIDTH)
        sink = bits_pointer((out + tl.load(body + k) + 2).to(tl.int64), WIDTH)
        down, across = tl.load(row_stride + block), tl.load(col_stride + block)
        for first in range(tl.program_id(1) * SIZE, size, SIZE * tl.num_programs(1)):
            i = first + tl.arange(0, SIZE)  # [SIZE]
            x = tl.load(source + tile_offset(i, down, across, width, FLAT), mask=i < size, other=0)
            tl.store(sink + i, x, mask=i < size)


@triton.jit
def open_packed(
    stream, body, body_words, rest_words, mode, log2_lanes, lane_first, first_context, num_contexts, table, lane_start,
    lane_state, lane_left, word_place, rest_place, status,
    LANES: tl.constexpr,
):  # fmt: skip
    """One program per entry: its table with starts, where each lane's words begin, and whether the sections fit."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 4:
        first, used = tl.load(first_context + k), tl.load(num_contexts + k)
        begin = tl.load(body + k) + 2
        head = stream + begin
        context = tl.arange(0, 256) - first  # [256]
        inside = (context >= 0) & (context < used)
        f = tl.load(head.to(tl.pointer_type(tl.uint16)) + 2 + context, mask=inside, other=0).to(tl.int32)
        ends = tl.sum(tl.where((context == 0) | (context == used - 1), (f == 0).to(tl.int32), 0), 0)
        wrong = (tl.sum(f, 0) != ONE) | (ends != 0)
        odd = tl.load(head.to(tl.pointer_type(tl.uint16)) + 2 + used, mask=used % 2 == 1, other=0).to(tl.int32)
        tl.store(table + k * CONTEXT_ROOM + tl.arange(0, 256), (f << 16) | ((tl.cumsum(f, 0) - f) & 0xFFFF))
        lanes = 1 << tl.load(log2_lanes + k)
        state_at = 1 + (used + 1) // 2
        counts = (head + state_at + lanes).to(tl.pointer_type(tl.uint16))
        lane = tl.arange(0, LANES)  # [LANES]: the most lanes there can be
        sizes = tl.load(counts + lane, mask=lane < lanes, other=0).to(tl.int32)
        odd = odd | tl.load(counts + 1, mask=lanes == 1, other=0).to(tl.int32)
        total = tl.sum(sizes, 0)
        words_at = state_at + lanes + (lanes + 1) // 2
        fit = 2 + words_at + (total + 1) // 2 + tl.load(rest_words + k) == tl.load(body_words + k)
        last = (head + words_at).to(tl.pointer_type(tl.uint16)) + total
        odd = odd | tl.load(last, mask=fit & (total % 2 == 1), other=0).to(tl.int32)
        state = tl.load(head + state_at + lane, mask=lane < lanes, other=STATE_LOW)
        sound = tl.min((state.to(tl.uint32, bitcast=True) >= STATE_LOW).to(tl.int32), 0)
        at = tl.load(lane_first + k) + lane
        tl.store(lane_start + at, tl.cumsum(sizes, 0) - sizes, mask=lane < lanes)
        tl.store(lane_state + at, state, mask=lane < lanes)
        tl.store(lane_left + at, tl.where(fit, sizes, 0), mask=lane < lanes)
        tl.store(word_place + k, (begin + words_at) * 2)
        tl.store(rest_place + k, tl.load(body + k) + tl.load(body_words + k) - tl.load(rest_words + k))
        fault = wrong.to(tl.int32) * FAULT_TABLE | tl.where(fit, 0, FAULT_SIZE)
        tl.store(status + k, fault | (odd != 0).to(tl.int32) * FAULT_PADDING | (1 - sound) * FAULT_LANE)


@triton.jit
def fill_slots(mode, table, slots, SIZE: tl.constexpr):
    """Programs (entry, share): which context each of the 4096 slots belongs to, by search among the starts."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 4:
        slot = tl.program_id(1) * SIZE + tl.arange(0, SIZE)  # [SIZE]
        context = tl.zeros([SIZE], tl.int32)
        for r in tl.static_range(8):
            step = 128 >> r
            entry = tl.load(table + k * CONTEXT_ROOM + context + step)
            context = tl.where((entry & 0xFFFF) <= slot, context + step, context)
        tl.store(slots + k * ONE + slot, context.to(tl.uint8))


@triton.jit
def decode_contexts(
    stream, which, lane_entry, lane_first, log2_lanes, elements, table, slots, lane_start, lane_state, lane_left,
    word_place, rest_place, buffer, buffer_first, status, num_lanes,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXT_BITS: tl.constexpr, REST: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """LANES lanes per program: contexts from the lane's words, the rest from its bits, whole elements to the buffer."""
    q, live, k, lane = lane_of(lane_entry, lane_first, log2_lanes, num_lanes, LANES)
    block = tl.load(which + k).to(tl.int64)
    stride = 1 << tl.load(log2_lanes + k)
    steps = (tl.load(elements + block) - lane + stride - 1) // stride
    x = tl.load(lane_state + q).to(tl.uint32, bitcast=True)
    at = tl.load(lane_start + q)
    stop = at + tl.load(lane_left + q)
    source = stream.to(tl.pointer_type(tl.uint16)) + tl.load(word_place + k)
    rest = stream + tl.load(rest_place + k)
    sink = buffer + tl.load(buffer_first + k)
    for t in range(tl.max(steps, 0)):
        on = (t < steps) & live
        i = t * stride + lane
        bit = i.to(tl.int64) * REST
        shift = (bit & 31).to(tl.uint32)
        low = tl.load(rest + (bit >> 5), mask=on, other=0).to(tl.uint32, bitcast=True)
        high = tl.load(rest + (bit >> 5) + 1, mask=on & (shift + REST > 32), other=0).to(tl.uint32, bitcast=True)
        side = ((low >> shift) | (high << ((32 - shift) & 31))) & ((1 << REST) - 1)
        slot = (x & (ONE - 1)).to(tl.int32)
        context = tl.load(slots + k * ONE + slot).to(tl.int32)
        entry = tl.load(table + k * CONTEXT_ROOM + context).to(tl.uint32, bitcast=True)
        y = (entry >> 16) * (x >> BITS) + slot.to(tl.uint32) - (entry & 0xFFFF)
        short = (y < STATE_LOW) & on
        word = tl.load(source + at, mask=short & (at < stop), other=0).to(tl.uint32)
        x = tl.where(on, tl.where(short, (y << 16) | word, y), x)
        at += short.to(tl.int32)
        bits = (side & ((1 << SHIFT) - 1)) | (context.to(tl.uint32) << SHIFT)
        if SHIFT + CONTEXT_BITS < WIDTH:
            bits = bits | ((side >> SHIFT) << (SHIFT + CONTEXT_BITS))
        tl.store(sink + i, bits.to(buffer.dtype.element_ty), mask=on)
    bad = live & ((x != STATE_LOW) | (at != stop))
    tl.atomic_or(status + k, tl.full([LANES], FAULT_LANE, tl.int32), mask=bad)


@triton.jit
def read_raw(stream, which, body, mode, elements, buffer, buffer_first, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Programs (entry, share): the elements of a raw body to the buffer."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(mode + k) == 5:
        size = tl.load(elements + tl.load(which + k))
        source = bits_pointer((stream + tl.load(body + k) + 2).to(tl.int64), WIDTH)
        sink = buffer + tl.load(buffer_first + k)
        for first in range(tl.program_id(1) * SIZE, size, SIZE * tl.num_programs(1)):
            i = first + tl.arange(0, SIZE)  # [SIZE]
            x = tl.load(source + i, mask=i < size, other=0)
            tl.store(sink + i, x.to(buffer.dtype.element_ty, bitcast=True), mask=i < size)


@triton.jit
def store_pieces(
    pieces, piece_entry, piece_first, shape, address, row_stride, col_stride, buffer, buffer_first,
    WIDTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Programs (listed piece, share): a piece's elements from the buffer to where the tensor holds them."""
    p = tl.program_id(0).to(tl.int64)
    piece, k = tl.load(pieces + p).to(tl.int64), tl.load(piece_entry + p).to(tl.int64)
    rows, cols = tl.load(shape + 2 * piece), tl.load(shape + 2 * piece + 1)
    source = buffer + tl.load(buffer_first + k) + tl.load(piece_first + piece)
    sink = bits_pointer(tl.load(address + piece), WIDTH)
    down, across = tl.load(row_stride + piece), tl.load(col_stride + piece)
    for first in range(tl.program_id(1) * SIZE, rows * cols, SIZE * tl.num_programs(1)):
        i = first + tl.arange(0, SIZE)  # [SIZE]
        row = (i // cols).to(tl.int64)
        place = sink + row * down + (i.to(tl.int64) - row * cols) * across
        x = tl.load(source + i, mask=i < rows * cols, other=0)
        tl.store(place, x.to(sink.dtype.element_ty, bitcast=True), mask=i < rows * cols)
