"""Statistics, step classes, signs and extra bits of `tight` bodies as Triton kernels (FORMAT.md, sections 6.3, 7)."""

# mypy: disable-error-code="assignment, attr-defined, import-untyped, no-untyped-call, no-untyped-def, var-annotated"
# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.codec.gpu.fast_kernels import put_bits, step_of, unsigned
from sync_runtime.codec.gpu.tight_kernels import (
    CONTEXT_ROOM,
    FAULT_CLASS,
    FAULT_LANE,
    FAULT_PLANES,
    FAULT_STEP,
    ONE,
    STATE_LOW,
    lane_of,
)
from sync_runtime.tensors.device.bitops import (
    CONTEXT_SHIFT,
    POSITION_MASK,
    bits_pointer,
    tile_offset,
    wire_bits,
)

CLASS_ROOM = tl.constexpr(32)
"""Entries per context in a value table, whatever the dtype."""
COMMON_CLASSES = tl.constexpr(4)
"""Classes 0 to 2 are counted by histogram; the rest, rare, one by one."""


@triton.jit
def _significant(c):
    """Significant bits of uint32 below 2^16, from the exponent of its float."""
    exponent = (c.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126
    return tl.where(c == 0, 0, exponent)


@triton.jit
def class_of(magnitude, WIDTH: tl.constexpr):
    """Significant bits of |s| - 1."""
    c = magnitude - 1
    if WIDTH <= 16:
        return _significant(c)
    else:
        high = c >> 16
        return tl.where(high > 0, 16 + _significant(high), _significant(c & 0xFFFF))


@triton.jit
def count_contexts(
    first, elements, groups, sampled, address, row_stride, col_stride, cols, counts,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, FLAT: tl.constexpr, RUN: tl.constexpr,
    EVERY: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Programs (block, part): old contexts of changed blocks; of sampled groups every EVERY-th run of RUN elements."""
    block = tl.program_id(0).to(tl.int64)
    changed = tl.load(first + block + 1) > tl.load(first + block)
    size, width = tl.where(changed, tl.load(elements + block), 0), tl.load(cols + block)
    old = bits_pointer(tl.load(address + block), WIDTH)
    down, across = tl.load(row_stride + block), tl.load(col_stride + block)
    stride = tl.where(tl.load(sampled + block) != 0, EVERY * RUN, RUN)
    found = tl.zeros([BINS], tl.int32)
    for k in range(tl.program_id(1) * stride, size, stride * tl.num_programs(1)):
        i = k + tl.arange(0, RUN)  # [RUN]
        x = wire_bits(old, tile_offset(i, down, across, width, FLAT), i < size, WIDTH, False, 0)
        context = ((x >> SHIFT) & (CONTEXTS - 1)).to(tl.int32)
        found += tl.histogram(context, BINS, mask=i < size)
    sink = counts + tl.load(groups + block).to(tl.int64) * CONTEXT_ROOM + tl.arange(0, BINS)
    tl.atomic_add(sink, found.to(tl.int64), mask=found > 0, sem="relaxed")


@triton.jit
def count_changes(
    where, value, first, groups, changed, classes, extra_bits,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """One program per block: changed[group, context], classes[context, class], and the block's extra bits."""
    block = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(first + block), tl.load(first + block + 1)
    found = tl.zeros([BINS * COMMON_CLASSES], tl.int32)
    extra = tl.zeros([SIZE], tl.int32)
    for k in range(begin, end, SIZE):
        at = k + tl.arange(0, SIZE)  # [SIZE]
        inside = at < end
        context = tl.load(where + at, mask=inside, other=0).to(tl.uint32, bitcast=True) >> CONTEXT_SHIFT
        magnitude, _ = step_of(unsigned(tl.load(value + at, mask=inside, other=1), WIDTH), WIDTH)
        kind = class_of(magnitude, WIDTH)
        extra += tl.where(inside, tl.maximum(kind - 1, 0), 0)
        slot = context.to(tl.int32) * COMMON_CLASSES + tl.minimum(kind, COMMON_CLASSES - 1)
        found += tl.histogram(slot, BINS * COMMON_CLASSES, mask=inside)
        rare = classes + context.to(tl.int32) * CLASS_ROOM + kind
        tl.atomic_add(rare, tl.full([SIZE], 1, tl.int64), mask=inside & (kind >= COMMON_CLASSES - 1), sem="relaxed")
    bin_of = tl.arange(0, BINS * COMMON_CLASSES)
    context = bin_of // COMMON_CLASSES
    kind = bin_of % COMMON_CLASSES
    counted = found.to(tl.int64)
    common = (found > 0) & (kind < COMMON_CLASSES - 1)
    tl.atomic_add(classes + context * CLASS_ROOM + kind, counted, mask=common, sem="relaxed")
    row = changed + tl.load(groups + block).to(tl.int64) * CONTEXT_ROOM
    tl.atomic_add(row + context, counted, mask=found > 0, sem="relaxed")
    tl.store(extra_bits + block, tl.sum(extra, 0))


@triton.jit
def encode_classes(
    lane_block, lane_first, log2_lanes, first, where, value, table, scratch, scratch_first, capacity, states, counts,
    num_lanes, WIDTH: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Value lanes, last element first. table[context, class] = f << 16 | start. STEPS: loads that are in flight."""
    q, live, block, lane = lane_of(lane_block, lane_first, log2_lanes, num_lanes, LANES)
    stride = 1 << tl.load(log2_lanes + block)
    begin = tl.load(first + block)
    size = (tl.load(first + block + 1) - begin).to(tl.int32)
    steps = (size - lane + stride - 1) // stride
    room = tl.load(capacity + block)
    words = scratch + tl.load(scratch_first + block) + lane.to(tl.int64) * room
    words = words.to(tl.pointer_type(tl.uint16))
    x = tl.full([LANES], STATE_LOW, tl.uint32)
    at = room
    for k in range(0, tl.max(steps, 0), STEPS):
        group = ()
        for u in tl.static_range(STEPS):
            t = steps - 1 - k - u
            on = (t >= 0) & live
            place = begin + t * stride + lane
            context = tl.load(where + place, mask=on, other=0).to(tl.uint32, bitcast=True) >> CONTEXT_SHIFT
            magnitude, _ = step_of(unsigned(tl.load(value + place, mask=on, other=1), WIDTH), WIDTH)
            slot = context.to(tl.int32) * CLASS_ROOM + class_of(magnitude, WIDTH)
            group = group + (tl.load(table + slot, mask=on, other=0),)  # noqa: RUF005 -- Triton knows no unpacking
        tl.debug_barrier()
        for u in tl.static_range(STEPS):
            on = (steps - 1 - k - u >= 0) & live
            entry = group[u].to(tl.uint32, bitcast=True)
            f, start = entry >> 16, entry & 0xFFFF
            spill = ((x >> 17) >= f) & on
            at -= spill.to(tl.int32)
            tl.store(words + at, x.to(tl.uint16), mask=spill & (at >= 0))
            x = tl.where(spill, x >> 16, x)
            quotient = x // tl.maximum(f, 1)
            x = tl.where(on, (quotient << 15) + (x - quotient * f) + start, x)
    tl.store(states + q, x.to(tl.int32, bitcast=True), mask=live)
    tl.store(counts + q, room - at, mask=live)


@triton.jit
def decode_classes(
    stream, lane_block, lane_first, lane_start, log2_places, log2_lanes, first, where, table, body, value_words, fits,
    status, num_lanes, WIDTH: tl.constexpr, LANES: tl.constexpr, ROUNDS: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """Value lanes; the class takes the context's place in `where`. table[context, class] = where it starts, then 2^15.

    ROUNDS: steps of the search among 2^ROUNDS classes. A context without a table has starts of 2^15 alone. STEPS:
    loads of entries that are in flight together; they would wait for the stores of the step before.
    """
    q, live, block, lane = lane_of(lane_block, lane_first, log2_lanes, num_lanes, LANES)
    stride = 1 << tl.load(log2_lanes + block)
    places = 1 << tl.load(log2_places + block)
    begin = tl.load(first + block)
    size = (tl.load(first + block + 1) - begin).to(tl.int32)
    steps = (size - lane + stride - 1) // stride
    head = stream + tl.load(body + block) + places + (places + 1) // 2
    x = tl.load(head + lane).to(tl.uint32, bitcast=True)
    left = tl.load(head.to(tl.pointer_type(tl.uint16)) + 2 * stride + lane).to(tl.int32) * tl.load(fits + block)
    bad = x < STATE_LOW
    unknown = bad & False
    words = stream.to(tl.pointer_type(tl.uint16)) + tl.load(value_words + block) + tl.load(lane_start + q)
    for k in range(0, tl.max(steps, 0), STEPS):
        group = ()
        for u in tl.static_range(STEPS):
            on = (k + u < steps) & live
            entry = tl.load(where + begin + (k + u) * stride + lane, mask=on, other=0)
            group = group + (entry,)  # noqa: RUF005 -- Triton's tuples know no unpacking
        tl.debug_barrier()
        for u in tl.static_range(STEPS):
            on = (k + u < steps) & live
            entry = group[u].to(tl.uint32, bitcast=True)
            row = table + (entry >> CONTEXT_SHIFT).to(tl.int32) * (CLASS_ROOM + 1)
            slot = (x & (ONE - 1)).to(tl.int32)
            kind = tl.zeros([LANES], tl.int32)
            for r in tl.static_range(ROUNDS):
                step = 1 << (ROUNDS - 1 - r)
                kind = tl.where(tl.load(row + kind + step) <= slot, kind + step, kind)
            start = tl.load(row + kind)
            f = tl.load(row + kind + 1) - start
            unknown = unknown | (on & ((f <= 0) | (start > slot)))
            y = (f.to(tl.uint32) * (x >> 15)) + (slot - start).to(tl.uint32)
            short = (y < STATE_LOW) & on
            word = tl.load(words, mask=short & (left > 0), other=0).to(tl.uint32)
            x = tl.where(on, tl.where(short, (y << 16) | word, y), x)
            words += short.to(tl.int32)
            left -= short.to(tl.int32)
            coded = (entry & POSITION_MASK) | (kind.to(tl.uint32) << CONTEXT_SHIFT)
            tl.store(where + begin + (k + u) * stride + lane, coded.to(tl.int32, bitcast=True), mask=on)
    bad = bad | (x != STATE_LOW) | (left != 0)
    tl.atomic_or(status + block, tl.full([LANES], FAULT_LANE, tl.int32), mask=live & bad)
    tl.atomic_or(status + block, tl.full([LANES], FAULT_CLASS, tl.int32), mask=live & unknown)


@triton.jit
def write_planes(where, value, first, mode, planes, out, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """One program per tight block: signs and extra bits into zeroed words; planes[block] is where the signs begin."""
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 2:
        begin, end = tl.load(first + block), tl.load(first + block + 1)
        signs = out + tl.load(planes + block)
        extras = signs + (end - begin + 31) // 32
        bit = 0
        for k in range(begin, end, SIZE):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            inside = at < end
            magnitude, negative = step_of(unsigned(tl.load(value + at, mask=inside, other=1), WIDTH), WIDTH)
            flags = tl.reshape(tl.where(inside, negative, 0), (SIZE // 32, 32)) << tl.arange(0, 32)[None, :]
            word = (k - begin) // 32 + tl.arange(0, SIZE // 32)
            tl.store(signs + word, tl.sum(flags, 1).to(tl.int32, bitcast=True), mask=word < (end - begin + 31) // 32)
            size = tl.where(inside, tl.maximum(class_of(magnitude, WIDTH) - 1, 0), 0)
            before = bit + tl.cumsum(size, 0) - size
            field = (magnitude - 1) & ((1 << size.to(tl.uint32)) - 1)
            put_bits(extras, before, field, size, size > 0)
            bit += tl.sum(size, 0)


@triton.jit
def _take_bits(words, bit, size, mask):
    """`size` bits (at most 30) from bit `bit` on, of int32 words."""
    shift = (bit & 31).to(tl.uint32)
    low = tl.load(words + (bit >> 5), mask=mask, other=0).to(tl.uint32, bitcast=True)
    high = tl.load(words + (bit >> 5) + 1, mask=mask & (shift + size > 32), other=0).to(tl.uint32, bitcast=True)
    joined = (low >> shift) | (high << ((32 - shift) & 31))
    return joined & ((1 << size.to(tl.uint32)) - 1)


@triton.jit
def finish_values(
    stream, where, value, first, mode, body, body_words, planes, fits, status, WIDTH: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """One program per tight block: class, sign and extra bits become the step; value turns from old to new bits."""
    block = tl.program_id(0).to(tl.int64)
    if (tl.load(mode + block) == 2) & (tl.load(fits + block) == 1):
        begin, end = tl.load(first + block), tl.load(first + block + 1)
        changed = (end - begin).to(tl.int32)
        at_signs = tl.load(planes + block)
        signs = stream + at_signs
        sign_words = (changed + 31) // 32
        extras = signs + sign_words
        room = (tl.load(body + block) + tl.load(body_words + block) - at_signs).to(tl.int32) - sign_words
        bit, impossible = 0, 0
        for k in range(begin, end, SIZE):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            inside = at < end
            rank = (at - begin).to(tl.int32)
            entry = tl.load(where + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
            kind = (entry >> CONTEXT_SHIFT).to(tl.int32)
            sign = (tl.load(signs + (rank >> 5), mask=inside, other=0) >> (rank & 31)) & 1
            size = tl.where(inside, tl.maximum(kind - 1, 0), 0)
            before = bit + tl.cumsum(size, 0) - size
            known = (size > 0) & (before + size <= 32 * room)
            extra = _take_bits(extras, before, size, known)
            lead = tl.where(kind > 0, 1 << tl.maximum(kind - 1, 0).to(tl.uint32), 0).to(tl.uint32)
            magnitude = lead + extra + 1
            impossible |= tl.max((inside & (magnitude == (1 << (WIDTH - 1))) & (sign == 0)).to(tl.int32), 0)
            step = tl.where(sign == 1, 0 - magnitude, magnitude)
            x = unsigned(tl.load(value + at, mask=inside, other=0), WIDTH)
            tl.store(value + at, (x + step).to(value.dtype.element_ty), mask=inside)
            tl.store(where + at, (entry & POSITION_MASK).to(tl.int32, bitcast=True), mask=inside)
            bit += tl.sum(size, 0)
        wrong = room != (bit + 31) // 32
        tail, sign_tail = bit % 32, changed % 32
        last = tl.load(extras + bit // 32, mask=(tail > 0) & (wrong == 0), other=0).to(tl.uint32, bitcast=True)
        last_sign = tl.load(signs + changed // 32, mask=sign_tail > 0, other=0).to(tl.uint32, bitcast=True)
        wrong = wrong | ((last >> tail.to(tl.uint32)) != 0) & (tail > 0)
        wrong = wrong | ((last_sign >> sign_tail.to(tl.uint32)) != 0) & (sign_tail > 0)
        tl.atomic_or(status + block, wrong.to(tl.int32) * FAULT_PLANES + impossible * FAULT_STEP)
