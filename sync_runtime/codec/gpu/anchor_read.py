"""Anchor records from anywhere, decoded on the device batch by batch: checked, then handed out, then written.

The host checks what sizes can tell before a kernel runs. A batch is handed out only when all of it is sound; live
tensors are written by `DecodedAnchor.write` alone.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.codec.frame import parse_header, truncated_layout_hash
from sync_runtime.codec.gpu import anchor_kernels as kernels
from sync_runtime.codec.gpu import plans
from sync_runtime.codec.gpu.anchors import BATCH_ELEMENTS, SHARES, SIZE, batches_of
from sync_runtime.codec.gpu.decode import follow_entries
from sync_runtime.codec.gpu.lanes import LANES
from sync_runtime.codec.gpu.plans import Ints, make_lanes, to_device
from sync_runtime.codec.limits import HEADER_BYTES, KIND_ANCHOR, MAX_LANES, MODE_PACKED, MODE_RAW
from sync_runtime.codec.rules import ANCHOR_ONE
from sync_runtime.codec.tables import MAX_CONTEXTS
from sync_runtime.errors import FormatError, LimitError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import BITS_OF_WIDTH, Bound

_SLOT_SIZE = 1024
_FAULTS = {
    1: "the frequencies of its table do not sum to one, or have empty ends",
    2: "its sections do not fill its body",
    4: "a lane does not end as it must",
    8: "padding is not zero",
}


@dataclass(frozen=True)
class _Rows:
    """What the entries of some blocks of one section say; numpy [K]."""

    members: Ints
    """Places of the blocks in their section."""
    mode: Ints
    parameter: Ints
    body: Ints
    """In words of the object."""
    body_words: Ints

    def some(self, at: Ints) -> _Rows:
        """Some of them."""
        return _Rows(self.members[at], self.mode[at], self.parameter[at], self.body[at], self.body_words[at])


@dataclass(frozen=True)
class DecodedAnchor:
    """Blocks of one section, decoded and checked."""

    bound: Bound
    numbers: Ints
    """Block numbers of the layout."""
    seqs: NDArray[np.uint64]
    """Per block the version that it is of."""
    members: Ints
    buffer: torch.Tensor
    buffer_first: Ints

    def bits(self, at: int) -> torch.Tensor:
        """The raw elements of the at-th block, in index order."""
        begin = int(self.buffer_first[at])
        return self.buffer[begin : begin + int(self.bound.section.host_elements[self.members[at]])]

    def write(self) -> None:
        """Writes the blocks into the live tensors: joining, or repairing some blocks."""
        section, where = self.bound.section, self.bound.pieces
        entry = np.full(section.num_blocks, -1, np.int64)
        entry[self.members] = np.arange(self.members.size)
        owner = entry[section.piece_block.cpu().numpy()]
        pieces = np.flatnonzero(owner >= 0)
        device = section.device
        kernels.store_pieces[(pieces.size, SHARES)](
            to_device(pieces, torch.int32, device), to_device(owner[pieces], torch.int32, device), section.piece_first,
            section.piece_shape, where.address, where.row_stride, where.col_stride, self.buffer,
            to_device(self.buffer_first, torch.int64, device), WIDTH=section.dtype.width_bits, SIZE=SIZE,
        )  # fmt: skip


def decode_anchor(
    blocks: BlockMap, state: Sequence[Bound], data: memoryview, *, batch_elements: int = BATCH_ELEMENTS
) -> Iterator[DecodedAnchor]:
    """The blocks of an anchor, batch by batch, section by section; raises FormatError or LimitError."""
    if len(data) % 4:
        raise FormatError("an object is a multiple of four bytes")
    header = parse_header(data)
    if header.kind != KIND_ANCHOR:
        raise FormatError("this object is a delta, not an anchor")
    if header.layout_hash != truncated_layout_hash(blocks.layout.hash):
        raise FormatError("the object was written under another layout")
    words = np.frombuffer(data, "<u4")
    found = _rows(blocks, state, words, follow_entries(data, HEADER_BYTES // 4, blocks.num_blocks))
    for bound, rows in zip(state, found, strict=True):
        _check(bound, rows, words)
    for bound, rows in zip(state, found, strict=True):
        for at in batches_of(bound.section.host_elements[rows.members], batch_elements):
            yield _Batch(bound, rows.some(at), words).decoded()


def _rows(blocks: BlockMap, state: Sequence[Bound], words: NDArray[np.uint32], starts: Ints) -> list[_Rows]:
    block, kinds, count, body_bytes = (words[starts + k].astype(np.int64) for k in range(4))
    if (np.diff(block) <= 0).any() or (block.size and block[-1] >= blocks.num_blocks):
        raise FormatError("block numbers do not ascend, or a block does not exist")
    if ((kinds >> 16 != 0) | (body_bytes % 4 != 0) | (count == 0)).any():
        raise FormatError("the entry of a block is malformed")
    if not np.isin(kinds & 0xFF, (MODE_PACKED, MODE_RAW)).all():
        raise FormatError("a block has a mode that anchors do not use")
    home = np.full((blocks.num_blocks, 2), -1, np.int64)
    for at, bound in enumerate(state):
        numbers = bound.section.numbers.cpu().numpy()
        home[numbers] = np.stack([np.full(numbers.size, at), np.arange(numbers.size)], 1)
    if (home[block] < 0).any():
        raise FormatError("the object names a block that is not held here")
    found = []
    for at, bound in enumerate(state):
        here = home[block][:, 0] == at
        members = home[block[here], 1]
        if (count[here] != bound.section.host_elements[members]).any():
            raise FormatError("a block has another number of elements than the layout says")
        fields = (kinds & 0xFF, (kinds >> 8) & 0xFF, starts + 4, body_bytes // 4)
        found.append(_Rows(members, *(field[here] for field in fields)))
    return found


def _check(bound: Bound, rows: _Rows, words: NDArray[np.uint32]) -> None:
    """Refuses what sizes alone show to be wrong; afterwards table, states, counts and rest lie inside the body."""
    dtype, elements = bound.section.dtype, bound.section.host_elements[rows.members]
    raw, packed = rows.mode == MODE_RAW, rows.mode == MODE_PACKED
    raw_words = 2 + (elements * dtype.width_bytes + 3) // 4
    if (rows.body_words > raw_words).any():
        raise LimitError("a block has more bytes than it would have raw")
    if (raw & ((rows.body_words != raw_words) | (rows.parameter != 0))).any():
        raise FormatError("a raw block has a wrong size or a parameter")
    if (packed & (rows.parameter != plans.log2_anchor_lanes(elements))).any() or (
        packed.any() and not dtype.context_bits
    ):
        raise FormatError("a packed block has the wrong dtype or number of lanes")
    if (packed & (rows.body_words < 3)).any():
        raise FormatError("a packed block ends inside its table")
    first, used = _contexts(rows, words)
    lanes = 1 << rows.parameter
    rest_bits = elements * (dtype.width_bits - dtype.context_bits)
    least = 3 + (used + 1) // 2 + lanes + (lanes + 1) // 2 + (rest_bits + 31) // 32
    if (packed & ((used == 0) | (first + used > dtype.num_contexts) | (rows.body_words < least))).any():
        raise FormatError("a packed block has more contexts than its dtype, or ends inside its sections")
    tail = np.where(packed, rest_bits % 32, elements * dtype.width_bits % 32)
    last = words[np.maximum(rows.body + rows.body_words - 1, 0)].astype(np.int64)
    if ((tail > 0) & (last >> tail != 0)).any():
        raise FormatError("the padding of a block is not zero")


def _contexts(rows: _Rows, words: NDArray[np.uint32]) -> tuple[Ints, Ints]:
    """(first context, number of contexts) of packed blocks; anything for others."""
    head = words[np.where(rows.mode == MODE_PACKED, rows.body + 2, 0)].astype(np.int64)
    return head & 0xFFFF, head >> 16


class _Batch:
    """Some blocks of one section on their way from records."""

    def __init__(self, bound: Bound, rows: _Rows, words: NDArray[np.uint32]) -> None:
        self.bound, self.rows = bound, rows
        section, device = bound.section, bound.section.device
        begin, end = int(rows.body[0]), int(rows.body[-1] + rows.body_words[-1])
        part = np.ascontiguousarray(words[begin:end]).view(np.int32)
        self.stream = torch.from_numpy(part.copy()).to(device)
        low, high = (words[rows.body + k].astype(np.uint64) for k in range(2))
        self.seqs: NDArray[np.uint64] = low | (high << np.uint64(32))
        self.elements: Ints = section.host_elements[rows.members]
        sizes = -(-self.elements // 16) * 16
        self.buffer_first: Ints = np.cumsum(sizes) - sizes
        self.buffer = torch.empty(
            int(sizes.sum()), dtype=BITS_OF_WIDTH[section.dtype.width_bits], device=device
        )  # fmt: skip
        self.which = to_device(rows.members, torch.int32, device)
        self.mode = to_device(rows.mode, torch.int32, device)
        self.body = to_device(rows.body - begin, torch.int64, device)
        self.first = to_device(self.buffer_first, torch.int64, device)
        self.status = torch.zeros(rows.members.size, dtype=torch.int32, device=device)
        self.head = _contexts(rows, words)

    def decoded(self) -> DecodedAnchor:
        """Decodes and checks."""
        section, rows = self.bound.section, self.rows
        kernels.read_raw[(rows.members.size, SHARES)](
            self.stream, self.which, self.body, self.mode, section.elements, self.buffer, self.first,
            WIDTH=section.dtype.width_bits, SIZE=SIZE,
        )  # fmt: skip
        if (rows.mode == MODE_PACKED).any():
            self._unpack()
        faults = self.status.cpu().numpy()
        numbers = section.numbers.cpu().numpy()[rows.members]
        if faults.any():
            at = int(np.flatnonzero(faults)[0])
            what = next(text for bit, text in _FAULTS.items() if int(faults[at]) & bit)
            raise FormatError(f"block {numbers[at]} is malformed: {what}")
        return DecodedAnchor(self.bound, numbers, self.seqs, rows.members, self.buffer, self.buffer_first)

    def _unpack(self) -> None:
        section, rows, dtype, device = self.bound.section, self.rows, self.bound.section.dtype, self.stream.device
        count = rows.members.size
        lanes = make_lanes(rows.parameter, rows.mode == MODE_PACKED, device)
        rest_words = (self.elements * (dtype.width_bits - dtype.context_bits) + 31) // 32
        table = torch.empty((count, MAX_CONTEXTS), dtype=torch.int32, device=device)
        slots = torch.empty((count, ANCHOR_ONE), dtype=torch.uint8, device=device)
        start, state, left = torch.empty((3, lanes.num_lanes), dtype=torch.int32, device=device)
        word_place, rest_place = torch.zeros((2, count), dtype=torch.int64, device=device)
        kernels.open_packed[(count,)](
            self.stream, self.body, to_device(rows.body_words, torch.int64, device),
            to_device(rest_words, torch.int64, device), self.mode, lanes.log2, lanes.first,
            to_device(self.head[0], torch.int32, device), to_device(self.head[1], torch.int32, device), table, start,
            state, left, word_place, rest_place, self.status, LANES=MAX_LANES,
        )  # fmt: skip
        kernels.fill_slots[(count, ANCHOR_ONE // _SLOT_SIZE)](self.mode, table, slots, SIZE=_SLOT_SIZE)
        kernels.decode_contexts[(-(-lanes.num_lanes // LANES),)](
            self.stream, self.which, lanes.block, lanes.first, lanes.log2, section.elements, table, slots, start,
            state, left, word_place, rest_place, self.buffer, self.first, self.status, lanes.num_lanes,
            WIDTH=dtype.width_bits, SHIFT=dtype.context_shift, CONTEXT_BITS=dtype.context_bits,
            REST=dtype.width_bits - dtype.context_bits, LANES=LANES,
            num_warps=1,
        )  # fmt: skip
