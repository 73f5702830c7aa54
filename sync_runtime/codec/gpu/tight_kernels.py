"""Position lanes of `tight` bodies as Triton kernels (FORMAT.md, section 6.3).

All lanes of all blocks stand in one row: lane q belongs to block lane_block[q], so a warp is full whatever the number
of lanes per block, and its lanes have the same number of steps (`plans.make_lanes`). Loads of a group of steps are
issued before the serial part that uses them, which hides their latency. A lane decodes 32 steps into one word of its
own; `untranspose` turns these words into the block's mask.
"""

# mypy: disable-error-code="assignment, import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0915, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.tensors.device.bitops import bits_pointer, tile_offset, wire_bits

ONE = tl.constexpr(1 << 15)
STATE_LOW = tl.constexpr(1 << 16)
CONTEXT_ROOM = tl.constexpr(256)
"""Entries per table row, whatever the dtype."""
SIGNED_ROOM = tl.constexpr(512)
"""Entries per row of a decoder's position table: once for each sign."""
WORDS_AHEAD = tl.constexpr(3)
"""Words that a decoder has in registers for a group of steps, at least; a group that needs more is decoded again."""
FAULT_LANE = tl.constexpr(64)
FAULT_SIZE = tl.constexpr(128)
FAULT_CLASS = tl.constexpr(256)
FAULT_STEP = tl.constexpr(512)
FAULT_PLANES = tl.constexpr(1024)


@triton.jit
def lane_of(lane_block, lane_first, log2_lanes, end, LANES: tl.constexpr):
    """(lane, is it one, its block, its number in the block); idle ones repeat their block's last, without stores."""
    q = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)  # [LANES]
    live = q < end
    q = tl.minimum(q, end - 1)
    block = tl.load(lane_block + q).to(tl.int64)
    first = tl.load(lane_first + block)
    lane = (q - first).to(tl.int32)
    last = (1 << tl.load(log2_lanes + block)) - 1
    live = live & (lane <= last)
    lane = tl.minimum(lane, last)
    return first + lane, live, block, lane


@triton.jit
def _table_row(x, y, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr):
    """Where the coding entry of old bits x and new bits y stands."""
    return tl.where(x != y, CONTEXT_ROOM, 0) + ((x >> SHIFT) & (CONTEXTS - 1)).to(tl.int32)


@triton.jit
def _push(x, at, entry, words, on):
    """One rANS symbol: entry = unchanged << 48 | f << 32 | floor(2^32 / f). Words go downwards from the lane's end."""
    f = (entry >> 32).to(tl.uint32) & 0xFFFF
    spill = ((x >> 17) >= f) & on
    at -= spill.to(tl.int32)
    tl.store(words + at, x.to(tl.uint16), mask=spill & (at >= 0))
    x = tl.where(spill, x >> 16, x)
    quotient = tl.umulhi(x, entry.to(tl.uint32))  # exact or one too small
    low = (x - quotient * f >= f).to(tl.uint32)
    pushed = x + (quotient + low + (entry >> 48).to(tl.uint32)) * (ONE - f)
    return tl.where(on, pushed, x), at


@triton.jit
def encode_positions(
    lane_block, lane_first, log2_lanes, elements, groups, table, scratch, scratch_first, capacity, states, counts,
    num_lanes, old_address, old_down, old_across, new_address, new_down, new_across, cols,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, OLD_FLAT: tl.constexpr, NEW_FLAT: tl.constexpr,
    CAST: tl.constexpr, NAN: tl.constexpr, LANES: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """LANES lanes per program, last element first. Too little room loses words but not their count: run again."""
    q, live, block, lane = lane_of(lane_block, lane_first, log2_lanes, num_lanes, LANES)
    stride = 1 << tl.load(log2_lanes + block)
    size = tl.load(elements + block)
    steps = (size - lane + stride - 1) // stride
    rows = table + tl.load(groups + block).to(tl.int64) * (2 * CONTEXT_ROOM)
    old = bits_pointer(tl.load(old_address + block), WIDTH)
    new = bits_pointer(tl.load(new_address + block), 32 if CAST else WIDTH)
    d0, a0 = tl.load(old_down + block), tl.load(old_across + block)
    d1, a1, width = tl.load(new_down + block), tl.load(new_across + block), tl.load(cols + block)
    room = tl.load(capacity + block)
    words = scratch + tl.load(scratch_first + block) + lane.to(tl.int64) * room
    words = words.to(tl.pointer_type(tl.uint16))
    x = tl.full([LANES], STATE_LOW, tl.uint32)
    at = room
    shared = (tl.min(steps, 0) // UNROLL) * UNROLL
    longest = tl.max(steps, 0)
    for k in range(longest - shared):
        t = longest - 1 - k
        on = (t < steps) & live
        i = t * stride + lane
        x0 = wire_bits(old, tile_offset(i, d0, a0, width, OLD_FLAT), t < steps, WIDTH, False, NAN)
        y0 = wire_bits(new, tile_offset(i, d1, a1, width, NEW_FLAT), t < steps, WIDTH, CAST, NAN)
        x, at = _push(x, at, tl.load(rows + _table_row(x0, y0, SHIFT, CONTEXTS)), words, on)
    for k in range(0, shared, UNROLL):
        top = (shared - 1 - k) * stride + lane
        befores = ()
        afters = ()
        for u in tl.static_range(UNROLL):
            i = top - u * stride
            x0 = wire_bits(old, tile_offset(i, d0, a0, width, OLD_FLAT), None, WIDTH, False, NAN)
            befores = befores + (x0,)  # noqa: RUF005 -- Triton's tuples know no unpacking
            y0 = wire_bits(new, tile_offset(i, d1, a1, width, NEW_FLAT), None, WIDTH, CAST, NAN)
            afters = afters + (y0,)  # noqa: RUF005
        group = ()
        for u in tl.static_range(UNROLL):
            group = group + (tl.load(rows + _table_row(befores[u], afters[u], SHIFT, CONTEXTS)),)  # noqa: RUF005
        for u in tl.static_range(UNROLL):
            x, at = _push(x, at, group[u], words, live)
    tl.store(states + q, x.to(tl.int32, bitcast=True), mask=live)
    tl.store(counts + q, room - at, mask=live)


@triton.jit
def _signed_context(bits, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr):
    """The context with the bits above it, for a table that repeats itself: saves cutting them off."""
    if CONTEXTS == 1:
        return tl.zeros(bits.shape, tl.int32)
    else:
        return (bits >> SHIFT).to(tl.int32)


@triton.jit
def _pull(x, p):
    """One rANS symbol out of a state, before it takes a word: (state, whether it says changed)."""
    slot = x & (ONE - 1)
    hit = slot < p
    high = x >> 15
    return tl.where(hit, p * high + slot, x - p * (high + 1)), hit  # unchanged: (2^15 - p) * high + slot - p


@triton.jit
def decode_positions(
    stream, lane_block, lane_first, lane_start, lane_state, lane_left, log2_lanes, elements, groups, table, place_words,
    mask, word_base, part_units, part, num_lanes, limit, address, row_stride, col_stride, cols,
    WIDTH: tl.constexpr, SHIFT: tl.constexpr, CONTEXTS: tl.constexpr, FLAT: tl.constexpr, UNIT: tl.constexpr,
    LANES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """LANES lanes per program; each fills words of 32 of its own steps, for one part of every block.

    A lane that needs more words than it has reads on in its neighbours', which its end then shows; `limit` (in u16)
    keeps it in the stream, after which there is room for STEPS words more. A part is part_units[block] units, so that
    masks of a part are small while all lanes are at work. State, words left and place of a lane are kept in lane_state,
    lane_left and lane_start between parts.
    """
    q, live, block, lane = lane_of(lane_block, lane_first, log2_lanes, num_lanes, LANES)
    log2 = tl.load(log2_lanes + block)
    stride = 1 << log2
    begin = tl.load(part_units + block) * UNIT * part
    size = tl.minimum(tl.load(elements + block), begin + tl.load(part_units + block) * UNIT)
    rows = tl.maximum((size - begin + stride - 1) >> log2, 0)
    entries = table + tl.load(groups + block).to(tl.int64) * SIGNED_ROOM
    old = bits_pointer(tl.load(address + block), WIDTH)
    down, across, width = tl.load(row_stride + block), tl.load(col_stride + block), tl.load(cols + block)
    x = tl.load(lane_state + q).to(tl.uint32, bitcast=True)
    at = tl.load(lane_start + q)
    stop = at + tl.load(lane_left + q)
    source = stream.to(tl.pointer_type(tl.uint16)) + tl.load(place_words + block)
    pairs = stream + (tl.load(place_words + block) >> 1)  # place_words is even: heads are whole words
    far = tl.minimum(limit - tl.load(place_words + block), 1 << 30).to(tl.int32)
    sink = mask + tl.load(word_base + block) + (begin >> 5) + lane
    shared = (tl.maximum(tl.min((size - begin) >> log2, 0), 0) // 32) * 32
    for k in range(0, shared, 32):
        found = tl.zeros([LANES], tl.uint32)
        for half in range(0, 32, STEPS):
            i = begin + (k + half) * stride + lane
            at = tl.minimum(at, far)
            low = tl.load(pairs + (at >> 1)).to(tl.uint32, bitcast=True)
            high = tl.load(pairs + (at >> 1) + 1).to(tl.uint32, bitcast=True)
            group = ()
            for u in tl.static_range(STEPS):
                bits = wire_bits(old, tile_offset(i + u * stride, down, across, width, FLAT), None, WIDTH, False, 0)
                group = group + (bits,)  # noqa: RUF005 -- Triton's tuples know no unpacking
            tl.debug_barrier()  # keeps the compiler from sinking each load to its use, one memory latency per step
            chances = ()
            for u in tl.static_range(STEPS):
                p = tl.load(entries + _signed_context(group[u], SHIFT, CONTEXTS)).to(tl.uint32, bitcast=True)
                chances = chances + (p,)  # noqa: RUF005
            tl.debug_barrier()
            ahead = ((high.to(tl.uint64) << 32) | low) >> ((at & 1) * 16).to(tl.uint64)
            before = x
            hits = tl.zeros([LANES], tl.uint32)
            used = tl.zeros([LANES], tl.int32)
            for u in tl.static_range(STEPS):
                x, hit = _pull(x, chances[u])
                short = x < STATE_LOW
                x = tl.where(short, (x << 16) | (ahead.to(tl.uint32) & 0xFFFF), x)
                ahead = tl.where(short, ahead >> 16, ahead)
                used += short.to(tl.int32)
                hits |= hit.to(tl.uint32) << u
            if tl.max(used, 0) > WORDS_AHEAD:
                x = before
                hits = tl.zeros([LANES], tl.uint32)
                used = tl.zeros([LANES], tl.int32)
                for u in tl.static_range(STEPS):
                    x, hit = _pull(x, chances[u])
                    short = x < STATE_LOW
                    word = tl.load(source + at + used, mask=short, other=0).to(tl.uint32)
                    x = tl.where(short, (x << 16) | word, x)
                    used += short.to(tl.int32)
                    hits |= hit.to(tl.uint32) << u
            at += used
            found |= hits << half
        tl.store(sink + (k // 32) * stride, found.to(tl.int32, bitcast=True), mask=live)
    word = tl.load(source + at, mask=at < stop, other=0)
    for k in range(shared, tl.max(rows, 0), 32):
        found = tl.zeros([LANES], tl.uint32)
        for u in range(32):
            i = begin + (k + u) * stride + lane
            on = i < size
            bits = wire_bits(old, tile_offset(i, down, across, width, FLAT), on, WIDTH, False, 0)
            p = tl.load(entries + _signed_context(bits, SHIFT, CONTEXTS)).to(tl.uint32, bitcast=True)
            y, hit = _pull(x, p)
            hit = hit & on
            short = (y < STATE_LOW) & on
            x = tl.where(on, tl.where(short, (y << 16) | word, y), x)
            at += short.to(tl.int32)
            word = tl.load(source + at, mask=short & (at < stop), other=word)
            found |= hit.to(tl.uint32) << u
        tl.store(sink + (k // 32) * stride, found.to(tl.int32, bitcast=True), mask=live & (k < rows))
    tl.store(lane_state + q, x.to(tl.int32, bitcast=True), mask=live)
    tl.store(lane_left + q, stop - at, mask=live)
    tl.store(lane_start + q, at, mask=live)


@triton.jit
def close_lanes(lane_block, lane_state, lane_left, status, num_lanes, SIZE: tl.constexpr):
    """Every lane must have come back to the first state with its words used up."""
    q = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)  # [SIZE]
    live = q < num_lanes
    ended = tl.load(lane_state + q, mask=live, other=STATE_LOW) == STATE_LOW
    bad = live & ((ended == 0) | (tl.load(lane_left + q, mask=live, other=0) != 0))
    block = tl.load(lane_block + q, mask=bad, other=0)
    tl.atomic_or(status + block, tl.full([SIZE], FAULT_LANE, tl.int32), mask=bad)


@triton.jit
def untranspose(
    which, elements, mask, word_base, part_units, part, UNIT: tl.constexpr, L: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """Programs (block, share): words of 32 steps per lane become words of 32 neighbours, in place. L lanes per block.

    GROUPS runs of 32 · L elements at a time: in[g, j] bit t is element t · L + j of run g. One part of every block.
    """
    block = tl.load(which + tl.program_id(0).to(tl.int64)).to(tl.int64)
    begin = tl.load(part_units + block) * UNIT * part
    size = tl.minimum(tl.load(elements + block), begin + tl.load(part_units + block) * UNIT)
    runs = (size + 32 * L - 1) // (32 * L)
    place = mask + tl.load(word_base + block)
    for k in range(begin // (32 * L) + tl.program_id(1) * GROUPS, runs, GROUPS * tl.num_programs(1)):
        run = k + tl.arange(0, GROUPS)  # [GROUPS]
        at = run[:, None] * L + tl.arange(0, L)[None, :]  # [GROUPS, L]
        inside = (run < runs)[:, None] & (tl.arange(0, L) >= 0)[None, :]
        words = tl.load(place + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
        bits = (words[:, None, :] >> tl.arange(0, 32)[None, :, None]) & 1  # [GROUPS, 32, L]
        bits = tl.reshape(bits, (GROUPS, L, 32)) << tl.arange(0, 32)[None, None, :]
        tl.store(place + at, tl.sum(bits, 2).to(tl.int32, bitcast=True), mask=inside)


@triton.jit
def _take_lanes(head, lanes, start, LANES: tl.constexpr):
    """Word counts after the states: where each lane's words begin; returns counts, sum, whether padding is set."""
    lane = tl.arange(0, LANES)  # [LANES]: the most lanes there can be
    counts = head.to(tl.pointer_type(tl.uint16)) + 2 * lanes
    sizes = tl.load(counts + lane, mask=lane < lanes, other=0).to(tl.int32)
    tl.store(start + lane, tl.cumsum(sizes, 0) - sizes, mask=lane < lanes)
    return sizes, tl.sum(sizes, 0), tl.load(counts + 1, mask=lanes == 1, other=0).to(tl.int32) != 0


@triton.jit
def open_bodies(
    stream, body, body_words, mode, log2_lanes, log2_values, lane_first, value_first, first,
    lane_start, lane_state, lane_left, value_start, place_words, value_words, planes, fits, status,
    LANES: tl.constexpr,
):  # fmt: skip
    """One program per tight block: where each lane's words begin, and whether the sections fit the body.

    place_words and value_words are in u16, planes (the signs) in words, from the stream's begin. Where the sections do
    not fit, `fits` is 0 and no lane may read a word. That states and counts fit was checked on the host.
    """
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 2:
        places, values = 1 << tl.load(log2_lanes + block), 1 << tl.load(log2_values + block)
        changed = (tl.load(first + block + 1) - tl.load(first + block)).to(tl.int32)
        begin = tl.load(body + block)
        head = stream + begin
        place_counts, place_total, place_pad = _take_lanes(
            head, places, lane_start + tl.load(lane_first + block), LANES
        )
        value_at = places + (places + 1) // 2
        _, value_total, value_pad = _take_lanes(
            head + value_at, values, value_start + tl.load(value_first + block), LANES
        )
        words_at = value_at + values + (values + 1) // 2
        total = place_total + value_total
        signs_at = words_at + (total + 1) // 2
        fit = signs_at + (changed + 31) // 32 <= tl.load(body_words + block)
        odd = fit & (total % 2 == 1)
        word_pad = (
            tl.load((head + words_at).to(tl.pointer_type(tl.uint16)) + total, mask=odd, other=0).to(tl.int32) != 0
        )
        lane = tl.arange(0, LANES)  # [LANES]
        state = tl.load(head + lane, mask=lane < places, other=STATE_LOW)
        sound = tl.min((state.to(tl.uint32, bitcast=True) >= STATE_LOW).to(tl.int32), 0)
        at = tl.load(lane_first + block) + lane
        tl.store(lane_state + at, state, mask=lane < places)
        tl.store(lane_left + at, tl.where(fit, place_counts, 0), mask=lane < places)
        tl.store(place_words + block, (begin + words_at) * 2)
        tl.store(value_words + block, (begin + words_at) * 2 + place_total)
        tl.store(planes + block, begin + signs_at)
        tl.store(fits + block, fit.to(tl.int32))
        padded = (place_pad | value_pad | word_pad).to(tl.int32) * FAULT_PLANES
        tl.store(status + block, tl.where(fit, 0, FAULT_SIZE) | padded | (1 - sound) * FAULT_LANE)
