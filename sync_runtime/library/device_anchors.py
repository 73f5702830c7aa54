"""Anchor objects between library and sidecar: blocks as they are (mode raw); the sidecar packs and unpacks.

The library needs no entropy coder for whole weights this way. Bytes from the sidecar are checked before they are used:
a block's size follows from the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from sync_runtime.codec.frame import END_RECORD, Header, pack_entry, pack_header, parse_header, truncated_layout_hash
from sync_runtime.codec.limits import CODEC_ANCHOR, END_BLOCK, ENTRY_BYTES, HEADER_BYTES, KIND_ANCHOR, MODE_RAW
from sync_runtime.errors import FormatError, TruncatedError
from sync_runtime.library.device_state import element_matrix
from sync_runtime.tensors.blocks import Block, BlockMap, Piece
from sync_runtime.tensors.places import WHOLE, Places, held_origin, held_spec

_SEQ = struct.Struct("<Q")
_ENTRY = struct.Struct("<IBBHII")


def block_bits(
    blocks: BlockMap, state: Mapping[str, torch.Tensor], block: Block, places: Places = WHOLE
) -> torch.Tensor:
    """A block's raw elements in index order, one after the other, on their device."""
    parts = [_rectangle(blocks, state, piece, places).reshape(-1) for piece in block.pieces]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def write_block(
    blocks: BlockMap, state: Mapping[str, torch.Tensor], block: Block, bits: torch.Tensor, places: Places = WHOLE
) -> None:
    """Writes a block's raw elements, in index order, into the tensors."""
    first = 0
    for piece in block.pieces:
        part = bits[first : first + piece.num_elements]
        _rectangle(blocks, state, piece, places).copy_(part.view(piece.num_rows, piece.num_cols))
        first += piece.num_elements


def anchor_chunks(
    blocks: BlockMap, state: Mapping[str, torch.Tensor], *, seq: int, numbers: list[int], places: Places = WHOLE
) -> Iterator[memoryview]:
    """An anchor object with these blocks, piece by piece."""
    yield memoryview(pack_header(Header(KIND_ANCHOR, CODEC_ANCHOR, truncated_layout_hash(blocks.layout.hash), 0)))
    for number in numbers:
        block = blocks.block(number)
        bits = block_bits(blocks, state, block, places).contiguous().cpu()
        body_bytes = _body_bytes(block)
        entry = pack_entry(block=number, mode=MODE_RAW, parameter=0, count=block.num_elements, body_bytes=body_bytes)
        yield memoryview(entry + _SEQ.pack(seq))
        raw = bits.view(torch.uint8).numpy()
        yield raw.data
        padding = body_bytes - _SEQ.size - raw.size
        if padding:
            yield memoryview(bytes(padding))
    yield memoryview(END_RECORD)


class AnchorReader:
    """Reads an anchor object as it arrives; holds one block at a time."""

    def __init__(self, blocks: BlockMap, seq: int, take: Callable[[Block, torch.Tensor], None]) -> None:
        self._blocks, self._seq, self._take = blocks, seq, take
        self._held = bytearray()
        self._wanted = HEADER_BYTES
        self._next: Callable[[memoryview], None] = self._header
        self._block: Block | None = None
        self._last = -1
        self._ended = False
        self.num_blocks = 0

    def feed(self, data: memoryview) -> None:
        """The next bytes."""
        self._held += data
        at = 0
        while not self._ended and len(self._held) - at >= self._wanted:
            end = at + self._wanted
            with memoryview(self._held) as view, view[at:end] as part:
                self._next(part)
            at = end
        del self._held[:at]
        if self._ended and self._held:
            raise FormatError("bytes follow the end record of an anchor")

    def finish(self) -> None:
        """The stream has ended."""
        if not self._ended:
            raise TruncatedError("the anchor ends without its end record")

    def _header(self, part: memoryview) -> None:
        header = parse_header(part)
        if header.kind != KIND_ANCHOR:
            raise FormatError("this object is a delta, not an anchor")
        if header.layout_hash != truncated_layout_hash(self._blocks.layout.hash):
            raise FormatError("the object was written under another layout")
        self._next, self._wanted = self._entry, ENTRY_BYTES

    def _entry(self, part: memoryview) -> None:
        number, mode, parameter, reserved, count, body_bytes = _ENTRY.unpack(part)
        if number == END_BLOCK:
            if part != END_RECORD:
                raise FormatError("the end record is not zero")
            self._ended = True
            return
        block = self._blocks.block(number)
        if number <= self._last or mode != MODE_RAW or parameter or reserved:
            raise FormatError(f"block {number} of an anchor is out of order, or not raw: the sidecar unpacks anchors")
        if count != block.num_elements or body_bytes != _body_bytes(block):
            raise FormatError(f"block {number} of an anchor has another size than in the layout")
        self._block, self._last = block, number
        self._next, self._wanted = self._body, body_bytes

    def _body(self, part: memoryview) -> None:
        block = self._block
        if block is None or _SEQ.unpack_from(part)[0] != self._seq:
            raise FormatError(f"a block of the anchor is not of version {self._seq}: the sidecar brings blocks level")
        dtype = block.dtype
        bits = np.frombuffer(part, dtype.bits_dtype, block.num_elements, _SEQ.size).copy()
        signed = bits.view(f"i{dtype.width_bytes}") if dtype.width_bytes > 1 else bits
        self._take(block, torch.from_numpy(signed))
        self.num_blocks += 1
        self._next, self._wanted = self._entry, ENTRY_BYTES


def _rectangle(blocks: BlockMap, state: Mapping[str, torch.Tensor], piece: Piece, places: Places) -> torch.Tensor:
    spec = blocks.layout.tensors[piece.tensor]
    first_row, first_col = held_origin(spec, places)
    row, col = piece.row_start - first_row, piece.col_start - first_col
    matrix = element_matrix(state[spec.name], held_spec(spec, places))
    return matrix[row : row + piece.num_rows, col : col + piece.num_cols]


def _body_bytes(block: Block) -> int:
    return _SEQ.size + -(-block.num_elements * block.dtype.width_bytes // 4) * 4
