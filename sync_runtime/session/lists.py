"""A staged version as the stream that a library takes: per tensor, positions and absolute bits (PROTOCOL.md, 6).

Pure but for the arrays it is handed. Knows neither versions nor sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from sync_runtime.delta.apply import StagedBlock
from sync_runtime.tensors.bits import BitTensor, gather
from sync_runtime.tensors.blocks import Block, BlockMap, Piece
from sync_runtime.tensors.sparse import U32, Bits, within

_HEAD = struct.Struct("<IIQ")
_POSITION_BYTES = 8
Positions = npt.NDArray[np.uint64]


class ListStream:
    """The records of a redo list, tensor by tensor."""

    def __init__(self, blocks: BlockMap, staged: Mapping[int, StagedBlock]) -> None:
        self._blocks, self._staged = blocks, staged
        self._parts: dict[int, list[tuple[int, int]]] = {}
        """Per tensor: (block, piece) pairs that have entries."""
        self._counts: dict[int, int] = {}
        for number in sorted(staged):
            self._count(blocks.block(number), staged[number])

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole stream."""
        return sum(_record_bytes(count, self._width(tensor)) for tensor, count in self._counts.items())

    def chunks(self) -> Iterator[memoryview]:
        """The records; tensors ascend."""
        for tensor in sorted(self._counts):
            count, width = self._counts[tensor], self._width(tensor)
            record = np.empty(_record_bytes(count, width), np.uint8)
            record[: _HEAD.size] = np.frombuffer(_HEAD.pack(tensor, 0, count), np.uint8)
            middle = _HEAD.size + count * _POSITION_BYTES
            end = middle + count * width
            record[end:] = 0
            self._fill(tensor, record[_HEAD.size : middle].view("<u8"), record[middle:end].view(f"<u{width}"))
            yield record.data

    def _count(self, block: Block, staged: StagedBlock) -> None:
        starts = _piece_starts(block)
        for at, piece in enumerate(block.pieces):
            inside = within(staged.positions, starts[at], piece.num_elements)
            count = inside.stop - inside.start
            if count:
                self._parts.setdefault(piece.tensor, []).append((block.number, at))
                self._counts[piece.tensor] = self._counts.get(piece.tensor, 0) + count

    def _fill(self, tensor: int, where: Positions, what: Bits) -> None:
        """A tensor's entries, into the memory of its record."""
        cols, done, tiled = self._blocks.layout.tensors[tensor].cols, 0, False
        for number, at in self._parts[tensor]:
            block, staged = self._blocks.block(number), self._staged[number]
            starts, piece = _piece_starts(block), block.pieces[at]
            inside = within(staged.positions, starts[at], piece.num_elements)
            part = slice(done, done + inside.stop - inside.start)
            _to_tensor(staged.positions[inside], starts[at], piece, cols, where[part])
            what[part] = staged.bits[inside]
            done, tiled = part.stop, tiled or piece.num_cols != cols
        if tiled and not bool(np.all(where[1:] > where[:-1])):  # tiles beside each other interleave
            order = np.argsort(where, kind="stable")
            where[:], what[:] = where[order], what[order]

    def _width(self, tensor: int) -> int:
        return self._blocks.layout.tensors[tensor].dtype.width_bits // 8


def _to_tensor(positions: U32, start: int, piece: Piece, cols: int, out: Positions) -> None:
    """Positions in a block's index, as positions in the tensor."""
    if piece.num_cols == cols:  # whole rows: all of them move alike, down or up
        moved = (piece.row_start * cols - start) % (1 << 64)
        np.add(positions, np.uint64(moved), out=out, dtype=np.uint64)
        return
    rows, across = np.divmod(positions.astype(np.uint64) - np.uint64(start), np.uint64(piece.num_cols))
    np.add((rows + np.uint64(piece.row_start)) * np.uint64(cols), across + np.uint64(piece.col_start), out=out)


def _piece_starts(block: Block) -> list[int]:
    """Where each piece begins in the block's index, and the end."""
    starts = [0]
    for piece in block.pieces:
        starts.append(starts[-1] + piece.num_elements)
    return starts


def _record_bytes(count: int, width_bytes: int) -> int:
    size = _HEAD.size + count * (_POSITION_BYTES + width_bytes)
    return -(-size // 8) * 8


def whole_blocks(blocks: BlockMap, state: Mapping[int, BitTensor], numbers: Iterable[int]) -> dict[int, StagedBlock]:
    """Every element of some blocks as a redo list: what a repair sends."""
    found = {}
    for number in numbers:
        block = blocks.block(number)
        found[number] = StagedBlock(np.arange(block.num_elements, dtype=np.uint32), gather(block, state))
    return found
