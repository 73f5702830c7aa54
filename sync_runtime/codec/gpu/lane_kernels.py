"""Sizes of `tight` bodies, and coded lanes into their places, as Triton kernels (FORMAT.md, section 6.3)."""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tight_measure(
    first, log2_places, log2_values, lane_first, value_first, lane_counts, value_counts, extra_bits, sums, sizes,
    MOST_WORDS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One program per block: words of its lanes and the size of its tight body; 2^62 where there can be none."""
    block = tl.program_id(0).to(tl.int64)
    changed = tl.load(first + block + 1) - tl.load(first + block)
    if changed > 0:
        lane = tl.arange(0, LANES)  # [LANES]: the most lanes there can be
        places, values = 1 << tl.load(log2_places + block), 1 << tl.load(log2_values + block)
        counts = tl.load(lane_counts + tl.load(lane_first + block) + lane, mask=lane < places, other=0)
        place_total, most = tl.sum(counts, 0), tl.max(counts, 0)
        counts = tl.load(value_counts + tl.load(value_first + block) + lane, mask=lane < values, other=0)
        value_total = tl.sum(counts, 0)
        words = places + (places + 1) // 2 + values + (values + 1) // 2 + (place_total + value_total + 1) // 2
        words += (changed + 31) // 32 + (tl.load(extra_bits + block) + 31) // 32
        tl.store(sums + 2 * block, place_total)
        tl.store(sums + 2 * block + 1, value_total)
        tl.store(sizes + block, tl.where(most > MOST_WORDS, 1 << 62, words.to(tl.int64) * 4))
    else:
        tl.store(sizes + block, 1 << 62)


@triton.jit
def write_lanes(
    out, body, mode, log2_lanes, log2_before, lane_first, states, counts, scratch, scratch_first, capacity, sums,
    planes,
    VALUES: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One program per tight block: states, counts and words of its position lanes, or with VALUES of its value lanes.

    The heads stand one after the other, then the words: positions first. Value lanes also note where the signs begin.
    """
    block = tl.program_id(0).to(tl.int64)
    if tl.load(mode + block) == 2:
        lanes, others = 1 << tl.load(log2_lanes + block), 1 << tl.load(log2_before + block)
        begin = tl.load(body + block)
        heads = lanes + (lanes + 1) // 2 + others + (others + 1) // 2
        head = begin
        done = 0
        if VALUES:
            head = begin + others + (others + 1) // 2
            done = tl.load(sums + 2 * block)
            total = done + tl.load(sums + 2 * block + 1)
            tl.store(planes + block, begin + heads + (total + 1) // 2)
        sink = (out + begin + heads).to(tl.pointer_type(tl.uint16))
        room = tl.load(capacity + block)
        source = (scratch + tl.load(scratch_first + block)).to(tl.pointer_type(tl.uint16))
        lane_at = tl.load(lane_first + block)
        count_place = (out + head + lanes).to(tl.pointer_type(tl.uint16))
        for k in range(0, lanes, LANES):
            lane = k + tl.arange(0, LANES)  # [LANES]
            inside = lane < lanes
            size = tl.load(counts + lane_at + lane, mask=inside, other=0)
            tl.store(out + head + lane, tl.load(states + lane_at + lane, mask=inside, other=0), mask=inside)
            tl.store(count_place + lane, size.to(tl.uint16), mask=inside)
            start = done + tl.cumsum(size, 0) - size
            done += tl.sum(size, 0)
            for w in range(0, tl.max(size, 0), WORDS):
                word = w + tl.arange(0, WORDS)  # [WORDS]
                used = word[None, :] < size[:, None]  # [LANES, WORDS]
                from_place = (lane.to(tl.int64) * room + room - size)[:, None] + word[None, :]
                tl.store(
                    sink + start[:, None] + word[None, :], tl.load(source + from_place, mask=used, other=0), mask=used
                )
