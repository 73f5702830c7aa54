"""Digests with numpy: the readable reference for the compiled loops and the GPU kernels (FORMAT.md, section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sync_runtime.tensors.blocks import Block, Piece
from sync_runtime.tensors.digest import ZERO, Digest, TensorKeys, tensor_keys, total
from sync_runtime.tensors.layout import Layout
from sync_runtime.tensors.sparse import U32, Bits, within

U64 = NDArray[np.uint64]
GOLDEN = 0x9E3779B97F4A7C15
ELEMENT_FACTOR, ELEMENT_OFFSET = 0x9E3779B1, 0x7F4A7C15


def keys(key: int, first: int, count: int) -> U64:
    """Odd keys of `count` rows or columns from `first` on."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z | np.uint64(1)


def mixed(bits: Bits) -> U64:
    """g: the element's bits, spread over 32."""
    y = bits.astype(np.uint32) * np.uint32(ELEMENT_FACTOR) + np.uint32(ELEMENT_OFFSET)
    return (y ^ (y >> np.uint32(15))).astype(np.uint64)


def rectangle_digest(matrix: Bits, piece: Piece, tensor: TensorKeys) -> Digest:
    """The digest of a piece's elements, given as a matrix of its shape."""
    spread = mixed(matrix)
    words = []
    for row_key, col_key in ((tensor.row_a, tensor.col_a), (tensor.row_b, tensor.col_b)):
        across = (spread * keys(col_key, piece.col_start, piece.num_cols)).sum(axis=1, dtype=np.uint64)
        words.append(int((across * keys(row_key, piece.row_start, piece.num_rows)).sum(dtype=np.uint64)))
    return Digest(*words)


def sparse_digest(positions: U32, old: Bits, new: Bits, block: Block, layout: Layout) -> dict[int, Digest]:
    """What changes at some positions of a block add to the digests of its tensors: O(changed)."""
    step = mixed(new) - mixed(old)
    found, first = {}, 0
    for piece in block.pieces:
        inside = within(positions, first, piece.num_elements)
        row, col = np.divmod(positions[inside].astype(np.int64) - first, max(1, piece.num_cols))
        found[piece.tensor] = _sum_at(row + piece.row_start, col + piece.col_start, step[inside], layout, piece.tensor)
        first += piece.num_elements
    return found


def _sum_at(row: NDArray[np.int64], col: NDArray[np.int64], step: U64, layout: Layout, tensor: int) -> Digest:
    if not step.size:
        return ZERO
    spec = tensor_keys(layout.tensors[tensor])
    words = []
    for row_key, col_key in ((spec.row_a, spec.col_a), (spec.row_b, spec.col_b)):
        factors = _keys_at(row_key, row) * _keys_at(col_key, col)
        words.append(int((factors * step).sum(dtype=np.uint64)))
    return Digest(*words)


def _keys_at(key: int, numbers: NDArray[np.int64]) -> U64:
    first = int(numbers.min())
    return keys(key, first, int(numbers.max()) - first + 1)[numbers - first]


def block_digest(block: Block, bits: Bits, layout: Layout) -> dict[int, Digest]:
    """The digest of every tensor's part in a block, from its elements in index order."""
    found, first = {}, 0
    for piece in block.pieces:
        part = bits[first : first + piece.num_elements].reshape(piece.num_rows, piece.num_cols)
        found[piece.tensor] = rectangle_digest(part, piece, tensor_keys(layout.tensors[piece.tensor]))
        first += piece.num_elements
    return found


def model_digest(tensors: dict[int, Digest]) -> Digest:
    """The sum over tensors."""
    return total(tensors.values())
