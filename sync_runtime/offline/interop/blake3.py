"""BLAKE3, plain hashing: one of the checksums that slime and miles offer for a tensor.

Written from the published description. Chunks are hashed by one compiled loop; the tree above them, a thirtieth of the
work, by another over pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.offline.interop.items import U8
from sync_runtime.tensors.jit import compiled

U64 = NDArray[np.uint64]
"""Words of 32 bits in 64: compiled sums must not be promoted behind our back."""
_CHUNK_BYTES, _BLOCK_BYTES = 1024, 64
_START, _END, _PARENT, _ROOT = 1, 2, 4, 8
_INITIAL = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint64
)
_ORDER = np.array([2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8], np.int64)
_CORNERS = np.array(
    [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
     [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]], np.int64
)  # fmt: skip
_PIECE_CHUNKS = 4096


def blake3(data: U8) -> bytes:
    """Thirty-two bytes."""
    num_chunks = max(1, -(-data.size // _CHUNK_BYTES))
    nodes = np.empty((num_chunks, 8), np.uint64)
    for first in range(0, num_chunks - 1, _PIECE_CHUNKS):
        last = min(first + _PIECE_CHUNKS, num_chunks - 1)
        piece = data[first * _CHUNK_BYTES : last * _CHUNK_BYTES].tobytes()
        _chunks(_words(piece), first, nodes[first:last])
    tail = data[(num_chunks - 1) * _CHUNK_BYTES :].tobytes()
    nodes[-1] = _last_chunk(tail, num_chunks - 1, _ROOT if num_chunks == 1 else 0)
    while len(nodes) > 1:
        pairs = len(nodes) // 2
        above = np.empty((len(nodes) - pairs, 8), np.uint64)
        _parents(nodes, _ROOT if len(nodes) == 2 else 0, above[:pairs])
        above[pairs:] = nodes[2 * pairs :]  # one without a neighbour moves up as it is
        nodes = above
    return bytes(nodes[0].astype("<u4").tobytes())


def _last_chunk(tail: bytes, counter: int, flags: int) -> U64:
    """The chunk that may be short; of an empty input there is one, with nothing in it."""
    value = _INITIAL.copy()
    starts = range(0, max(1, len(tail)), _BLOCK_BYTES)
    for at in starts:
        block = tail[at : at + _BLOCK_BYTES]
        marks = (_START if at == 0 else 0) | (_END | flags if at == starts[-1] else 0)
        words = _words(block.ljust(_BLOCK_BYTES, b"\0"))
        _compress(value, words, np.uint64(counter), np.uint64(len(block) | marks << 32))
    return value


def _words(raw: bytes) -> U64:
    return np.frombuffer(raw, "<u4").astype(np.uint64)


@compiled
def _chunks(words: U64, first: int, out: U64) -> None:
    """Whole chunks, none of which is the root."""
    for chunk in range(out.shape[0]):
        for at in range(8):
            out[chunk, at] = _INITIAL[at]
        for block in range(16):
            marks = 64 | ((1 if block == 0 else 0) | (2 if block == 15 else 0)) << 32
            start = chunk * 256 + block * 16
            counter = np.uint64(first + chunk)
            _compress(out[chunk], words[start : start + 16], counter, np.uint64(marks))


@compiled
def _parents(nodes: U64, flags: int, out: U64) -> None:
    """One level of the tree."""
    for pair in range(out.shape[0]):
        for at in range(8):
            out[pair, at] = _INITIAL[at]
        words = nodes[2 * pair : 2 * pair + 2].copy().reshape(16)
        _compress(out[pair], words, np.uint64(0), np.uint64(64 | (4 | flags) << 32))


@compiled
def _compress(value: U64, block: U64, counter: Any, size_and_marks: Any) -> None:
    """One block into a chaining value; the block's size stands below its marks."""
    mask = np.uint64(0xFFFFFFFF)
    state = np.empty(16, np.uint64)
    words, moved = block.copy(), np.empty(16, np.uint64)
    for at in range(8):
        state[at] = value[at]
    for at in range(4):
        state[8 + at] = _INITIAL[at]
    state[12], state[13] = counter & mask, counter >> np.uint64(32)
    state[14], state[15] = size_and_marks & mask, size_and_marks >> np.uint64(32)
    for _ in range(7):
        for corner in range(8):
            a, b, c, d = _CORNERS[corner, 0], _CORNERS[corner, 1], _CORNERS[corner, 2], _CORNERS[corner, 3]
            for half in range(2):
                state[a] = (state[a] + state[b] + words[2 * corner + half]) & mask
                state[d] = _rotated(state[d] ^ state[a], np.uint64(8 if half else 16))
                state[c] = (state[c] + state[d]) & mask
                state[b] = _rotated(state[b] ^ state[c], np.uint64(7 if half else 12))
        for at in range(16):
            moved[at] = words[_ORDER[at]]
        words, moved = moved, words
    for at in range(8):
        value[at] = state[at] ^ state[8 + at]


@compiled
def _rotated(value: Any, by: Any) -> Any:
    return (value >> by) | ((value << (np.uint64(32) - by)) & np.uint64(0xFFFFFFFF))
