"""States and deltas for tests: arithmetic noise without a random generator's version, and loops compiled beforehand.

Compiling takes longer than a unit test may: test folders call `compile_loops` when they are collected.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu.anchor import decode_anchor, encode_anchor
from sync_runtime.offline import apply, diff, digest, invert, merge
from sync_runtime.tensors.bits import BitTensor, State
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.sparse import Bits

SPECIAL_BF16 = (
    0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x8080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80,
    0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0x7FFF, 0xFFFF,
)  # fmt: skip
"""±0, subnormal edges, ±1, ±max, ±Inf, quiet and signalling NaNs with payloads."""


def noise(count: int, seed: int) -> NDArray[np.uint64]:
    """The same numbers everywhere, for ever."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 2 + 1)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    z = (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return z ^ (z >> np.uint64(32))


def tensor(dtype_name: str, shape: tuple[int, ...], bits: Bits) -> BitTensor:
    """A tensor of any wire dtype from its bits."""
    dtype = wire_dtype(dtype_name)
    cols = (shape[-1] if shape else 1) * dtype.elements_per_item
    return BitTensor(
        dtype, shape, np.ascontiguousarray(bits, dtype.bits_dtype).reshape(int(np.prod(shape[:-1], dtype=int)), cols)
    )


def weights(shape: tuple[int, ...], seed: int) -> BitTensor:
    """bf16 with exponents as weights have them: mostly high, few low."""
    z = noise(int(np.prod(shape)), seed)
    low_bit = z & (~z + np.uint64(1))
    octaves = np.minimum(np.log2(low_bit.astype(np.float64)).astype(np.uint64), np.uint64(20))
    exponent = np.uint64(122) - octaves
    bits = (
        ((z >> np.uint64(63)) << np.uint64(15)) | (exponent << np.uint64(7)) | ((z >> np.uint64(40)) & np.uint64(127))
    )
    return tensor("BF16", shape, bits.astype(np.uint16))


def stepped(before: BitTensor, seed: int, per_mille: int = 10, wild_per_mille: int = 20) -> BitTensor:
    """One update: some elements move by ±1, few by anything."""
    flat = before.matrix.reshape(-1)
    z = noise(flat.size, seed)
    moves = (z % np.uint64(1000)) < np.uint64(per_mille)
    wild = moves & ((z >> np.uint64(20)) % np.uint64(1000) < np.uint64(wild_per_mille))
    step = np.where((z >> np.uint64(40)) & np.uint64(1), 1, -1)
    after = np.where(moves, flat.astype(np.int64) + step, flat)
    after = np.where(wild, (z >> np.uint64(30)).astype(np.int64), after)
    bits = (after & ((1 << before.dtype.width_bits) - 1)).astype(before.dtype.bits_dtype)
    return BitTensor(before.dtype, before.shape, bits.reshape(before.matrix.shape))


def small_state(seed: int = 1) -> dict[str, BitTensor]:
    """A few thousand elements in every width, with a large, small, scalar and empty tensors."""
    return {
        "layers.0.mlp.weight": weights((260, 256), seed),
        "layers.0.norm": weights((37,), seed + 1),
        "router.bias": tensor("F32", (9,), noise(9, seed + 2).astype(np.uint32)),
        "codes": tensor("F8_E4M3", (3, 5), noise(15, seed + 3).astype(np.uint8)),
        "count": tensor("I64", (), noise(2, seed + 4).astype(np.uint32)),
        "empty": tensor("F16", (0, 4), np.zeros(0, np.uint16)),
    }


def next_state(state: State, seed: int, per_mille: int = 10) -> dict[str, BitTensor]:
    """The state one update later."""
    return {name: stepped(bits, seed + at, per_mille) for at, (name, bits) in enumerate(sorted(state.items()))}


def copied(state: State) -> dict[str, BitTensor]:
    """A state in memory of its own."""
    return {name: BitTensor(bits.dtype, bits.shape, bits.matrix.copy()) for name, bits in state.items()}


def same_bits(first: State, second: State) -> bool:
    """Whether two states are equal, bit for bit."""
    return first.keys() == second.keys() and all(
        np.array_equal(first[name].matrix, second[name].matrix) for name in first
    )


@cache
def compile_loops() -> None:
    """Runs every compiled loop once for every width."""
    for dtype_name in ("BF16", "F32", "F8_E4M3"):
        dtype = wire_dtype(dtype_name)
        bits = noise(1 << 16, 3).astype(dtype.bits_dtype)
        before = {"w": tensor(dtype_name, (256, 256), bits), "v": tensor(dtype_name, (7,), bits[:7])}
        after = {name: stepped(value, 5, 300) for name, value in before.items()}
        for codec in ("fast", "tight"):
            delta = diff(before, after, codec=codec, threads=1)
            state = copied(before)
            apply(state, delta, threads=1)
            back = invert(delta, base=before, threads=1)
            merge(delta, back, base=before, threads=1)
        digest(before, threads=1)
        mode, parameter, body = encode_anchor(bits, dtype, 1)
        decode_anchor(memoryview(body), mode=mode, parameter=parameter, dtype=dtype, count=bits.size)
