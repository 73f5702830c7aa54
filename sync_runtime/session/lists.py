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
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.sparse import Bits

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
            positions, bits = self._gather(tensor)
            size = _record_bytes(positions.size, self._width(tensor))
            record = np.zeros(size, np.uint8)
            record[: _HEAD.size] = np.frombuffer(_HEAD.pack(tensor, 0, positions.size), np.uint8)
            middle = _HEAD.size + positions.size * _POSITION_BYTES
            record[_HEAD.size : middle] = positions.astype("<u8").view(np.uint8)
            payload = bits.astype(bits.dtype.newbyteorder("<")).view(np.uint8)
            record[middle : middle + payload.size] = payload
            yield record.data

    def _count(self, block: Block, staged: StagedBlock) -> None:
        starts = _piece_starts(block)
        for at, piece in enumerate(block.pieces):
            first, last = np.searchsorted(staged.positions, starts[at : at + 2])
            if last > first:
                self._parts.setdefault(piece.tensor, []).append((block.number, at))
                self._counts[piece.tensor] = self._counts.get(piece.tensor, 0) + int(last - first)

    def _gather(self, tensor: int) -> tuple[Positions, Bits]:
        cols = self._blocks.layout.tensors[tensor].cols
        positions, bits = [], []
        for number, at in self._parts[tensor]:
            block, staged = self._blocks.block(number), self._staged[number]
            starts, piece = _piece_starts(block), block.pieces[at]
            first, last = np.searchsorted(staged.positions, starts[at : at + 2])
            inside = staged.positions[first:last].astype(np.uint64) - np.uint64(starts[at])
            rows, across = np.divmod(inside, np.uint64(piece.num_cols))
            positions.append(
                (rows + np.uint64(piece.row_start)) * np.uint64(cols) + across + np.uint64(piece.col_start)
            )
            bits.append(staged.bits[first:last])
        where, what = np.concatenate(positions), np.concatenate(bits)
        if where.size > 1 and not bool(np.all(where[1:] > where[:-1])):  # tiles beside each other interleave
            order = np.argsort(where, kind="stable")
            where, what = where[order], what[order]
        return where, what

    def _width(self, tensor: int) -> int:
        return self._blocks.layout.tensors[tensor].dtype.width_bits // 8


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
