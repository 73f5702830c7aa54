"""Anchor blocks: absolute bits, exponents entropy-coded, each block alone (FORMAT.md, section 8)."""

# ruff: noqa: PLR0917 -- compiled loops take flat arguments and check as they go

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu import rans
from sync_runtime.codec.cpu.sections import Sections
from sync_runtime.codec.cpu.tight import Lanes, tails
from sync_runtime.codec.limits import MODE_PACKED, MODE_RAW
from sync_runtime.codec.rules import ANCHOR_ONE, anchor_lanes_log2, pad4, words32
from sync_runtime.codec.tables import MAX_CONTEXTS, normalised
from sync_runtime.errors import FormatError
from sync_runtime.tensors.dtypes import WireDtype
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits

_SEQ = struct.Struct("<Q")
_RANGE = struct.Struct("<HH")


def encode_anchor(bits: Bits, dtype: WireDtype, seq: int) -> tuple[int, int, bytes]:
    """(mode, parameter, body) of a block's absolute bits."""
    plain = np.ascontiguousarray(bits).astype(dtype.bits_dtype.newbyteorder("<"), copy=False).tobytes()
    raw = _SEQ.pack(seq) + plain + bytes(-len(plain) % 4)
    if not dtype.context_bits:
        return MODE_RAW, 0, raw
    log2 = anchor_lanes_log2(bits.size)
    packed = _SEQ.pack(seq) + _pack(bits, dtype, 1 << log2)
    return (MODE_PACKED, log2, packed) if len(packed) <= len(raw) else (MODE_RAW, 0, raw)


def decode_anchor(body: memoryview, *, mode: int, parameter: int, dtype: WireDtype, count: int) -> tuple[int, Bits]:
    """(seq, bits) of a body from anywhere; `count` is the layout's number of elements."""
    sections = Sections(body)
    seq = sections.u64()
    if mode == MODE_RAW:
        if parameter:
            raise FormatError("a raw block has a parameter")
        bits = sections.elements(count, dtype.width_bits).astype(dtype.bits_dtype)
    else:
        if not dtype.context_bits or parameter != anchor_lanes_log2(count):
            raise FormatError("a packed block has the wrong dtype or number of lanes")
        bits = _unpack(sections, dtype, count, 1 << parameter)
    sections.finish()
    return seq, bits


def _pack(bits: Bits, dtype: WireDtype, lanes: int) -> bytes:
    shift, mask = dtype.context_shift, dtype.context_mask
    histogram = np.bincount((bits >> shift) & mask, minlength=MAX_CONTEXTS).astype(np.int64)
    table = normalised(histogram, ANCHOR_ONE)
    used = np.flatnonzero(table)
    first, end = int(used[0]), int(used[-1]) + 1
    words = np.empty((lanes, -(-bits.size // lanes)), np.uint16)
    states, counts = np.empty(lanes, np.uint32), np.empty(lanes, np.int64)
    rans.encode_contexts(bits, shift, mask, table, words, states, counts)
    coded = Lanes(states, counts, tails(words, counts))
    rest_bits = dtype.width_bits - dtype.context_bits
    rest = np.zeros(words32(bits.size * rest_bits), np.uint32)
    _write_rest(bits, shift, dtype.context_bits, rest_bits, rest)
    head = _RANGE.pack(first, end - first) + table[first:end].astype("<u2").tobytes()
    stream = coded.words.astype("<u2").tobytes()
    parts = [head, bytes(-len(head) % 4), coded.head, stream, bytes(-len(stream) % 4), rest.astype("<u4").tobytes()]
    return b"".join(parts)


def _unpack(sections: Sections, dtype: WireDtype, count: int, lanes: int) -> Bits:
    table = _take_table(sections, dtype.num_contexts)
    states, counts = sections.u32(lanes), sections.u16(lanes)
    sections.skip_padding()
    ends = np.cumsum(counts, dtype=np.int64)
    words = sections.u16(int(ends[-1]))
    sections.skip_padding()
    rest_bits = dtype.width_bits - dtype.context_bits
    rest = sections.bits(count * rest_bits)
    contexts = np.empty(count, np.uint8)
    fault = rans.decode_contexts(table, words, ends, states, contexts)
    if fault:
        raise FormatError(f"a packed block is malformed: {rans.FAULTS[fault]}")
    bits = np.empty(count, dtype.bits_dtype)
    _join_rest(contexts, rest, dtype.context_shift, dtype.context_bits, rest_bits, bits)
    return bits


def _take_table(sections: Sections, num_contexts: int) -> U32:
    first, count = (int(word) for word in sections.u16(2))
    if not count or first + count > num_contexts:
        raise FormatError("the table of a packed block has more contexts than its dtype")
    table = np.zeros(MAX_CONTEXTS, np.uint32)
    table[first : first + count] = sections.u16(count)
    sections.skip_padding()
    if int(table.sum()) != ANCHOR_ONE or not table[first] or not table[first + count - 1]:
        raise FormatError("the frequencies of a packed block do not sum to one, or have empty ends")
    return table


def anchor_bound_bytes(num_elements: int, width_bits: int) -> int:
    """No anchor body is larger."""
    return 8 + pad4(num_elements * width_bits // 8)


@compiled
def _write_rest(bits: Bits, shift: int, context_bits: int, rest_bits: int, words: U32) -> None:
    low = (1 << shift) - 1
    held, fill, word = np.uint64(0), 0, 0
    for i in range(bits.size):
        value = np.int64(bits[i])
        rest = (value & low) | ((value >> (shift + context_bits)) << shift)
        held |= np.uint64(rest) << np.uint64(fill)
        fill += rest_bits
        if fill >= 32:
            words[word] = held & np.uint64(0xFFFFFFFF)
            word += 1
            held >>= np.uint64(32)
            fill -= 32
    if fill:
        words[word] = held & np.uint64(0xFFFFFFFF)


@compiled
def _join_rest(
    contexts: NDArray[np.uint8], words: U32, shift: int, context_bits: int, rest_bits: int, bits: Bits
) -> None:
    low, select = (1 << shift) - 1, (1 << rest_bits) - 1
    held, fill, word = np.uint64(0), 0, 0
    for i in range(contexts.size):
        if fill < rest_bits:
            held |= np.uint64(words[word]) << np.uint64(fill)
            word += 1
            fill += 32
        rest = np.int64(held & np.uint64(select))
        held >>= np.uint64(rest_bits)
        fill -= rest_bits
        bits[i] = (rest & low) | (np.int64(contexts[i]) << shift) | ((rest >> shift) << (shift + context_bits))
