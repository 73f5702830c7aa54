"""Extraction: live weights against a snapshot, one pass; yields the change list and the digest of the live weights.

Works slab by slab: the mask covers one slab of blocks at a time, so that it stays a small part of the model; the list
covers all. Nothing is allocated after construction, except where more changed than there is room for
(`ChangeList.grow`).
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.delta.kernels import digest as kernels
from sync_runtime.delta.kernels.scrub import TilePlan, launch_others, launch_tiles, plan_tiles
from sync_runtime.errors import LayoutError
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList, launch_count, launch_expand, launch_fill, new_list
from sync_runtime.tensors.device.scratch import Scratch
from sync_runtime.tensors.device.sections import UNIT_ELEMENTS, UNIT_WORDS, Section

SLABS = 24
"""A slab is about this part of a section, and at least one block. Two are in memory at a time."""
EXPECTED_DENSITY = 0.0125
_GROW_SLACK = 1.125
_COMPARE_WORDS = 32


@dataclass(frozen=True)
class Slab:
    """Consecutive blocks whose masks are in memory at the same time."""

    blocks: range
    units: range
    tiles: range
    others: torch.Tensor
    """int32: units of blocks that are not regular tiles."""


class Extractor:
    """Compares a live state with a snapshot of the same section, again and again."""

    def __init__(self, live: Bound, snapshot: Bound, *, density: float = EXPECTED_DENSITY, slabs: int = SLABS) -> None:
        if live.section is not snapshot.section or snapshot.cast:
            raise LayoutError("a snapshot has the wire dtypes and the section of the live state")
        self.live, self.snapshot, self.section = live, snapshot, live.section
        section = self.section
        self.plan: TilePlan = plan_tiles(section, live, snapshot)
        self.slabs, self.word_base, self._mask_words = _slabs(section, self.plan, slabs)
        device = section.device
        self.scratch = Scratch(device)
        """Holds masks during a pass and nothing after it: a coder of the list may use it until the next pass."""
        self._take_masks()  # all memory is taken here, not in the first pass
        self._streams = [torch.cuda.Stream(device) for _ in range(2)] if device.type == "cuda" else []
        self.counts = torch.empty(section.num_units, dtype=torch.int32, device=device)
        self.offsets = torch.zeros(section.num_units + 1, dtype=torch.int64, device=device)
        self.limits = torch.empty(section.num_blocks, dtype=torch.int64, device=device)
        self.sums = torch.zeros((section.num_pieces, 2), dtype=torch.int64, device=device)
        self.changes: ChangeList = new_list(section, max(1024, int(section.num_elements * density)))
        self._first_units = section.unit_first.long()
        self._all_units = torch.arange(section.num_units, dtype=torch.int32, device=device)

    def run(self) -> int:
        """Fills `changes` and `sums` (words per piece); returns how many elements changed. Synchronises once."""
        self.launch()
        total = int(self.offsets[-1].item())
        if total > self.changes.capacity:
            self.changes.grow(int(total * _GROW_SLACK))
            self.launch()
        return total

    def _take_masks(self) -> torch.Tensor:
        return self.scratch.take(2 * self._mask_words, torch.int32).view(2, -1)

    def launch(self) -> None:
        """Enqueues the pass without waiting; a list that is too short is cut, and `offsets[-1]` tells."""
        self.live.refresh()
        self.snapshot.refresh()
        self.sums.zero_()
        self.limits.fill_(self.changes.capacity)
        self._launch_slabs(self._take_masks())
        launch_others(self.plan, self.live, self.sums)

    def _launch_slabs(self, masks: torch.Tensor) -> None:
        """Slabs by turns on two streams: when few programs of one are left, the next fills the device."""
        if not self._streams:
            for slab in self.slabs:
                self._compare_slab(slab, masks[0])
                self._place_slab(slab)
                self._list_slab(slab, masks[0])
            return
        caller = torch.cuda.current_stream(self.section.device)
        for stream in self._streams:
            stream.wait_stream(caller)
        placed = caller.record_event()
        for turn, slab in enumerate(self.slabs):
            stream = self._streams[turn % 2]
            with torch.cuda.stream(stream):
                self._compare_slab(slab, masks[turn % 2])
                stream.wait_event(placed)
                self._place_slab(slab)
                placed = stream.record_event()
                self._list_slab(slab, masks[turn % 2])
        for stream in self._streams:
            caller.wait_stream(stream)

    def _compare_slab(self, slab: Slab, mask: torch.Tensor) -> None:
        section = self.section
        launch_tiles(
            self.plan, self.live, self.sums, slab.tiles, old=self.snapshot, mask=mask, word_base=self.word_base
        )
        if slab.others.numel():
            self._compare_others(slab, mask)
        units = self._all_units[slab.units.start : slab.units.stop]
        launch_count(units, mask, self.word_base, self.counts, section, section.elements)

    def _place_slab(self, slab: Slab) -> None:
        """Gives a slab's changes their places after those of the slabs before it."""
        units = slab.units
        inside = self.offsets[units.start + 1 : units.stop + 1]
        torch.cumsum(self.counts[units.start : units.stop], 0, dtype=torch.int64, out=inside)
        inside.add_(self.offsets[units.start])

    def _list_slab(self, slab: Slab, mask: torch.Tensor) -> None:
        section, units = self.section, slab.units
        launch_expand(
            self._all_units[units.start : units.stop], mask, self.word_base, self.offsets, self.limits, self.changes,
            section, section.elements,
        )  # fmt: skip
        ends = slice(slab.blocks.start, slab.blocks.stop + 1)
        torch.index_select(self.offsets, 0, self._first_units[ends], out=self.changes.first[ends])
        launch_fill(self.changes, self.snapshot, self.live, section.elements, slab.blocks)

    def _compare_others(self, slab: Slab, mask: torch.Tensor) -> None:
        section, new, old = self.section, self.live.blocks, self.snapshot.blocks
        kernels.compare_any[(slab.others.numel(),)](
            slab.others, section.unit_block, section.unit_first, section.elements, mask, self.word_base,
            new.address, new.row_stride, new.col_stride, old.address, old.row_stride, old.col_stride, old.cols,
            WIDTH=section.dtype.width_bits, CAST=self.live.cast, NAN=self.live.nan_bits, UNIT=UNIT_ELEMENTS,
            WORDS=_COMPARE_WORDS,
        )  # fmt: skip


def _slabs(section: Section, plan: TilePlan, wanted: int) -> tuple[list[Slab], torch.Tensor, int]:
    """The slabs, where each block's mask begins in its slab, and the words of the largest slab."""
    units = np.diff(section.host_unit_first)
    per_slab = max(1, -(-section.num_units // wanted))
    regular = np.zeros(section.num_blocks, bool)
    regular[plan.host_unit_block] = True
    slabs, base, begin, largest = [], np.zeros(section.num_blocks, np.int64), 0, 0
    while begin < section.num_blocks:
        reach = (
            int(np.searchsorted(section.host_unit_first, section.host_unit_first[begin] + per_slab, side="right")) - 1
        )
        end = max(begin + 1, reach)
        first, last = int(section.host_unit_first[begin]), int(section.host_unit_first[end])
        base[begin:end] = (section.host_unit_first[begin:end] - first) * UNIT_WORDS
        largest = max(largest, (last - first) * UNIT_WORDS)
        tiles = range(*(int(at) for at in np.searchsorted(plan.host_unit_block, (begin, end))))
        odd = np.repeat(~regular[begin:end], units[begin:end])
        others = torch.as_tensor((np.flatnonzero(odd) + first).astype(np.int32), device=section.device)
        slabs.append(Slab(range(begin, end), range(first, last), tiles, others))
        begin = end
    return slabs, torch.as_tensor(base, device=section.device), largest
