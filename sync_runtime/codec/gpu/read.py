"""Decodes one section of an object on the device: workspaces and launches. Trusts sizes: `decode` has checked them."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sync_runtime.codec.gpu import fast_kernels, gpu_tables, record_kernels, tight_kernels, value_kernels
from sync_runtime.codec.gpu.lanes import LANES, LIST_SIZE, VALUE_STEPS
from sync_runtime.codec.gpu.plans import Ints, to_device
from sync_runtime.codec.gpu.walk import Cut, ReadPart, TightLanes, place_units, tight_lanes
from sync_runtime.codec.limits import MAX_LANES, MODE_FAST, MODE_TIGHT
from sync_runtime.codec.tables import Tables
from sync_runtime.errors import FormatError
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList, launch_count, launch_expand, launch_fill, new_list
from sync_runtime.tensors.device.overlay import Overlay
from sync_runtime.tensors.device.sections import UNIT_ELEMENTS

if TYPE_CHECKING:
    from sync_runtime.codec.gpu.decode import Records

READ_PARTS = 6
"""Every block is decoded in so many parts: more need less memory for masks."""
OVERLAY_PARTS = 16
"""And in so many where something is staged: one part of such blocks is copied at a time."""
_UNITS = 16
DECODE_LANES, DECODE_STEPS = 32, 16
"""Lanes per program, and steps whose loads are in flight together."""
STREAM_ROOM = DECODE_STEPS
"""Words that a stream has beyond its object: lanes of hostile bytes may read them."""
_DENSE_WORDS = 32
_UNTRANSPOSE_BITS, _UNTRANSPOSE_SHARES = 8192, 4
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


class SectionRead:
    """One section's side of a decoder: its base, its list, its workspaces."""

    def __init__(self, base: Bound, capacity: int, *, parts: int = READ_PARTS) -> None:
        self.base, self.section = base, base.section
        section, device = self.section, self.section.device
        self.host_groups: Ints = np.array([block.group for block in section.blocks], np.int64)
        self.changes: ChangeList = new_list(section, capacity)
        self.status = torch.zeros(section.num_blocks, dtype=torch.int32, device=device)
        self._plain_cut = Cut(section, parts)
        self._overlay_cut: Cut | None = None
        self._mask = torch.empty(0, dtype=torch.int32, device=device)
        self._counts = torch.empty(section.num_units, dtype=torch.int32, device=device)
        self._offsets = torch.zeros(section.num_units, dtype=torch.int64, device=device)
        self._found = torch.zeros(section.num_blocks, dtype=torch.int64, device=device)
        self._block_int64 = torch.zeros((3, section.num_blocks), dtype=torch.int64, device=device)
        self._fits = torch.zeros(section.num_blocks, dtype=torch.int32, device=device)

    def prepare(
        self, records: Records, stream: torch.Tensor, tables: Tables, num_groups: int, over: Overlay | None = None
    ) -> None:
        """Uploads what the entries say; makes room for the list. `over`: what is read instead of the base alone."""
        section, device = self.section, self.section.device
        self.stream, self._limit = stream, 2 * (stream.numel() - STREAM_ROOM)
        first = np.concatenate([[0], np.cumsum(records.changed)])
        if int(first[-1]) > self.changes.capacity:
            self.changes.grow(int(first[-1]))
        wide = to_device(np.stack([first[1:], records.body, records.body_words]), torch.int64, device)
        self.changes.first[1:] = wide[0]
        self.body, self.body_words = wide[1], wide[2]
        self.mode, self.parameter = to_device(np.stack([records.mode, records.parameter]), torch.int32, device)
        self._cut = self._plain_cut if over is None else self._cut_for(over, records)
        self._over = over
        if over is not None:
            fast = np.where(records.mode == MODE_FAST, section.host_elements, 0)
            self._fast_elements = to_device(fast, torch.int32, device)
        self._lanes = tight_lanes(section, records)
        if self._lanes.places.num_lanes:
            made = gpu_tables.from_tables(tables, num_groups, section.dtype.code, device)
            self._position = made.position
            self._starts = gpu_tables.class_starts(made.frequency)
        if self._mask.numel() < self._cut.mask_words and self._lanes.has_mask:
            self._mask = torch.empty(self._cut.mask_words, dtype=torch.int32, device=device)

    def _cut_for(self, over: Overlay, records: Records) -> Cut:
        if self._overlay_cut is None:
            self._overlay_cut = Cut(self.section, OVERLAY_PARTS)
        over.open(records.mode == MODE_TIGHT, self._overlay_cut.host_part_units)
        return self._overlay_cut

    def launch(self) -> None:
        """Enqueues the whole decoding without waiting."""
        section, changes, base, lanes, over = self.section, self.changes, self.base, self._lanes, self._over
        width = section.dtype.width_bits
        base.refresh()
        self.status.zero_()
        if lanes.places.num_lanes:
            self._open_tight(lanes)
        if lanes.has_mask:
            self._found.zero_()
            for part in self._cut.parts:
                self._launch_part(lanes, base if over is None else over.part(part.number), part)
            wrong = (self._found != torch.diff(changes.first)) & (lanes.masked_elements > 0)
            self.status |= wrong.to(torch.int32) * 8
            launch_fill(changes, base, None, lanes.masked_elements, range(section.num_blocks))
            if over is not None:
                over.restage(changes, lanes.masked_elements, added=False)
        if lanes.places.num_lanes:
            self._launch_values(lanes)
        if lanes.has_dense:
            record_kernels.dense_finish[(section.num_blocks,)](
                self.stream, self.body, self.mode, section.elements, changes.first, changes.where, changes.value,
                WIDTH=width, SIZE=LIST_SIZE,
            )  # fmt: skip
        fast_kernels.fast_decode[(section.num_blocks,)](
            self.stream, self.body, self.mode, self.parameter, section.elements, changes.first, changes.where,
            changes.value, self.status, base.blocks.address, base.blocks.row_stride, base.blocks.col_stride,
            base.blocks.cols, WIDTH=width, FLAT=base.flat, SIZE=LIST_SIZE,
        )  # fmt: skip
        if over is not None:
            over.restage(changes, self._fast_elements, added=True)

    def check(self) -> None:
        """Raises FormatError where a kernel found a fault."""
        if int(self.status.max().item()) == 0:
            return
        words = self.status.cpu().numpy()
        at = int(np.flatnonzero(words)[0])
        what = next(text for bit, text in _FAULTS.items() if int(words[at]) & bit)
        raise FormatError(f"block {self.section.blocks[at].number} is malformed: {what}")

    def _open_tight(self, lanes: TightLanes) -> None:
        place_words, value_words, planes = self._block_int64
        tight_kernels.open_bodies[(self.section.num_blocks,)](
            self.stream, self.body, self.body_words, self.mode, lanes.places.log2, lanes.values.log2,
            lanes.places.first, lanes.values.first, self.changes.first, lanes.lane_start, lanes.lane_state,
            lanes.lane_left, lanes.value_start, place_words, value_words, planes, self._fits, self.status,
            LANES=MAX_LANES,
        )  # fmt: skip

    def _launch_part(self, lanes: TightLanes, base: Bound, part: ReadPart) -> None:
        section, dtype, places, cut = self.section, self.section.dtype, lanes.places, self._cut
        if lanes.has_dense:
            record_kernels.dense_mask[(part.units.numel(),)](
                part.units, self.stream, self.body, self.mode, section.elements, self._mask, part.word_base,
                self.status, section.unit_block, section.unit_first, WIDTH=dtype.width_bits, UNIT=UNIT_ELEMENTS,
                WORDS=_DENSE_WORDS,
            )  # fmt: skip
        if places.num_lanes:
            tight_kernels.decode_positions[(-(-places.num_lanes // DECODE_LANES),)](
                self.stream, places.block, places.first, lanes.lane_start, lanes.lane_state, lanes.lane_left,
                places.log2, section.elements, section.groups, self._position, self._block_int64[0], self._mask,
                part.word_base, cut.part_units, part.number, places.num_lanes, self._limit, base.blocks.address,
                base.blocks.row_stride, base.blocks.col_stride, base.blocks.cols, WIDTH=dtype.width_bits,
                SHIFT=dtype.context_shift, CONTEXTS=dtype.num_contexts, FLAT=base.flat, UNIT=UNIT_ELEMENTS,
                LANES=DECODE_LANES, STEPS=DECODE_STEPS, num_warps=DECODE_LANES // 32,
            )  # fmt: skip
            for log2, blocks in lanes.by_lanes.items():
                self._untranspose(log2, blocks, part)
        self._list_part(lanes, part)

    def _untranspose(self, log2: int, blocks: torch.Tensor, part: ReadPart) -> None:
        if log2:
            groups = max(1, _UNTRANSPOSE_BITS // (32 << log2))
            tight_kernels.untranspose[(blocks.numel(), _UNTRANSPOSE_SHARES)](
                blocks, self.section.elements, self._mask, part.word_base, self._cut.part_units, part.number,
                UNIT=UNIT_ELEMENTS, L=1 << log2, GROUPS=groups, num_warps=4 if log2 < 8 else 8,
            )  # fmt: skip

    def _list_part(self, lanes: TightLanes, part: ReadPart) -> None:
        """Mask bits to list entries."""
        section = self.section
        launch_count(part.units, self._mask, part.word_base, self._counts, section, lanes.masked_elements)
        place_units[(section.num_blocks,)](
            self._cut.part_units, section.unit_first, part.number, self._counts, self.changes.first, self._found,
            self._offsets, SIZE=_UNITS,
        )  # fmt: skip
        launch_expand(
            part.units, self._mask, part.word_base, self._offsets, self.changes.first[1:], self.changes, section,
            lanes.masked_elements,
        )  # fmt: skip

    def _launch_values(self, lanes: TightLanes) -> None:
        changes, dtype, places, values = self.changes, self.section.dtype, lanes.places, lanes.values
        _, value_words, planes = self._block_int64
        tight_kernels.close_lanes[(-(-places.num_lanes // LIST_SIZE),)](
            places.block, lanes.lane_state, lanes.lane_left, self.status, places.num_lanes, SIZE=LIST_SIZE
        )
        value_kernels.decode_classes[(-(-values.num_lanes // LANES),)](
            self.stream, values.block, values.first, lanes.value_start, places.log2, values.log2, changes.first,
            changes.where, self._starts, self.body, value_words, self._fits, self.status, values.num_lanes,
            WIDTH=dtype.width_bits, LANES=LANES, ROUNDS=5 if dtype.width_bits > 16 else 4, STEPS=VALUE_STEPS,
            num_warps=1,
        )  # fmt: skip
        value_kernels.finish_values[(self.section.num_blocks,)](
            self.stream, changes.where, changes.value, changes.first, self.mode, self.body, self.body_words, planes,
            self._fits, self.status, WIDTH=dtype.width_bits, SIZE=LIST_SIZE,
        )  # fmt: skip
