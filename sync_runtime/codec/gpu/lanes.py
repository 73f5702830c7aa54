"""Codes the lanes of a section's tight blocks, keeps their words until the body's place is known, and writes them.

Words first go to scratch with some more room than stationary training needs; those of value lanes to the list's unused
end, where it suffices. A lane that needs more is counted
but cut; then all lanes are coded again with four times the room, which stays for the next object: the overflow path,
slower and exact.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.gpu import lane_kernels, plans, tight_kernels, value_kernels
from sync_runtime.codec.gpu.plans import Ints, Lanes, make_lanes, to_device
from sync_runtime.codec.limits import MAX_LANE_WORDS, MAX_LANES
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.scratch import Scratch

LIST_SIZE = 1024
LANES = 32
ENCODE_UNROLL = 16
VALUE_STEPS = 8
_ROOM_WORDS = 24
"""Room per lane beside what its changed elements are expected to need."""
_GROWTH = 4
_COPY_LANES, _COPY_WORDS = 32, 64


@dataclass
class Part:
    """One section's input: both states and the list of what differs between them."""

    old: Bound
    new: Bound
    changes: ChangeList
    scratch: Scratch | None = None
    """Memory to share with whatever made the list; None: memory of the coder's own."""


@dataclass(frozen=True)
class _Room:
    """Scratch of one kind of lane: where each block's lanes begin and how many words each may have."""

    lanes: Lanes
    words: torch.Tensor
    """int16"""
    first: torch.Tensor
    """int64[B]: in words of the scratch."""
    capacity: torch.Tensor
    """int32[B]"""
    host_capacity: Ints
    states: torch.Tensor
    """int32[Q]"""
    counts: torch.Tensor
    """int32[Q]: words that each lane needs, whether it had room for them or not; 0 for idle ones."""


class LaneCoder:
    """The lanes of one section, with its scratch."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.section = part.old.section
        device, size = self.section.device, self.section.num_blocks
        self._memory = part.scratch or Scratch(device)
        self.sizes = torch.empty(size, dtype=torch.int64, device=device)
        self.sums = torch.empty((size, 2), dtype=torch.int32, device=device)
        self.extra_bits = torch.empty(size, dtype=torch.int32, device=device)
        self.planes = torch.empty(size, dtype=torch.int64, device=device)
        self._growth = 1
        self._places: _Room
        self._values: _Room

    @property
    def log2_places(self) -> torch.Tensor:
        """log2 of the position lanes per block: the parameter of a tight record."""
        return self._places.lanes.log2

    def plan(self, changed: Ints) -> None:
        """Lays out lanes and scratch for blocks with so many changes; host work that needs no table yet."""
        elements, device = self.section.host_elements, self.section.device
        present = changed > 0
        log2_places, log2_values = plans.log2_position_lanes(elements, changed), plans.log2_value_lanes(changed)
        place_room = _capacity(changed >> log2_places, elements >> log2_places, 3 * self._growth, self._growth)
        value_room = _capacity(changed >> log2_values, changed >> log2_values, self._growth, self._growth)
        place_sizes = np.where(present, place_room << log2_places, 0)
        value_sizes = np.where(present, value_room << log2_values, 0)
        place_words, value_words = self._take_words(changed, int(place_sizes.sum()), int(value_sizes.sum()))
        self._places = _room(
            make_lanes(log2_places, present, device, steps_of=elements), place_room, place_sizes, place_words
        )
        self._values = _room(make_lanes(log2_values, present, device), value_room, value_sizes, value_words)

    def _take_words(self, changed: Ints, places: int, values: int) -> tuple[torch.Tensor, torch.Tensor]:
        _, spare = self.part.changes.spare(int(changed.sum()))
        if spare.element_size() > 1 and spare.numel() >= values:
            return self._memory.take(places, torch.int16), spare.view(torch.int16)
        taken = self._memory.take(places + values, torch.int16)
        return taken[:places], taken[places:]

    def code(self, changed: Ints, position_entries: torch.Tensor, class_entries: torch.Tensor) -> None:
        """Codes all lanes as planned; fills `sizes` with the bytes of a tight body, 2^62 where there is none."""
        while not self._try(position_entries, class_entries):
            self._growth *= _GROWTH
            self.plan(changed)
        places, values = self._places, self._values
        lane_kernels.tight_measure[(self.section.num_blocks,)](
            self.part.changes.first, places.lanes.log2, values.lanes.log2, places.lanes.first, values.lanes.first,
            places.counts, values.counts, self.extra_bits, self.sums, self.sizes,
            MOST_WORDS=MAX_LANE_WORDS, LANES=MAX_LANES,
        )  # fmt: skip

    def _try(self, position_entries: torch.Tensor, class_entries: torch.Tensor) -> bool:
        """Whether every lane had room (or needs more than the format allows, which is known by its count alone)."""
        device = self.section.device
        self._launch(position_entries, class_entries)
        short = torch.zeros((), dtype=torch.bool, device=device)
        for room in (self._places, self._values):
            lane_room = room.capacity[room.lanes.block.long()]
            short |= ((room.counts > lane_room) & (lane_room <= MAX_LANE_WORDS)).any()
        return not bool(short.item())

    def _launch(self, position_entries: torch.Tensor, class_entries: torch.Tensor) -> None:
        section, old, new = self.section, self.part.old, self.part.new
        places, values, changes, dtype = self._places, self._values, self.part.changes, self.section.dtype
        if not places.lanes.num_lanes:
            return
        tight_kernels.encode_positions[(-(-places.lanes.num_lanes // LANES),)](
            places.lanes.block, places.lanes.first, places.lanes.log2, section.elements, section.groups,
            position_entries, places.words, places.first, places.capacity, places.states, places.counts,
            places.lanes.num_lanes, old.blocks.address, old.blocks.row_stride, old.blocks.col_stride,
            new.blocks.address, new.blocks.row_stride, new.blocks.col_stride, old.blocks.cols,
            WIDTH=dtype.width_bits, SHIFT=dtype.context_shift, CONTEXTS=dtype.num_contexts, OLD_FLAT=old.flat,
            NEW_FLAT=new.flat, CAST=new.cast, NAN=new.nan_bits, LANES=LANES, UNROLL=ENCODE_UNROLL, num_warps=1,
        )  # fmt: skip
        value_kernels.encode_classes[(-(-values.lanes.num_lanes // LANES),)](
            values.lanes.block, values.lanes.first, values.lanes.log2, changes.first, changes.where, changes.value,
            class_entries, values.words, values.first, values.capacity, values.states, values.counts,
            values.lanes.num_lanes, WIDTH=dtype.width_bits, LANES=LANES, STEPS=VALUE_STEPS, num_warps=1,
        )  # fmt: skip

    def write(self, out: torch.Tensor, mode: torch.Tensor, body: torch.Tensor) -> None:
        """Writes the bodies of tight blocks into zeroed words."""
        places, values, changes = self._places, self._values, self.part.changes
        for room, other, is_value in ((places, values, False), (values, places, True)):
            lane_kernels.write_lanes[(self.section.num_blocks,)](
                out, body, mode, room.lanes.log2, other.lanes.log2, room.lanes.first, room.states, room.counts,
                room.words, room.first, room.capacity, self.sums, self.planes,
                VALUES=is_value, LANES=_COPY_LANES, WORDS=_COPY_WORDS,
            )  # fmt: skip
        value_kernels.write_planes[(self.section.num_blocks,)](
            changes.where, changes.value, changes.first, mode, self.planes, out,
            WIDTH=self.section.dtype.width_bits, SIZE=LIST_SIZE,
        )  # fmt: skip


def _capacity(changed: Ints, symbols: Ints, eighths: int, growth: int) -> Ints:
    """Words per lane: eighths of a word per changed element and some more, never above one word per symbol."""
    wanted = _ROOM_WORDS * growth + (changed + 1) * eighths // 8
    return np.minimum(np.minimum(wanted, symbols + 1), MAX_LANE_WORDS + 1)


def _room(lanes: Lanes, capacity: Ints, sizes: Ints, words: torch.Tensor) -> _Room:
    device = words.device
    return _Room(
        lanes=lanes,
        words=words,
        first=to_device(np.cumsum(sizes) - sizes, torch.int64, device),
        capacity=to_device(capacity, torch.int32, device),
        host_capacity=capacity,
        states=torch.empty(lanes.num_lanes, dtype=torch.int32, device=device),
        counts=torch.zeros(lanes.num_lanes, dtype=torch.int32, device=device),
    )
