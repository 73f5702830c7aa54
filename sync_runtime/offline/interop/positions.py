"""Index streams of PULSE patches: which elements of a tensor changed. Pure: bytes to ascending positions and back.

    delta-u16-esc    u32 first index; then gaps as u16, those from 0xFFFF on as 0xFFFF and a u32
    rice-gap         u8 k | u32 U | U bytes unary | remainders of k bits | u32 quotients of the escapes
    exp-class-rice   u16 L | L x (u8 exponent, u8 complement, u32 ranks, u32 bytes) | L rice-gap blocks

Bits run from the most significant one. In rice-gap a value is the distance to the previous index, less one (the first:
the index), split into quotient and k bits; 32 ones are an escape; unary is padded with ones. In exp-class-rice the
elements are sorted into classes by the old element's exponent, and a class codes the ranks of its changed elements, or
of the unchanged ones where more than half changed. For a given k a list has one encoding; readers refuse all others.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from sync_runtime.errors import FormatError, LimitError, TruncatedError
from sync_runtime.offline.interop.items import I64, U8, check_positions
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import Bits

_ESCAPE = 0xFFFF
_LONGEST_RUN = 32
_MAX_K = 31
_U32 = struct.Struct("<I")
_RICE = struct.Struct("<BI")
_CLASSES = struct.Struct("<H")
_CLASS = struct.Struct("<BBII")


def decode_u16(data: memoryview, changed: int, count: int, what: str) -> I64:
    """Positions of delta-u16-esc."""
    if not changed:
        return _nothing(data, what)
    if len(data) < _U32.size or (len(data) - _U32.size) % 2:
        raise TruncatedError(f"the indices of {what} are cut off")
    found = np.empty(changed, np.int64)
    found[0] = _U32.unpack_from(data)[0]
    cells = np.frombuffer(data, "<u2", offset=_U32.size).astype(np.uint16)
    if not _walk_u16(cells, found):
        raise FormatError(f"the indices of {what} are not {changed} gaps, each in its shortest form")
    check_positions(found, count, what)
    return found


@compiled
def _walk_u16(cells: Any, found: I64) -> bool:
    at: Any = 0
    for k in range(1, found.size):
        if at >= cells.size:
            return False
        gap = np.int64(cells[at])
        at += 1
        if gap == 0xFFFF:
            if at + 2 > cells.size:
                return False
            gap = np.int64(cells[at]) | np.int64(cells[at + 1]) << 16
            at += 2
            if gap < 0xFFFF:
                return False
        found[k] = found[k - 1] + gap
    return bool(at == cells.size)


def encode_u16(positions: I64) -> bytes:
    """The same backwards."""
    if not positions.size:
        return b""
    gaps = np.diff(positions)
    escaped = gaps >= _ESCAPE
    cells = np.zeros(gaps.size + 2 * int(np.count_nonzero(escaped)), "<u2")
    at = np.arange(gaps.size) + 2 * (np.cumsum(escaped) - escaped)
    cells[at] = np.where(escaped, _ESCAPE, gaps)
    cells[at[escaped] + 1] = gaps[escaped] & 0xFFFF
    cells[at[escaped] + 2] = gaps[escaped] >> 16
    return _U32.pack(int(positions[0])) + cells.tobytes()


def decode_rice(data: memoryview, changed: int, count: int, what: str) -> I64:
    """Positions of rice-gap."""
    if not changed:
        return _nothing(data, what)
    if changed > count:
        raise LimitError(f"{what} has {count} elements and cannot have {changed} changes")
    if len(data) < _RICE.size:
        raise TruncatedError(f"the indices of {what} are cut off")
    k, unary_bytes = _RICE.unpack_from(data)
    rest_bytes = -(-changed * k // 8)
    if k > _MAX_K or _RICE.size + unary_bytes + rest_bytes > len(data):
        raise FormatError(f"the indices of {what} are cut off or have an impossible parameter")
    if changed > 8 * unary_bytes or (len(data) - _RICE.size - unary_bytes - rest_bytes) % 4:
        raise FormatError(f"the indices of {what} do not have the size that their header implies")
    body = np.frombuffer(data, np.uint8, offset=_RICE.size)
    escapes = np.frombuffer(body[unary_bytes + rest_bytes :].tobytes(), "<u4").astype(np.int64)
    found = np.empty(changed, np.int64)
    rest = body[unary_bytes : unary_bytes + rest_bytes]
    if not _walk_rice((body[:unary_bytes], rest, escapes), k, count, found):
        raise FormatError(f"the indices of {what} are not {changed} codes of the one form, inside the tensor")
    return found


@compiled
def _walk_rice(streams: tuple[U8, U8, I64], k: int, count: int, found: I64) -> bool:
    unary, rest, escapes = streams
    bit: Any = 0
    low: Any = 0
    used: Any = 0
    last: Any = -1
    for at in range(found.size):
        quotient: Any = 0
        while True:
            if bit >= 8 * unary.size:
                return False
            one = (unary[bit >> 3] >> (7 - (bit & 7))) & 1
            bit += 1
            if one == 0:
                break
            quotient += 1
            if quotient > 32:
                return False
        if quotient == 32:
            if used >= escapes.size or escapes[used] < 32:
                return False
            quotient = escapes[used]
            used += 1
        value = np.int64(quotient)
        for _ in range(k):
            value = value << 1 | np.int64((rest[low >> 3] >> (7 - (low & 7))) & 1)
            low += 1
        if value >= count - last - 1:
            return False
        last += value + 1
        found[at] = last
    padded = _is_padding(unary, bit, 1) and _is_padding(rest, low, 0)
    return bool(padded and used == escapes.size)


@compiled
def _is_padding(stream: U8, bit: Any, value: int) -> bool:
    """Whether less than a byte is left, and all of it has this value."""
    for at in range(bit, 8 * stream.size):
        if (stream[at >> 3] >> (7 - (at & 7))) & 1 != value:
            return False
    return bool(8 * stream.size - bit < 8)


def encode_rice(positions: I64) -> bytes:
    """The same backwards, under the cheapest k; of equal ones the lowest."""
    if not positions.size:
        return b""
    values = np.diff(positions, prepend=-1) - 1
    k = _cheapest(values)
    quotients = values >> k
    ends = np.cumsum(np.minimum(quotients, _LONGEST_RUN) + 1) - 1
    bits = np.ones(-(-(int(ends[-1]) + 1) // 8) * 8, np.uint8)
    bits[ends] = 0
    unary = np.packbits(bits).tobytes()
    rest = np.empty((values.size, k), np.uint8)
    for bit in range(k):
        rest[:, bit] = (values >> (k - 1 - bit)) & 1
    escapes = quotients[quotients >= _LONGEST_RUN].astype("<u4").tobytes()
    return _RICE.pack(k, len(unary)) + unary + np.packbits(rest.reshape(-1)).tobytes() + escapes


def _cheapest(values: I64) -> int:
    """Down the slope from the mean's size."""

    def cost(k: int) -> int:
        quotients = values >> k
        escapes = int(np.count_nonzero(quotients >= _LONGEST_RUN))
        return int(np.minimum(quotients, _LONGEST_RUN).sum()) + values.size * (1 + k) + 32 * escapes

    best = min(_MAX_K, int(values.mean()).bit_length())
    while best < _MAX_K and cost(best + 1) < cost(best):
        best += 1
    while best and cost(best - 1) <= cost(best):
        best -= 1
    return best


def decode_classes(data: memoryview, changed: int, old: Bits, what: str) -> I64:
    """Positions of exp-class-rice, given the old elements (bf16)."""
    if not changed:
        return _nothing(data, what)
    if len(data) < _CLASSES.size:
        raise TruncatedError(f"the indices of {what} are cut off")
    (number,) = _CLASSES.unpack_from(data)
    at = _CLASSES.size + number * _CLASS.size
    if not 1 <= number <= 256 or at > len(data):
        raise FormatError(f"the indices of {what} have an impossible number of classes")
    exponents = exponents_of(old)
    class_sizes = np.bincount(exponents, minlength=256)
    parts, before = [], -1
    for record in range(number):
        exponent, complement, ranks, size_bytes = _CLASS.unpack_from(data, _CLASSES.size + record * _CLASS.size)
        if exponent <= before or complement > 1 or at + size_bytes > len(data):
            raise FormatError(f"a class among the indices of {what} is out of order or cut off")
        before, size = exponent, int(class_sizes[exponent])
        num_changed = size - ranks if complement else ranks
        if not 0 < num_changed <= size or (2 * num_changed > size) != bool(complement):
            raise FormatError(f"a class among the indices of {what} is not what the base has: is it another base?")
        coded = decode_rice(data[at : at + size_bytes], ranks, size, what)
        at += size_bytes
        members = np.flatnonzero(exponents == exponent)
        parts.append(np.delete(members, coded) if complement else members[coded])
    found = np.sort(np.concatenate(parts)).astype(np.int64)
    if at != len(data) or found.size != changed:
        raise FormatError(f"the indices of {what} are not those of {changed} changes")
    return found


def encode_classes(positions: I64, old: Bits) -> bytes:
    """The same backwards."""
    if not positions.size:
        return b""
    exponents = exponents_of(old)
    changed = np.zeros(old.size, bool)
    changed[positions] = True
    records, blocks = [], []
    for exponent in np.unique(exponents[positions]):
        inside = changed[exponents == exponent]
        complement = 2 * int(np.count_nonzero(inside)) > inside.size
        ranks = np.flatnonzero(inside != complement)
        blocks.append(encode_rice(ranks))
        records.append(_CLASS.pack(int(exponent), int(complement), ranks.size, len(blocks[-1])))
    return _CLASSES.pack(len(records)) + b"".join(records) + b"".join(blocks)


def exponents_of(bits: Bits) -> U8:
    """The exponent bytes of bf16 elements."""
    return ((bits >> 7) & 0xFF).astype(np.uint8)


def _nothing(data: memoryview, what: str) -> I64:
    if len(data):
        raise FormatError(f"{what} has no change, and bytes for some")
    return np.zeros(0, np.int64)
