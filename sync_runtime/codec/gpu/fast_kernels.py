"""`fast` bodies as Triton kernels (FORMAT.md, section 6.2). One program per block.

Every program walks its block's list or symbols in chunks and carries the running sums: no scan over blocks is needed,
and a reader checks each frame's head against what it counted itself. Reads are bounded by sizes that the host has
checked against the body; writes by the block's part of the list. Faults are bits in a status word per block.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0915, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

from sync_runtime.tensors.device.bitops import POSITION_MASK, bits_pointer, tile_offset, wire_bits

FRAME = tl.constexpr(1024)
MAX_STEP = tl.constexpr(128)
FAULT_FRAME = tl.constexpr(1)
FAULT_RANGE = tl.constexpr(2)
FAULT_SKIPS = tl.constexpr(4)
FAULT_COUNT = tl.constexpr(8)
FAULT_ESCAPE = tl.constexpr(16)
FAULT_PADDING = tl.constexpr(32)


@triton.jit
def unsigned(x, WIDTH: tl.constexpr):
    """Raw bits held in a signed torch dtype, as uint32."""
    if WIDTH == 32:
        return x.to(tl.uint32, bitcast=True)
    else:
        return x.to(tl.uint32) & ((1 << WIDTH) - 1)


@triton.jit
def step_of(difference, WIDTH: tl.constexpr):
    """(|s|, s < 0) of a difference in uint32."""
    negative = (difference >> (WIDTH - 1)) & 1
    flipped = 0 - difference
    if WIDTH < 32:
        flipped = flipped & ((1 << WIDTH) - 1)
    return tl.where(negative == 1, flipped, difference), negative


@triton.jit
def entries(where, value, at, begin, end, WIDTH: tl.constexpr):
    """List entries [SIZE]: inside, position, position of the one before (-1 for the first), |s|, sign, difference."""
    inside = at < end
    position = tl.load(where + at, mask=inside, other=0) & POSITION_MASK
    before = tl.load(where + at - 1, mask=inside & (at > begin), other=0) & POSITION_MASK
    before = tl.where(at > begin, before, -1)
    difference = unsigned(tl.load(value + at, mask=inside, other=1), WIDTH)
    magnitude, negative = step_of(difference, WIDTH)
    return inside, position, before, magnitude, negative, difference


@triton.jit
def fast_measure(
    where, value, first, elements, widths, thresholds, gap_bits, totals,
    RULES: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """gap_bits[block] by the RULES thresholds, and totals[block] = symbols, escapes, raw entries."""
    block = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(first + block), tl.load(first + block + 1)
    size = tl.load(elements + block).to(tl.int64)
    bits = tl.load(widths)
    for rule in range(1, RULES):  # ascending: the last that holds stays
        bits = tl.where(16 * size >= tl.load(thresholds + rule) * (end - begin), tl.load(widths + rule), bits)
    tl.store(gap_bits + block, bits)
    symbols = tl.zeros([SIZE], tl.int32)
    escapes = tl.zeros([SIZE], tl.int32)
    raws = tl.zeros([SIZE], tl.int32)
    for k in range(begin, end, SIZE):
        at = k + tl.arange(0, SIZE)  # [SIZE]
        inside, position, before, magnitude, _, _ = entries(where, value, at, begin, end, WIDTH)
        high = (position - before - 1) >> bits
        symbols += tl.where(inside, 1 + ((high + (1 << bits) - 1) >> bits), 0)
        escapes += (inside & (magnitude > 1)).to(tl.int32)
        raws += (inside & (magnitude > MAX_STEP)).to(tl.int32)
    tl.store(totals + 3 * block, tl.sum(symbols, 0))
    tl.store(totals + 3 * block + 1, tl.sum(escapes, 0))
    tl.store(totals + 3 * block + 2, tl.sum(raws, 0))


@triton.jit
def put_bits(words, bit, field, size, mask):
    """ORs `size` bits (uint32, at most 32) into zeroed int32 words from bit `bit` on."""
    word = bit >> 5
    shift = (bit & 31).to(tl.uint32)
    tl.atomic_or(words + word, (field << shift).to(tl.int32, bitcast=True), mask=mask, sem="relaxed")
    rest = field >> ((32 - shift) & 31)
    spills = mask & (shift + size > 32)
    tl.atomic_or(words + word + 1, rest.to(tl.int32, bitcast=True), mask=spills, sem="relaxed")


@triton.jit
def _frame_head(heads, symbol, start, escapes, raws, mask):
    """The head of the frame that begins with this symbol."""
    place = heads + (symbol // FRAME) * 3
    begins = mask & (symbol % FRAME == 0)
    tl.store(place, start, mask=begins)
    tl.store(place + 1, escapes, mask=begins)
    tl.store(place + 2, raws, mask=begins)


@triton.jit
def fast_write(
    where, value, first, gap_bits, totals, mode, body, out, WIDTH: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The body of a fast block into zeroed words; body[block] is where it begins, in words."""
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 1:
        begin, end = tl.load(first + block), tl.load(first + block + 1)
        bits = tl.load(gap_bits + block)
        low = (1 << bits) - 1
        num_symbols, num_escapes = tl.load(totals + 3 * block), tl.load(totals + 3 * block + 1)
        head = out + tl.load(body + block)
        for k in tl.static_range(3):
            tl.store(head + k, tl.load(totals + 3 * block + k))
        heads = head + 3
        words = heads + 3 * ((num_symbols + FRAME - 1) // FRAME)
        escape_words = words + (num_symbols * (bits + 2) + 31) // 32
        escape_bytes = escape_words.to(tl.pointer_type(tl.uint8))
        raw_list = bits_pointer((escape_words + (num_escapes + 3) // 4).to(tl.int64), WIDTH)
        symbol, escape, raw = 0, 0, 0
        for k in range(begin, end, SIZE):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            inside, position, before, magnitude, negative, difference = entries(where, value, at, begin, end, WIDTH)
            gap = position - before - 1
            high = gap >> bits
            skips = tl.where(inside, (high + low) >> bits, 0)
            symbols = tl.where(inside, skips + 1, 0)
            escaped, in_raw = inside & (magnitude > 1), inside & (magnitude > MAX_STEP)
            flags = escaped.to(tl.int32) + (in_raw.to(tl.int32) << 16)  # both ranks in one scan
            ranks = tl.cumsum(flags, 0) - flags
            escape_at, raw_at = escape + (ranks & 0xFFFF), raw + (ranks >> 16)
            symbol_at = symbol + tl.cumsum(symbols, 0) - symbols
            for t in range(tl.max(skips, 0)):
                field = tl.where(t + 1 < skips, low, (high - 1) & low).to(tl.uint32)
                put_bits(words, (symbol_at + t) * (bits + 2), field, bits + 2, t < skips)
                _frame_head(heads, symbol_at + t, before + 1 + (t << (2 * bits)), escape_at, raw_at, t < skips)
            code = tl.where(escaped, 3, 1 + negative.to(tl.int32))
            own = symbol_at + skips
            put_bits(words, own * (bits + 2), ((gap & low) | (code << bits)).to(tl.uint32), bits + 2, inside)
            _frame_head(heads, own, before + 1 + (high << bits), escape_at, raw_at, inside)
            byte = tl.where(in_raw, 255, (magnitude - 2) * 2 + negative)
            tl.store(escape_bytes + escape_at, byte.to(tl.uint8), mask=escaped)
            tl.store(raw_list + raw_at, difference.to(raw_list.dtype.element_ty), mask=in_raw)
            total = tl.sum(flags, 0)
            symbol += tl.sum(symbols, 0)
            escape += total & 0xFFFF
            raw += total >> 16


@triton.jit
def _symbol(words, k, bits, inside):
    """Symbol k (int32 tensor) of b + 2 bits from int32 words."""
    bit = k * (bits + 2)
    shift = (bit & 31).to(tl.uint32)
    low = tl.load(words + (bit >> 5), mask=inside, other=0).to(tl.uint32, bitcast=True)
    spills = inside & (shift + bits + 2 > 32)
    high = tl.load(words + (bit >> 5) + 1, mask=spills, other=0).to(tl.uint32, bitcast=True)
    joined = (low >> shift) | (high << ((32 - shift) & 31))
    return (joined & ((4 << bits) - 1)).to(tl.int32)


@triton.jit
def _faults(bad, FAULT: tl.constexpr):
    return tl.max(bad.to(tl.int32), 0) * FAULT


@triton.jit
def padding_fault(pointer, used_bytes):
    """Whether bytes after `used_bytes` up to the next multiple of four are set. `pointer` is int32, word-aligned."""
    rest = used_bytes % 4
    last = tl.load(pointer + used_bytes // 4, mask=rest > 0, other=0).to(tl.uint32, bitcast=True)
    return (rest > 0) & ((last >> (rest * 8).to(tl.uint32)) != 0)


@triton.jit
def fast_decode(
    stream, body, mode, gap_bits, elements, first, where, value, status, address, row_stride, col_stride, cols,
    WIDTH: tl.constexpr, FLAT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A fast body to list entries with the new bits (old + difference). SIZE is a frame. Sizes are checked already."""
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 1:
        begin = tl.load(first + block)
        wanted = (tl.load(first + block + 1) - begin).to(tl.int32)
        bits = tl.load(gap_bits + block)
        low = (1 << bits) - 1
        size = tl.load(elements + block)
        head = stream + tl.load(body + block)
        num_symbols, num_escapes, num_raws = tl.load(head), tl.load(head + 1), tl.load(head + 2)
        heads = head + 3
        words = heads + 3 * ((num_symbols + FRAME - 1) // FRAME)
        escape_words = words + (num_symbols * (bits + 2) + 31) // 32
        escape_bytes = escape_words.to(tl.pointer_type(tl.uint8))
        raw_words = escape_words + (num_escapes + 3) // 4
        raw_list = bits_pointer(raw_words.to(tl.int64), WIDTH)
        old = bits_pointer(tl.load(address + block), WIDTH)
        down, across, width = tl.load(row_stride + block), tl.load(col_stride + block), tl.load(cols + block)
        covered, found, escape, raw, fault = 0, 0, 0, 0, 0
        for frame in range((num_symbols + SIZE - 1) // SIZE):
            place = heads + 3 * frame
            differs = (tl.load(place) != covered) | (tl.load(place + 1) != escape) | (tl.load(place + 2) != raw)
            fault |= differs.to(tl.int32) * FAULT_FRAME
            k = frame * SIZE + tl.arange(0, SIZE)  # [SIZE]
            inside = k < num_symbols
            symbol = _symbol(words, k, bits, inside)
            following = _symbol(words, k + 1, bits, k + 1 < num_symbols)
            gap, code = symbol & low, symbol >> bits
            skip = inside & (code == 0)
            bad_run = skip & ((k + 1 == num_symbols) | ((gap != low) & ((following >> bits) == 0)))
            fault |= _faults(bad_run, FAULT_SKIPS)
            advance = tl.where(inside, (gap + 1) << tl.where(skip, bits, 0), 0)
            too_far = tl.sum(advance >> 10, 0) > size  # before 32 bits could overflow
            advance = tl.where(too_far, 0, advance)
            end = covered + tl.cumsum(advance, 0)
            outside = inside & tl.where(skip, end >= size, end > size)
            fault |= _faults(outside, FAULT_RANGE) | (too_far.to(tl.int32) * FAULT_RANGE)
            element = inside & (code != 0) & (end <= size) & (end > 0)
            escaped = element & (code == 3)
            flags = element.to(tl.int32) + (escaped.to(tl.int32) << 16)
            ranks = tl.cumsum(flags, 0) - flags
            escape_at = escape + (ranks >> 16)
            byte = tl.load(escape_bytes + escape_at, mask=escaped & (escape_at < num_escapes), other=254).to(tl.uint32)
            in_raw = escaped & (byte == 255)
            raw_rank = tl.cumsum(in_raw.to(tl.int32), 0)
            raw_at = raw + raw_rank - 1
            raw_bits = tl.load(raw_list + raw_at, mask=in_raw & (raw_at < num_raws), other=0).to(tl.uint32)
            bad_byte = escaped & (byte == 254)
            if WIDTH == 8:
                bad_byte = bad_byte | (escaped & ((byte == 252) | (byte == 255)))
            magnitude, _ = step_of(raw_bits, WIDTH)
            bad_byte = bad_byte | (in_raw & (magnitude <= MAX_STEP))
            fault |= _faults(bad_byte, FAULT_ESCAPE)
            step = 2 + (byte >> 1)
            coded = tl.where((byte & 1) == 1, 0 - step, step)
            plain = tl.where(code == 1, 1, 0xFFFFFFFF).to(tl.uint32)
            difference = tl.where(in_raw, raw_bits, tl.where(escaped, coded, plain))
            rank = found + (ranks & 0xFFFF)
            listed = element & (rank < wanted)
            position = end - 1
            x = wire_bits(old, tile_offset(position, down, across, width, FLAT), listed, WIDTH, False, 0)
            tl.store(where + begin + rank, position, mask=listed)
            tl.store(value + begin + rank, (x + difference).to(value.dtype.element_ty), mask=listed)
            total = tl.sum(flags, 0)
            found += total & 0xFFFF
            escape += total >> 16
            raw += tl.sum(in_raw.to(tl.int32), 0)
            covered = tl.minimum(covered + tl.sum(advance, 0), size)
        counted = (found != wanted) | (escape != num_escapes) | (raw != num_raws)
        fault |= counted.to(tl.int32) * FAULT_COUNT
        tail = (num_symbols * (bits + 2)) % 32
        last = tl.load(words + (num_symbols * (bits + 2)) // 32, mask=tail > 0, other=0).to(tl.uint32, bitcast=True)
        padded = (tail > 0) & ((last >> tail.to(tl.uint32)) != 0)
        padded = padded | padding_fault(escape_words, num_escapes) | padding_fault(raw_words, num_raws * (WIDTH // 8))
        fault |= padded.to(tl.int32) * FAULT_PADDING
        tl.store(status + block, fault)
