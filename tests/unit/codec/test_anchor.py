"""Anchor blocks: full weights, exact, near what their exponents allow, each block alone."""

import numpy as np
import pytest

from sync_runtime.codec.cpu.anchor import anchor_bound_bytes, decode_anchor, encode_anchor
from sync_runtime.codec.limits import MODE_PACKED, MODE_RAW
from sync_runtime.errors import FormatError, SyncError
from sync_runtime.tensors.dtypes import BY_NAME, wire_dtype
from tests.support.states import SPECIAL_BF16, noise, weights


@pytest.mark.parametrize("dtype_name", BY_NAME)
@pytest.mark.parametrize("count", [1, 2, 31, 33, 20_000])
def test_every_dtype_survives(dtype_name: str, count: int) -> None:
    dtype = wire_dtype(dtype_name)
    bits = (noise(count, 3) >> np.uint64(7)).astype(dtype.bits_dtype)
    mode, parameter, body = encode_anchor(bits, dtype, 2**63)
    seq, found = decode_anchor(memoryview(body), mode=mode, parameter=parameter, dtype=dtype, count=count)
    assert seq == 2**63
    assert found.dtype == bits.dtype
    assert np.array_equal(found, bits)
    assert len(body) <= anchor_bound_bytes(count, dtype.width_bits)


def test_special_patterns_survive() -> None:
    bits = np.array(SPECIAL_BF16 * 20, np.uint16)
    mode, parameter, body = encode_anchor(bits, wire_dtype("BF16"), 0)
    found = decode_anchor(memoryview(body), mode=mode, parameter=parameter, dtype=wire_dtype("BF16"), count=bits.size)
    assert np.array_equal(found[1], bits)


def test_weights_shrink_by_what_their_exponents_do_not_say() -> None:
    bits = weights((1 << 18,), 1).matrix.reshape(-1)
    mode, _, body = encode_anchor(bits, wire_dtype("BF16"), 0)
    share = np.bincount(bits >> np.uint16(7) & np.uint16(255)) / bits.size
    entropy_bits = -sum(p * np.log2(p) for p in share if p)
    assert mode == MODE_PACKED
    assert len(body) < 1.01 * bits.size * (8 + entropy_bits) / 8 + 500


def test_noise_is_stored_raw() -> None:
    bits = noise(100, 1).astype(np.uint16)
    assert encode_anchor(bits, wire_dtype("BF16"), 0)[0] == MODE_RAW


@pytest.mark.timeout(20)
def test_every_truncation_is_refused_and_a_flip_never_crashes() -> None:
    dtype, count = wire_dtype("BF16"), 300
    bits = weights((count,), 1).matrix.reshape(-1)
    mode, parameter, body = encode_anchor(bits, dtype, 5)
    assert mode == MODE_PACKED
    for size in range(len(body)):
        with pytest.raises(SyncError):
            decode_anchor(memoryview(body[:size]), mode=mode, parameter=parameter, dtype=dtype, count=count)
    for at in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[at >> 3] ^= 1 << (at & 7)
        try:
            found = decode_anchor(memoryview(bytes(damaged)), mode=mode, parameter=parameter, dtype=dtype, count=count)
        except FormatError:
            continue
        assert found[1].size == count


def test_another_number_of_lanes_is_refused() -> None:
    bits = weights((20_000,), 1).matrix.reshape(-1)
    mode, parameter, body = encode_anchor(bits, wire_dtype("BF16"), 5)
    with pytest.raises(FormatError):
        decode_anchor(memoryview(body), mode=mode, parameter=parameter + 1, dtype=wire_dtype("BF16"), count=bits.size)
