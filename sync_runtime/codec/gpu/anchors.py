"""Full weights to anchor records on the device, batch by batch. Byte for byte what `codec.cpu.anchor` writes.

A batch is as many blocks as its scratch may hold, so that memory stays bounded whatever the size of the model.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.frame import END_RECORD, Header, pack_header, truncated_layout_hash
from sync_runtime.codec.gpu import anchor_kernels as kernels
from sync_runtime.codec.gpu import gpu_tables, plans
from sync_runtime.codec.gpu.lanes import LANES, VALUE_STEPS
from sync_runtime.codec.gpu.plans import Ints, Lanes, make_lanes, to_device
from sync_runtime.codec.limits import CODEC_ANCHOR, ENTRY_BYTES, KIND_ANCHOR, MODE_PACKED, MODE_RAW
from sync_runtime.codec.rules import ANCHOR_ONE
from sync_runtime.codec.tables import MAX_CONTEXTS
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import Bound

BATCH_ELEMENTS = 1 << 28
"""A word of scratch per element: never too little."""
SHARES, SIZE = 8, 1024
_COPY_LANES, _COPY_WORDS = 32, 64
_MASK32 = 0xFFFFFFFF


def batches_of(elements: Ints, most: int) -> Iterator[Ints]:
    """Consecutive places whose elements do not exceed the most together, at least one each."""
    ends = np.cumsum(elements)
    begin = 0
    while begin < elements.size:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield np.arange(begin, end)
        begin = end


def encode_anchor(
    blocks: BlockMap, state: Sequence[Bound], *, seq: int, batch_elements: int = BATCH_ELEMENTS
) -> Iterator[bytes]:
    """A whole anchor of all blocks, piece by piece on the host; every section of the layout must be there."""
    yield pack_header(Header(KIND_ANCHOR, CODEC_ANCHOR, truncated_layout_hash(blocks.layout.hash), 0))
    homes = [
        (int(number), at, index)
        for at, bound in enumerate(state)
        for index, number in enumerate(bound.section.numbers.tolist())
    ]
    for bound in state:
        bound.refresh()
    yield from _in_order(sorted(homes), state, seq, batch_elements)
    yield END_RECORD


def _in_order(
    homes: Sequence[tuple[int, int, int]], state: Sequence[Bound], seq: int, batch_elements: int
) -> Iterator[bytes]:
    """Runs of blocks of one section, in block order: tiles of several dtypes may alternate."""
    begin = 0
    while begin < len(homes):
        section_at = homes[begin][1]
        end = begin
        while end < len(homes) and homes[end][1] == section_at:
            end += 1
        bound = state[section_at]
        members = np.array([index for _, _, index in homes[begin:end]], np.int64)
        for batch in batches_of(bound.section.host_elements[members], batch_elements):
            yield AnchorBatch(bound, members[batch]).records(seq)
        begin = end


@dataclass(frozen=True)
class _Packed:
    """Coded lanes of a batch, and what their bodies begin with."""

    lanes: Lanes
    frequency: torch.Tensor
    """int64[K, 256]"""
    first_context: torch.Tensor
    num_contexts: torch.Tensor
    """int32[K]"""
    scratch: torch.Tensor
    scratch_first: torch.Tensor
    capacity: torch.Tensor
    states: torch.Tensor
    counts: torch.Tensor
    head_words: torch.Tensor
    """int64[K]: seq, table, states, word counts and words."""


class AnchorBatch:
    """Some blocks of a section on their way to records."""

    def __init__(self, state: Bound, members: Ints) -> None:
        self.state, self.members = state, members
        section = state.section
        self.elements: Ints = section.host_elements[members]
        self.which = to_device(members, torch.int32, section.device)

    def records(self, seq: int) -> bytes:
        """Entries and bodies on the host."""
        return self.words(seq).cpu().numpy().astype("<i4", copy=False).tobytes()

    def words(self, seq: int) -> torch.Tensor:
        """Entries and bodies on the device."""
        section, dtype, device = self.state.section, self.state.section.dtype, self.state.section.device
        elements = to_device(self.elements, torch.int64, device)
        best = 2 + (elements * dtype.width_bytes + 3) // 4
        mode = torch.full_like(best, MODE_RAW)
        parameter = torch.zeros_like(best)
        packed, rest = None, best
        if dtype.context_bits:
            packed = self._pack()
            rest = (elements * (dtype.width_bits - dtype.context_bits) + 31) // 32
            size = packed.head_words + rest
            mode = torch.where(size <= best, MODE_PACKED, mode)
            parameter = torch.where(size <= best, packed.lanes.log2.long(), parameter)
            best = torch.minimum(size, best)
        ends = (best + ENTRY_BYTES // 4).cumsum(0)
        body = ends - best
        out = torch.zeros(int(ends[-1].item()), dtype=torch.int32, device=device)
        entry = torch.stack([section.numbers[self.which.long()], mode | (parameter << 8), elements, best * 4], 1)
        for k in range(4):
            out[body - 4 + k] = entry[:, k].to(torch.int32)
        for k, word in enumerate((seq & _MASK32, seq >> 32)):
            out[body + k] = word - (1 << 32) if word >> 31 else word
        kind = mode.to(torch.int32)
        if packed is not None:
            self._write_packed(out, body, kind, packed)
            self._write_rest(out, body + best - rest, kind)
        self._write_raw(out, body, kind)
        return out

    def _pack(self) -> _Packed:
        section, dtype, where = self.state.section, self.state.section.dtype, self.state.blocks
        device, count = section.device, self.members.size
        counts = torch.zeros((count, MAX_CONTEXTS), dtype=torch.int64, device=device)
        kernels.count_anchor_contexts[(count, SHARES)](
            self.which, section.elements, where.address, where.row_stride, where.col_stride, where.cols, counts,
            WIDTH=dtype.width_bits, SHIFT=dtype.context_shift, CONTEXTS=dtype.num_contexts, FLAT=self.state.flat,
            SIZE=SIZE, BINS=max(32, dtype.num_contexts),
        )  # fmt: skip
        frequency = gpu_tables.normalised_rows(counts, ANCHOR_ONE)
        log2 = plans.log2_anchor_lanes(self.elements)
        lanes = make_lanes(log2, np.ones(count, bool), device)
        room = (self.elements + (1 << log2) - 1) >> log2
        sizes = room << log2
        made = _Packed(
            lanes=lanes,
            frequency=frequency,
            first_context=_lowest(frequency > 0),
            num_contexts=_highest(frequency > 0) - _lowest(frequency > 0) + 1,
            scratch=torch.empty(int(sizes.sum()), dtype=torch.int16, device=device),
            scratch_first=to_device(np.cumsum(sizes) - sizes, torch.int64, device),
            capacity=to_device(room, torch.int32, device),
            states=torch.empty(lanes.num_lanes, dtype=torch.int32, device=device),
            counts=torch.empty(lanes.num_lanes, dtype=torch.int32, device=device),
            head_words=torch.empty(count, dtype=torch.int64, device=device),
        )
        kernels.encode_contexts[(-(-lanes.num_lanes // LANES),)](
            self.which, lanes.block, lanes.first, lanes.log2, section.elements, where.address, where.row_stride,
            where.col_stride, where.cols, gpu_tables.class_entries(frequency), made.scratch, made.scratch_first,
            made.capacity, made.states, made.counts, lanes.num_lanes, WIDTH=dtype.width_bits,
            SHIFT=dtype.context_shift, CONTEXTS=dtype.num_contexts, FLAT=self.state.flat, LANES=LANES,
            STEPS=VALUE_STEPS, num_warps=1,
        )  # fmt: skip
        words = torch.zeros(count, dtype=torch.int64, device=device)
        words.index_add_(0, lanes.block.long(), made.counts.long())
        number = 1 << lanes.log2.long()
        head = 3 + (made.num_contexts.long() + 1) // 2 + number + (number + 1) // 2 + (words + 1) // 2
        made.head_words.copy_(head)
        return made

    def _write_packed(self, out: torch.Tensor, body: torch.Tensor, mode: torch.Tensor, packed: _Packed) -> None:
        kernels.write_packed[(self.members.size,)](
            out, body, mode, packed.first_context, packed.num_contexts, packed.frequency, packed.lanes.log2,
            packed.lanes.first, packed.states, packed.counts, packed.scratch, packed.scratch_first, packed.capacity,
            LANES=_COPY_LANES, WORDS=_COPY_WORDS,
        )  # fmt: skip

    def _write_rest(self, out: torch.Tensor, rest: torch.Tensor, mode: torch.Tensor) -> None:
        section, dtype, where = self.state.section, self.state.section.dtype, self.state.blocks
        kernels.write_rest[(self.members.size, SHARES)](
            self.which, out, rest, mode, section.elements, where.address, where.row_stride, where.col_stride,
            where.cols, WIDTH=dtype.width_bits, SHIFT=dtype.context_shift, CONTEXT_BITS=dtype.context_bits,
            REST=dtype.width_bits - dtype.context_bits,
            FLAT=self.state.flat, SIZE=SIZE,
        )  # fmt: skip

    def _write_raw(self, out: torch.Tensor, body: torch.Tensor, mode: torch.Tensor) -> None:
        section, where = self.state.section, self.state.blocks
        kernels.write_raw[(self.members.size, SHARES)](
            self.which, out, body, mode, section.elements, where.address, where.row_stride, where.col_stride,
            where.cols, WIDTH=section.dtype.width_bits, FLAT=self.state.flat, SIZE=SIZE,
        )  # fmt: skip


def _lowest(present: torch.Tensor) -> torch.Tensor:
    """int32[K]: the first column that is set; argmax promises no order."""
    return (MAX_CONTEXTS - _highest(present.flip(1)) - 1).to(torch.int32)


def _highest(present: torch.Tensor) -> torch.Tensor:
    """int32[K]: the last column that is set."""
    columns = torch.arange(MAX_CONTEXTS, device=present.device)
    return (present.to(torch.int64) * columns).amax(1).to(torch.int32)
