"""Decodes one section of an object on the device: workspaces and launches. Trusts sizes: `decode` has checked them."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from sync_runtime.codec.gpu import fast_kernels, gpu_tables, plans, record_kernels, tight_kernels, value_kernels
from sync_runtime.codec.gpu.lanes import LANES, LIST_SIZE
from sync_runtime.codec.gpu.plans import Lanes, make_lanes, to_device
from sync_runtime.codec.limits import MAX_LANES, MODE_DENSE, MODE_TIGHT
from sync_runtime.codec.tables import Tables
from sync_runtime.errors import FormatError
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList, launch_count, launch_expand, launch_fill, new_list
from sync_runtime.tensors.device.sections import UNIT_ELEMENTS, UNIT_WORDS

if TYPE_CHECKING:
    from sync_runtime.codec.gpu.decode import Records

READ_PARTS = 6
"""Every block is decoded in so many parts: its mask stays small while all lanes of all blocks are at work."""
DECODE_STEPS = 16
_DENSE_WORDS = 32
_UNTRANSPOSE_BITS = 8192
_FAULTS = {
    1: "a frame's head disagrees with the symbols before it",
    2: "a position lies outside the block",
    4: "a run of skips is not in canonical form",
    8: "another number of changes, escapes or raw entries came than announced",
    16: "an escape byte is not canonical",
    32: "padding is not zero",
    64: "a lane does not end as it must",
    128: "the lanes' words do not fit the body",
    256: "a class occurs that has no probability",
    512: "a step occurs that does not exist",
    1024: "signs and extra bits do not fill the body, or padding is not zero",
}


@dataclass(frozen=True)
class _Part:
    """One part of every block."""

    number: int
    units: torch.Tensor
    """int32: the units of this part, ascending."""
    word_base: torch.Tensor
    """int64[B]: where the block's first mask word would be."""


class SectionRead:
    """One section's side of a decoder: its base, its list, its workspaces."""

    def __init__(self, base: Bound, capacity: int, *, parts: int = READ_PARTS) -> None:
        self.base, self.section = base, base.section
        section, device = self.section, self.section.device
        self.changes: ChangeList = new_list(section, capacity)
        self.status = torch.zeros(section.num_blocks, dtype=torch.int32, device=device)
        self._cut(parts)
        self._mask = torch.empty(0, dtype=torch.int32, device=device)
        self._counts = torch.empty(section.num_units, dtype=torch.int32, device=device)
        self._offsets = torch.zeros(section.num_units, dtype=torch.int64, device=device)
        self._found = torch.zeros(section.num_blocks, dtype=torch.int64, device=device)
        self._block_int64 = torch.zeros((3, section.num_blocks), dtype=torch.int64, device=device)
        self._fits = torch.zeros(section.num_blocks, dtype=torch.int32, device=device)

    def _cut(self, parts: int) -> None:
        """Every block in parts of whole units; word_base lets unit numbers address the part's mask."""
        first, device = self.section.host_unit_first, self.section.device
        units = np.diff(first)
        share = -(-units // parts)
        before = (np.cumsum(share) - share) * UNIT_WORDS
        number = np.arange(self.section.num_units) - np.repeat(first[:-1], units)
        part_of = number // np.repeat(share, units)
        self._part_units = to_device(share, torch.int32, device)
        self._mask_words = int(share.sum()) * UNIT_WORDS
        self._parts = [
            _Part(
                number=part,
                units=to_device(np.flatnonzero(part_of == part), torch.int32, device),
                word_base=to_device(before - part * share * UNIT_WORDS, torch.int64, device),
            )
            for part in range(int(part_of.max()) + 1)
        ]

    def prepare(self, records: Records, stream: torch.Tensor, tables: Tables, num_groups: int) -> None:
        """Uploads what the entries say; makes room for the list."""
        device, section = self.section.device, self.section
        self.stream, self.records = stream, records
        first = np.concatenate([[0], np.cumsum(records.changed)])
        if int(first[-1]) > self.changes.capacity:
            self.changes.grow(int(first[-1]))
        self.changes.first.copy_(to_device(first, torch.int64, device))
        self.mode = to_device(records.mode, torch.int32, device)
        self.parameter = to_device(records.parameter, torch.int32, device)
        self.body = to_device(records.body, torch.int64, device)
        self.body_words = to_device(records.body_words, torch.int64, device)
        masked = np.isin(records.mode, (MODE_TIGHT, MODE_DENSE))
        self._has_mask = bool(masked.any())
        self._masked_elements = to_device(np.where(masked, section.host_elements, 0), torch.int32, device)
        self._prepare_tight(tables, num_groups)
        if self._has_mask and self._mask.numel() < self._mask_words:
            self._mask = torch.empty(self._mask_words, dtype=torch.int32, device=device)

    def _prepare_tight(self, tables: Tables, num_groups: int) -> None:
        records, device = self.records, self.section.device
        tight = records.mode == MODE_TIGHT
        log2 = plans.log2_position_lanes(self.section.host_elements, records.changed)
        self.places: Lanes = make_lanes(log2, tight, device)
        self.values: Lanes = make_lanes(plans.log2_value_lanes(records.changed), tight, device)
        self._by_lanes = {
            int(size): to_device(np.flatnonzero(tight & (log2 == size)), torch.int32, device)
            for size in np.unique(log2[tight])
        }
        self._lane_state = torch.empty(self.places.num_lanes, dtype=torch.int32, device=device)
        self._lane_left = torch.empty(self.places.num_lanes, dtype=torch.int32, device=device)
        self._lane_start = torch.empty(self.places.num_lanes, dtype=torch.int32, device=device)
        self._value_start = torch.empty(self.values.num_lanes, dtype=torch.int32, device=device)
        if self.places.num_lanes:
            made = gpu_tables.from_tables(tables, num_groups, self.section.dtype.code, device)
            self._position = made.position
            self._starts = gpu_tables.class_starts(made.frequency)

    def launch(self) -> None:
        """Enqueues the whole decoding without waiting."""
        section, changes, base = self.section, self.changes, self.base
        width = section.dtype.width_bits
        base.refresh()
        self.status.zero_()
        if self.places.num_lanes:
            self._open_tight()
        if self._has_mask:
            self._found.zero_()
            for part in self._parts:
                self._launch_part(part)
            wrong = (self._found != torch.diff(changes.first)) & (self._masked_elements > 0)
            self.status |= wrong.to(torch.int32) * 8
            launch_fill(changes, base, None, self._masked_elements, range(section.num_blocks))
        if self.places.num_lanes:
            self._launch_values()
        if self._has_mask:
            record_kernels.dense_finish[(section.num_blocks,)](
                self.stream, self.body, self.mode, section.elements, changes.first, changes.where, changes.value,
                WIDTH=width, SIZE=LIST_SIZE,
            )  # fmt: skip
        fast_kernels.fast_decode[(section.num_blocks,)](
            self.stream, self.body, self.mode, self.parameter, section.elements, changes.first, changes.where,
            changes.value, self.status, base.blocks.address, base.blocks.row_stride, base.blocks.col_stride,
            base.blocks.cols, WIDTH=width, FLAT=base.flat, SIZE=LIST_SIZE,
        )  # fmt: skip

    def check(self) -> None:
        """Raises FormatError where a kernel found a fault."""
        if int(self.status.max().item()) == 0:
            return
        words = self.status.cpu().numpy()
        at = int(np.flatnonzero(words)[0])
        what = next(text for bit, text in _FAULTS.items() if int(words[at]) & bit)
        raise FormatError(f"block {self.section.blocks[at].number} is malformed: {what}")

    def _open_tight(self) -> None:
        place_words, value_words, planes = self._block_int64
        tight_kernels.open_bodies[(self.section.num_blocks,)](
            self.stream, self.body, self.body_words, self.mode, self.places.log2, self.values.log2, self.places.first,
            self.values.first, self.changes.first, self._lane_start, self._lane_state,
            self._lane_left, self._value_start, place_words, value_words, planes, self._fits, self.status,
            LANES=MAX_LANES,
        )  # fmt: skip

    def _launch_part(self, part: _Part) -> None:
        section, base, dtype, lanes = self.section, self.base, self.section.dtype, self.places
        record_kernels.dense_mask[(part.units.numel(),)](
            part.units, self.stream, self.body, self.mode, section.elements, self._mask, part.word_base, self.status,
            section.unit_block, section.unit_first, WIDTH=dtype.width_bits, UNIT=UNIT_ELEMENTS, WORDS=_DENSE_WORDS,
        )  # fmt: skip
        if lanes.num_lanes:
            tight_kernels.decode_positions[(-(-lanes.num_lanes // LANES),)](
                self.stream, lanes.block, lanes.first, self._lane_start, self._lane_state, self._lane_left, lanes.log2,
                section.elements, section.groups, self._position, self._block_int64[0], self._mask, part.word_base,
                self._part_units, part.number, lanes.num_lanes, base.blocks.address, base.blocks.row_stride,
                base.blocks.col_stride, base.blocks.cols, WIDTH=dtype.width_bits, SHIFT=dtype.context_shift,
                CONTEXTS=dtype.num_contexts, FLAT=base.flat, UNIT=UNIT_ELEMENTS, LANES=LANES, STEPS=DECODE_STEPS,
                num_warps=1,
            )  # fmt: skip
            for log2, blocks in self._by_lanes.items():
                self._untranspose(log2, blocks, part)
        self._list_part(part)

    def _untranspose(self, log2: int, blocks: torch.Tensor, part: _Part) -> None:
        if log2:
            groups = max(1, _UNTRANSPOSE_BITS // (32 << log2))
            tight_kernels.untranspose[(blocks.numel(), 4)](
                blocks, self.section.elements, self._mask, part.word_base, self._part_units, part.number,
                UNIT=UNIT_ELEMENTS, L=1 << log2, GROUPS=groups, num_warps=4 if log2 < 8 else 8,
            )  # fmt: skip

    def _list_part(self, part: _Part) -> None:
        """Mask bits to list entries: offsets begin anew at each block's place, so that no block can shift another."""
        section, units = self.section, part.units
        launch_count(units, self._mask, part.word_base, self._counts, section, self._masked_elements)
        listed, owner = units.long(), section.unit_block[units.long()].long()
        counts = self._counts[listed].long()
        per_block = torch.zeros_like(self._found).index_add_(0, owner, counts)
        shift = self.changes.first[:-1] + self._found - (per_block.cumsum(0) - per_block)
        self._offsets[listed] = counts.cumsum(0) - counts + shift[owner]
        self._found += per_block
        launch_expand(
            units, self._mask, part.word_base, self._offsets, self.changes.first[1:], self.changes, section,
            self._masked_elements,
        )  # fmt: skip

    def _launch_values(self) -> None:
        changes, dtype = self.changes, self.section.dtype
        _, value_words, planes = self._block_int64
        tight_kernels.close_lanes[(-(-self.places.num_lanes // LIST_SIZE),)](
            self.places.block, self._lane_state, self._lane_left, self.status, self.places.num_lanes, SIZE=LIST_SIZE
        )
        value_kernels.decode_classes[(-(-self.values.num_lanes // LANES),)](
            self.stream, self.values.block, self.values.first, self._value_start, self.places.log2, self.values.log2,
            changes.first, changes.where, self._starts, self.body, value_words, self._fits, self.status, 0,
            self.values.num_lanes, WIDTH=dtype.width_bits, LANES=LANES, ROUNDS=5 if dtype.width_bits > 16 else 4,
            num_warps=1,
        )  # fmt: skip
        value_kernels.finish_values[(self.section.num_blocks,)](
            self.stream, changes.where, changes.value, changes.first, self.mode, self.body, self.body_words, planes,
            self._fits, self.status, WIDTH=dtype.width_bits, SIZE=LIST_SIZE,
        )  # fmt: skip
