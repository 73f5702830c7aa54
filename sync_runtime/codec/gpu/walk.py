"""How blocks are walked: in parts whose masks are in memory together, and in lanes of an object's tight blocks."""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl

from sync_runtime.codec.gpu import plans
from sync_runtime.codec.gpu.plans import Ints, Lanes, make_lanes, to_device
from sync_runtime.codec.limits import MODE_DENSE, MODE_TIGHT
from sync_runtime.codec.rules import STATE_LOW
from sync_runtime.tensors.device.sections import UNIT_WORDS, Section

if TYPE_CHECKING:
    from sync_runtime.codec.gpu.decode import Records


@dataclass(frozen=True)
class ReadPart:
    """One part of every block."""

    number: int
    units: torch.Tensor
    """int32: the units of this part, ascending."""
    word_base: torch.Tensor
    """int64[B]: where the block's first mask word would be."""


class Cut:
    """Every block in parts of whole units: masks of a part are small while all lanes of all blocks are at work."""

    def __init__(self, section: Section, parts: int) -> None:
        first, device = section.host_unit_first, section.device
        units = np.diff(first)
        self.host_part_units: Ints = -(-units // parts)
        share = self.host_part_units
        before = (np.cumsum(share) - share) * UNIT_WORDS
        number = np.arange(section.num_units) - np.repeat(first[:-1], units)
        part_of = number // np.repeat(share, units)
        self.part_units = to_device(share, torch.int32, device)
        self.mask_words = int(share.sum()) * UNIT_WORDS
        self.parts = [
            ReadPart(
                number=part,
                units=to_device(np.flatnonzero(part_of == part), torch.int32, device),
                word_base=to_device(before - part * share * UNIT_WORDS, torch.int64, device),
            )  # word_base lets unit numbers address the part's mask
            for part in range(int(part_of.max()) + 1)
        ]


@triton.jit
def place_units(part_units, unit_first, part, counts, first, found, offsets, SIZE: tl.constexpr):
    """One program per block: offsets of the part's units in the list, after what the parts before have found.

    Offsets begin anew at each block's place, so that no block can shift another.
    """
    block = tl.program_id(0).to(tl.int64)
    share = tl.load(part_units + block)
    begin = tl.load(unit_first + block) + share * part
    end = tl.minimum(begin + share, tl.load(unit_first + block + 1))
    total = tl.load(first + block) + tl.load(found + block)
    for k in range(begin, end, SIZE):
        unit = k + tl.arange(0, SIZE)  # [SIZE]
        count = tl.load(counts + unit, mask=unit < end, other=0)
        tl.store(offsets + unit, total + tl.cumsum(count, 0) - count, mask=unit < end)
        total += tl.sum(count, 0)
    tl.store(found + block, total - tl.load(first + block))


@dataclass(frozen=True)
class TightLanes:
    """The lanes of an object's tight blocks, and what is kept of each between parts."""

    masked_elements: torch.Tensor
    """int32[B]: elements of blocks that have a mask; 0 for others."""
    has_mask: bool
    has_dense: bool
    places: Lanes
    values: Lanes
    by_lanes: dict[int, torch.Tensor]
    """Per log2 of the position lanes, int32: blocks."""
    lane_state: torch.Tensor
    lane_left: torch.Tensor
    lane_start: torch.Tensor
    """int32 per position lane."""
    value_start: torch.Tensor
    """int32 per value lane."""


def tight_lanes(section: Section, records: Records) -> TightLanes:
    """Lanes of a section's part of an object."""
    device, elements = section.device, section.host_elements
    tight = records.mode == MODE_TIGHT
    masked = tight | (records.mode == MODE_DENSE)
    log2 = plans.log2_position_lanes(elements, records.changed)
    places = make_lanes(log2, tight, device, steps_of=elements)
    values = make_lanes(plans.log2_value_lanes(records.changed), tight, device)
    kept = torch.zeros((3, places.num_lanes), dtype=torch.int32, device=device)
    kept[0].fill_(STATE_LOW)  # idle lanes are at their end
    return TightLanes(
        masked_elements=to_device(np.where(masked, elements, 0), torch.int32, device),
        has_mask=bool(masked.any()),
        has_dense=bool((records.mode == MODE_DENSE).any()),
        places=places,
        values=values,
        by_lanes={
            int(size): to_device(np.flatnonzero(tight & (log2 == size)), torch.int32, device)
            for size in np.unique(log2[tight])
        },
        lane_state=kept[0],
        lane_left=kept[1],
        lane_start=kept[2],
        value_start=torch.empty(values.num_lanes, dtype=torch.int32, device=device),
    )
