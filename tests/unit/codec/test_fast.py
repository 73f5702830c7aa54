"""`fast` blocks: every border of gaps and steps, one canonical form."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.codec.cpu.fast import decode_fast, encode_fast, fast_size_bytes
from sync_runtime.codec.limits import FRAME_SYMBOLS
from sync_runtime.codec.rules import gap_bits
from sync_runtime.errors import FormatError
from sync_runtime.tensors.sparse import U32
from tests.support.states import noise


def round_trip(positions: U32, differences: U32, num_elements: int, width_bits: int) -> bytes:
    bits, body = encode_fast(positions, differences, num_elements, width_bits)
    assert len(body) == fast_size_bytes(positions, differences, num_elements, width_bits)
    found = decode_fast(
        memoryview(body), bits=bits, num_changed=positions.size, num_elements=num_elements, width_bits=width_bits
    )
    assert np.array_equal(found[0], positions)
    assert np.array_equal(found[1], differences)
    return body


def u32(*values: int) -> U32:
    return np.array(values, np.uint32)


@pytest.mark.parametrize("width_bits", [8, 16, 32])
def test_every_step_near_a_border_survives(width_bits: int) -> None:
    full = 1 << width_bits
    near = {1, 2, 3, 127, 128, 129, 130, 255, 256, full // 2 - 1, full // 2, full // 2 + 1, full - 129, full - 128}
    steps = sorted({step % full for value in near for step in (value, full - value)} - {0})
    round_trip(np.arange(len(steps), dtype=np.uint32), u32(*steps), 1000, width_bits)


def test_every_16_bit_difference_survives() -> None:
    round_trip(np.arange(65535, dtype=np.uint32), np.arange(1, 65536, dtype=np.uint32), 1 << 20, 16)


def test_every_8_bit_difference_survives_without_a_raw_entry() -> None:
    body = round_trip(np.arange(255, dtype=np.uint32), np.arange(1, 256, dtype=np.uint32), 255, 8)
    assert int.from_bytes(body[8:12], "little") == 0


@pytest.mark.parametrize("gap", [0, 1, 254, 255, 256, 4095, 4096, 4097, 65534, 65535, 65536, 65537, 1 << 23])
def test_every_gap_near_a_border_survives(gap: int) -> None:
    num_elements = 1 << 24
    round_trip(u32(gap), u32(1), num_elements, 16)
    round_trip(u32(0, gap + 1, min(2 * gap + 2, num_elements - 1)), u32(1, 0xFFFF, 700), num_elements, 16)


@pytest.mark.parametrize("bits", [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def test_runs_of_skips_of_every_length_survive_at_every_gap_width(bits: int) -> None:
    num_changed = 4
    num_elements = next(
        size for size in sorted({(8 + eighth) << k >> 1 for k in range(24) for eighth in range(8)})
        if gap_bits(size, num_changed) == bits
    )  # fmt: skip
    for first in {0, min(1 << bits, num_elements - 4), min((1 << bits) * ((1 << bits) + 1), num_elements - 4)}:
        positions = u32(first, first + 1, num_elements - 2, num_elements - 1)
        if (np.diff(positions.astype(np.int64)) > 0).all():
            round_trip(positions, u32(1, 2, 3, 4), num_elements, 16)


@pytest.mark.parametrize("count", [1, FRAME_SYMBOLS - 1, FRAME_SYMBOLS, FRAME_SYMBOLS + 1, 3 * FRAME_SYMBOLS])
def test_frames_of_every_filling_survive(count: int) -> None:
    differences = (noise(count, 1) % np.uint64(65535)).astype(np.uint32) + np.uint32(1)
    round_trip(np.arange(0, 97 * count, 97, dtype=np.uint32), differences, 97 * count, 16)


def test_frames_can_be_decoded_alone() -> None:
    positions = np.arange(0, 300_000, 60, dtype=np.uint32)
    body = round_trip(positions, np.ones(positions.size, np.uint32), 1 << 20, 16)
    heads = np.frombuffer(body[12 : 12 + 12 * 5], "<u4").reshape(5, 3)
    assert heads[1, 0] == positions[FRAME_SYMBOLS - 1] + 1


@given(
    data=st.data(),
    width_bits=st.sampled_from([8, 16, 32]),
    num_elements=st.integers(1, 3000),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.timeout(20)
def test_any_block_survives(data: st.DataObject, width_bits: int, num_elements: int) -> None:
    chosen = data.draw(st.sets(st.integers(0, num_elements - 1), min_size=1))
    values = st.integers(1, (1 << width_bits) - 1) | st.sampled_from([1, (1 << width_bits) - 1])
    steps = data.draw(st.lists(values, min_size=len(chosen), max_size=len(chosen)))
    round_trip(u32(*sorted(chosen)), u32(*steps), num_elements, width_bits)


def test_a_run_of_skips_that_could_be_shorter_is_refused() -> None:
    bits, size = 12, 14
    body = bytearray(encode_fast(u32(1 << 23), u32(1), 1 << 24, 16)[1])
    words = np.frombuffer(body, "<u4", offset=24).copy()
    symbols = [int.from_bytes(words.tobytes(), "little") >> size * at & (1 << size) - 1 for at in range(2)]
    assert symbols[0] == (1 << 23) // (1 << bits) - 1
    split = [symbols[0] // 2, symbols[0] - symbols[0] // 2 - 1, symbols[1]]  # two skips with the same sum
    packed = sum(symbol << size * at for at, symbol in enumerate(split)).to_bytes(8, "little")
    longer = (3).to_bytes(4, "little") + bytes(body[4:24]) + packed
    with pytest.raises(FormatError, match="canonical"):
        decode_fast(memoryview(longer), bits=bits, num_changed=1, num_elements=1 << 24, width_bits=16)


def test_another_gap_width_than_the_rule_names_is_refused() -> None:
    bits, body = encode_fast(u32(3, 9), u32(1, 2), 100, 16)
    with pytest.raises(FormatError, match="gap width"):
        decode_fast(memoryview(body), bits=bits + 1, num_changed=2, num_elements=100, width_bits=16)


@pytest.mark.parametrize("escape", [254, 252, 255])
def test_escape_bytes_that_are_never_written_are_refused(escape: int) -> None:
    bits, body = encode_fast(u32(0), u32(5), 10, 8)
    altered = bytearray(body)
    altered[-4] = escape
    with pytest.raises(FormatError):
        decode_fast(memoryview(bytes(altered)), bits=bits, num_changed=1, num_elements=10, width_bits=8)


def test_a_raw_entry_that_fits_an_escape_byte_is_refused() -> None:
    bits, body = encode_fast(u32(0), u32(5000), 10, 16)
    altered = body[:-4] + (5).to_bytes(2, "little") + bytes(2)
    with pytest.raises(FormatError, match="canonical"):
        decode_fast(memoryview(altered), bits=bits, num_changed=1, num_elements=10, width_bits=16)


@pytest.mark.parametrize("num_elements", [10, 1 << 20])
def test_a_position_just_outside_the_block_is_refused(num_elements: int) -> None:
    bits, body = encode_fast(u32(num_elements - 1), u32(1), num_elements, 16)
    assert gap_bits(num_elements - 1, 1) == bits
    with pytest.raises(FormatError, match="outside"):
        decode_fast(memoryview(body), bits=bits, num_changed=1, num_elements=num_elements - 1, width_bits=16)


def test_many_announced_changes_in_few_bytes_reserve_nothing() -> None:
    num_elements = 1 << 24
    body = encode_fast(u32(0), u32(1), 1, 16)[1]
    bits = gap_bits(num_elements, num_elements)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="too small"):
            decode_fast(memoryview(body), bits=bits, num_changed=num_elements, num_elements=num_elements, width_bits=16)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()
