"""The choices that the format fixes: widths, lanes, sizes as functions of counts (FORMAT.md, section 6). Pure integers.

Shared by the CPU and the GPU coder: both must come to the same bytes.
"""

from __future__ import annotations

from bisect import bisect_right

from sync_runtime.codec.limits import FRAME_SYMBOLS, MAX_LANES

GAP_BITS = (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12)
GAP_THRESHOLDS = (0, 29, 55, 138, 181, 307, 550, 1013, 1900, 3602, 6895, 13278)
"""T of each b: it is used from 16·n >= T·z on. The expected size of Bernoulli gaps is least there."""

PROBABILITY_BITS = 15
PROBABILITY_ONE = 1 << PROBABILITY_BITS
ANCHOR_BITS = 12
ANCHOR_ONE = 1 << ANCHOR_BITS
STATE_LOW = 1 << 16

POSITION_LANE_CHANGES = 256
POSITION_LANE_ELEMENTS = 4096
VALUE_LANE_CHANGES = 2048
ANCHOR_LANE_ELEMENTS = 8192

SAMPLED_GROUP_ELEMENTS = 1 << 24
"""From here on a group's elements are counted in samples."""
SAMPLE_RUN_BITS = 10
SAMPLE_EVERY = 16


def gap_bits(num_elements: int, num_changed: int) -> int:
    """b of a fast block."""
    return GAP_BITS[bisect_right(GAP_THRESHOLDS, 16 * num_elements // num_changed) - 1]


def position_lanes_log2(num_elements: int, num_changed: int) -> int:
    """Position lanes of a tight block: enough for a GPU, few enough that their headers cost little."""
    log2 = 0
    while (
        2 << log2 <= MAX_LANES
        and num_changed >= POSITION_LANE_CHANGES * (2 << log2)
        and num_elements >= POSITION_LANE_ELEMENTS * (2 << log2)
    ):
        log2 += 1
    return log2


def value_lanes(num_changed: int) -> int:
    """Value lanes of a tight block."""
    lanes = 1
    while 2 * lanes <= MAX_LANES and num_changed >= VALUE_LANE_CHANGES * 2 * lanes:
        lanes *= 2
    return lanes


def anchor_lanes_log2(num_elements: int) -> int:
    """Lanes of a packed anchor block."""
    log2 = 0
    while 2 << log2 <= MAX_LANES and num_elements >= ANCHOR_LANE_ELEMENTS * (2 << log2):
        log2 += 1
    return log2


def pad4(size_bytes: int) -> int:
    """The next multiple of four."""
    return (size_bytes + 3) & ~3


def words32(size_bits: int) -> int:
    """32-bit words that hold so many bits."""
    return (size_bits + 31) // 32


def dense_bytes(num_elements: int, width_bits: int) -> int:
    """Body of a dense block."""
    return pad4(num_elements * width_bits // 8)


def fast_bytes(*, num_symbols: int, bits: int, num_escapes: int, num_raw: int, width_bits: int) -> int:
    """Body of a fast block."""
    frames = -(-num_symbols // FRAME_SYMBOLS)
    symbols = 4 * words32(num_symbols * (bits + 2))
    return 12 + 12 * frames + symbols + pad4(num_escapes) + pad4(num_raw * width_bits // 8)
