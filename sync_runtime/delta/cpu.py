"""Extraction and digests on the CPU, compiled. Equal in bits to `naive` and to `digest`. Imports no torch."""

# ruff: noqa: PLR0917 -- compiled loops take flat arguments

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.delta.digest import ELEMENT_FACTOR, ELEMENT_OFFSET, GOLDEN, keys
from sync_runtime.tensors.bits import BitTensor, rectangle
from sync_runtime.tensors.blocks import Block, Piece
from sync_runtime.tensors.digest import ZERO, Digest, TensorKeys, tensor_keys
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.layout import Layout
from sync_runtime.tensors.sparse import U32, Bits, SparseBlock, within

U64 = NDArray[np.uint64]


def extract_block(old: Bits, new: Bits, block: int) -> SparseBlock:
    """Where the raw bits of two contiguous blocks differ, and by how much."""
    old, new = _aligned(old), _aligned(new)
    mask = (1 << 8 * old.itemsize) - 1
    positions, differences = np.empty(old.size, np.uint32), np.empty(old.size, np.uint32)  # touched as far as used
    per_word = 8 // old.itemsize
    whole = old.size - old.size % per_word
    count = _list_words(
        old[:whole].view(np.uint64), new[:whole].view(np.uint64), old, new, mask, positions, differences
    )
    count = _list_elements(old, new, whole, mask, positions, differences, count)
    return SparseBlock(block, positions[:count].copy(), differences[:count].copy())


def _aligned(bits: Bits) -> Bits:
    """The same elements where 64 bits can be read at a time."""
    return bits if bits.ctypes.data % 8 == 0 and bits.dtype.isnative else bits.astype(bits.dtype.newbyteorder("="))


def block_digest(block: Block, state: Mapping[int, BitTensor], layout: Layout) -> dict[int, Digest]:
    """The digest of every tensor's part in a block, read through strides."""
    return {piece.tensor: _piece_digest(piece, rectangle(piece, state[piece.tensor]), layout) for piece in block.pieces}


def bits_digest(block: Block, bits: Bits, layout: Layout) -> Digest:
    """The digest of a block from its elements in index order: for blocks without a state around them."""
    found, first = ZERO, 0
    for piece in block.pieces:
        part = bits[first : first + piece.num_elements].reshape(piece.num_rows, piece.num_cols)
        found = found.plus(_piece_digest(piece, part, layout))
        first += piece.num_elements
    return found


def _piece_digest(piece: Piece, matrix: Bits, layout: Layout) -> Digest:
    tensor = tensor_keys(layout.tensors[piece.tensor])
    words = _matrix_digest(
        matrix, *_key_arrays(tensor, piece.row_start, matrix.shape[0], piece.col_start, matrix.shape[1])
    )
    return Digest(int(words[0]), int(words[1]))


def staged_digest(positions: U32, old: Bits, new: Bits, block: Block, layout: Layout) -> dict[int, Digest]:
    """What a staged block adds to the digests of its tensors; `old` and `new` are the elements at the positions."""
    found, first = {}, 0
    for piece in block.pieces:
        inside = within(positions, first, piece.num_elements)
        tensor = tensor_keys(layout.tensors[piece.tensor])
        a, b = _sparse_digest(
            positions[inside],
            old[inside],
            new[inside],
            first,
            max(1, piece.num_cols),
            piece.row_start,
            piece.col_start,
            np.array(tensor, np.uint64),
        )
        found[piece.tensor] = Digest(int(a), int(b))
        first += piece.num_elements
    return found


def _key_arrays(tensor: TensorKeys, row: int, rows: int, col: int, cols: int) -> tuple[U64, U64, U64, U64]:
    return (
        keys(tensor.row_a, row, rows),
        keys(tensor.col_a, col, cols),
        keys(tensor.row_b, row, rows),
        keys(tensor.col_b, col, cols),
    )


@compiled
def _list_words(
    old_words: U64, new_words: U64, old: Bits, new: Bits, mask: int, positions: U32, differences: U32
) -> Any:
    """Compares 64 bits at a time; returns how many elements differ."""
    at = 0
    per_word = 8 // old.itemsize
    for word in range(old_words.size):
        if old_words[word] != new_words[word]:
            for i in range(word * per_word, (word + 1) * per_word):
                if old[i] != new[i]:
                    positions[at] = i
                    differences[at] = (np.int64(new[i]) - np.int64(old[i])) & mask  # compiled integers are wider
                    at += 1
    return at


@compiled
def _list_elements(old: Bits, new: Bits, first: int, mask: int, positions: U32, differences: U32, at: int) -> Any:
    """The elements after the last whole word."""
    for i in range(first, old.size):
        if old[i] != new[i]:
            positions[at] = i
            differences[at] = (np.int64(new[i]) - np.int64(old[i])) & mask
            at += 1
    return at


@compiled
def _mixed(bits: Any) -> Any:
    y = np.uint32(np.uint32(bits) * np.uint32(ELEMENT_FACTOR) + np.uint32(ELEMENT_OFFSET))
    return np.uint64(y ^ np.uint32(y >> np.uint32(15)))


@compiled
def _key(key: Any, number: Any) -> Any:
    z = key + (np.uint64(number) + np.uint64(1)) * np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@compiled
def _matrix_digest(matrix: Bits, row_a: U64, col_a: U64, row_b: U64, col_b: U64) -> tuple[Any, Any]:
    total_a, total_b = np.uint64(0), np.uint64(0)
    for row in range(matrix.shape[0]):
        across_a, across_b = np.uint64(0), np.uint64(0)
        for col in range(matrix.shape[1]):
            spread = _mixed(matrix[row, col])
            across_a += col_a[col] * spread
            across_b += col_b[col] * spread
        total_a += row_a[row] * across_a
        total_b += row_b[row] * across_b
    return total_a, total_b


@compiled
def _sparse_digest(
    positions: U32, old: Bits, new: Bits, first: int, cols: int, row_start: int, col_start: int, tensor: U64
) -> tuple[Any, Any]:
    total_a, total_b = np.uint64(0), np.uint64(0)
    row_a, row_b = np.uint64(0), np.uint64(0)
    row_first: Any = first - cols
    row: Any = -1
    for k in range(positions.size):
        if positions[k] >= row_first + cols:  # positions ascend: most stay in their row
            row = (np.int64(positions[k]) - first) // cols
            row_first = first + row * cols
            row_a, row_b = _key(tensor[0], row + row_start), _key(tensor[2], row + row_start)
        col = np.int64(positions[k]) - row_first + col_start
        step = _mixed(new[k]) - _mixed(old[k])
        total_a += row_a * _key(tensor[1], col) * step
        total_b += row_b * _key(tensor[3], col) * step
    return total_a, total_b
