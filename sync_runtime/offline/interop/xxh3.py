"""XXH3 with 128 bits, seed 0: the checksum that PULSE, slime, miles and SkyRL put beside a tensor.

Written from the published description of the algorithm, so that no package is needed for sixteen bytes. Up to 240 bytes
in plain integers; more through one compiled loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.offline.interop.items import U8
from sync_runtime.tensors.jit import compiled

U64 = NDArray[np.uint64]
_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES, _LANES, _STRIPES_PER_BLOCK = 64, 8, 16
_PIECE_BYTES = 4 << 20
"""A whole number of blocks: longer inputs are copied piece by piece onto their alignment."""


def xxh3_128(data: U8) -> bytes:
    """Sixteen bytes, most significant first."""
    size = data.size
    if size <= 240:
        low, high = _short(data.tobytes())
    else:
        low, high = _long(data)
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")


def _short(data: bytes) -> tuple[int, int]:
    size = len(data)
    if size == 0:
        return _avalanche64(_key(64) ^ _key(72)), _avalanche64(_key(80) ^ _key(88))
    if size <= 3:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        swapped = int.from_bytes(combined.to_bytes(4, "little"), "big")
        other = (swapped << 13 | swapped >> 19) & 0xFFFFFFFF
        return _avalanche64(combined ^ _key32(0) ^ _key32(4)), _avalanche64(other ^ _key32(8) ^ _key32(12))
    if size <= 8:
        return _four_to_eight(data)
    if size <= 16:
        return _nine_to_sixteen(data)
    return _medium(data)


def _four_to_eight(data: bytes) -> tuple[int, int]:
    joined = int.from_bytes(data[:4], "little") | int.from_bytes(data[-4:], "little") << 32
    product = (joined ^ _key(16) ^ _key(24)) * ((_P64_1 + (len(data) << 2)) & _MASK)
    low, high = product & _MASK, product >> 64
    high = (high + (low << 1)) & _MASK
    low ^= high >> 3
    low = (low ^ low >> 35) * _MX2 & _MASK
    return low ^ low >> 28, _avalanche3(high)


def _nine_to_sixteen(data: bytes) -> tuple[int, int]:
    first, last = _word(data, 0), _word(data, len(data) - 8)
    product = (first ^ last ^ _key(32) ^ _key(40)) * _P64_1
    low, high = (product + (len(data) - 1 << 54)) & _MASK, product >> 64
    last ^= _key(48) ^ _key(56)
    high = (high + last + (last & 0xFFFFFFFF) * (_P32_2 - 1)) & _MASK
    low ^= int.from_bytes(high.to_bytes(8, "little"), "big")
    product = low * _P64_2
    return _avalanche3(product & _MASK), _avalanche3(((product >> 64) + high * _P64_2) & _MASK)


def _medium(data: bytes) -> tuple[int, int]:
    size = len(data)
    low, high = size * _P64_1 & _MASK, 0
    if size <= 128:
        for at in reversed(range(0, (size - 1) // 32 * 16 + 1, 16)):
            low, high = _mix32(low, high, (data, at, size - 16 - at), 2 * at)
    else:
        for at in range(0, 128, 32):
            low, high = _mix32(low, high, (data, at, at + 16), at)
        low, high = _avalanche3(low), _avalanche3(high)
        for at in range(128, size - 31, 32):
            low, high = _mix32(low, high, (data, at, at + 16), 3 + at - 128)
        low, high = _mix32(low, high, (data, size - 16, size - 32), 136 - 17 - 16)
    total = (low * _P64_1 + high * _P64_4 + size * _P64_2) & _MASK
    return _avalanche3((low + high) & _MASK), -_avalanche3(total) & _MASK


def _mix32(low: int, high: int, at: tuple[bytes, int, int], secret: int) -> tuple[int, int]:
    data, first, second = at
    low = (low + _mix16(data, first, secret)) & _MASK
    low ^= (_word(data, second) + _word(data, second + 8)) & _MASK
    high = (high + _mix16(data, second, secret + 16)) & _MASK
    high ^= (_word(data, first) + _word(data, first + 8)) & _MASK
    return low, high


def _mix16(data: bytes, at: int, secret: int) -> int:
    return _folded(_word(data, at) ^ _key(secret), _word(data, at + 8) ^ _key(secret + 8))


def _long(data: U8) -> tuple[int, int]:
    size = data.size
    lanes = np.array([_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1], np.uint64)
    num_stripes = (size - 1) // _STRIPE_BYTES
    for at in range(0, num_stripes * _STRIPE_BYTES, _PIECE_BYTES):
        piece = data[at : min(at + _PIECE_BYTES, num_stripes * _STRIPE_BYTES)].tobytes()
        _accumulate(np.frombuffer(piece, "<u8").astype(np.uint64, copy=False), _words(_SECRET), lanes)
    last = data[size - _STRIPE_BYTES :].tobytes()
    _accumulate(_words(last), _words(_SECRET[121 : 121 + _STRIPE_BYTES]), lanes)
    sums = [int(lane) for lane in lanes]
    return _merged(sums, 11, size * _P64_1 & _MASK), _merged(sums, 117, ~(size * _P64_2) & _MASK)


def _merged(lanes: list[int], secret: int, start: int) -> int:
    for at in range(0, _LANES, 2):
        start += _folded(lanes[at] ^ _key(secret + 8 * at), lanes[at + 1] ^ _key(secret + 8 * at + 8))
    return _avalanche3(start & _MASK)


@compiled
def _accumulate(words: U64, secret: U64, lanes: U64) -> None:
    """Adds stripes; after every sixteenth the lanes are scrambled, which needs the whole secret."""
    prime, low_half = np.uint64(0x9E3779B1), np.uint64(0xFFFFFFFF)
    half, shift = np.uint64(32), np.uint64(47)
    stripe: Any
    lane: Any
    for stripe in range(words.size // 8):
        number = stripe % 16
        for lane in range(8):
            word = words[stripe * 8 + lane]
            key = word ^ secret[number + lane]
            lanes[lane ^ 1] += word
            lanes[lane] += (key & low_half) * (key >> half)
        if number == 15:
            for lane in range(8):
                value = lanes[lane]
                lanes[lane] = ((value ^ (value >> shift)) ^ secret[16 + lane]) * prime


def _words(raw: bytes) -> U64:
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _key(at: int) -> int:
    return _word(_SECRET, at)


def _key32(at: int) -> int:
    return int.from_bytes(_SECRET[at : at + 4], "little")


def _folded(first: int, second: int) -> int:
    product = first * second
    return (product ^ product >> 64) & _MASK


def _avalanche3(value: int) -> int:
    value = (value ^ value >> 37) * _MX1 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32
