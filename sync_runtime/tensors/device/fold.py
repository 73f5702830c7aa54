"""Two lists of new bits become one: of equal positions the later list's entry stays.

Both lists ascend inside every block, so the place of an entry is known from ranks alone: its own, plus its rank in the
other list, less the positions before it that both have. Three launches, no scratch, no sort.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sync_runtime.tensors.device.bitops import POSITION_MASK
from sync_runtime.tensors.device.lists import ChangeList, new_list
from sync_runtime.tensors.device.sections import Section

_SIZE = 1024


@triton.jit
def rank_of(where, begin, end, position, inside):
    """How many entries of an ascending part of a list lie before each position; [SIZE] int64."""
    low = tl.zeros(position.shape, tl.int64) + begin
    high = tl.zeros(position.shape, tl.int64) + end
    span = end - begin
    while span > 0:
        middle = (low + high) >> 1
        open_ = inside & (low < high)
        less = (tl.load(where + middle, mask=open_, other=0) & POSITION_MASK) < position
        low = tl.where(open_ & less, middle + 1, low)
        high = tl.where(open_ & (less == 0), middle, high)
        span = span >> 1
    return low - begin


@triton.jit
def count_common(first, where, other_first, other_where, common, SIZE: tl.constexpr):
    """One program per block: positions that both lists have."""
    block = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(first + block), tl.load(first + block + 1)
    other_begin, other_end = tl.load(other_first + block), tl.load(other_first + block + 1)
    found = tl.zeros([SIZE], tl.int32)
    if other_end > other_begin:
        for k in range(begin, end, SIZE):
            at = k + tl.arange(0, SIZE)  # [SIZE]
            position = tl.load(where + at, mask=at < end, other=0) & POSITION_MASK
            place = other_begin + rank_of(other_where, other_begin, other_end, position, at < end)
            there = (at < end) & (place < other_end)
            same = (tl.load(other_where + place, mask=there, other=0) & POSITION_MASK) == position
            found += (there & same).to(tl.int32)
    tl.store(common + block, tl.sum(found, 0).to(tl.int64))


@triton.jit
def place_entries(
    first, where, value, other_first, other_where, out_first, out_where, out_value, SIZE: tl.constexpr
):  # fmt: skip
    """One program per block: a list's entries to their places in the folded one. Positions that both have share one."""
    block = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(first + block), tl.load(first + block + 1)
    other_begin, other_end = tl.load(other_first + block), tl.load(other_first + block + 1)
    sink = tl.load(out_first + block)
    before = 0
    for k in range(begin, end, SIZE):
        at = k + tl.arange(0, SIZE)  # [SIZE]
        inside = at < end
        position = tl.load(where + at, mask=inside, other=0) & POSITION_MASK
        rank = rank_of(other_where, other_begin, other_end, position, inside)
        there = inside & (other_begin + rank < other_end)
        same = there & ((tl.load(other_where + other_begin + rank, mask=there, other=0) & POSITION_MASK) == position)
        flags = same.to(tl.int32)
        place = sink + (at - begin) + rank - (before + tl.cumsum(flags, 0) - flags)
        tl.store(out_where + place, position, mask=inside)
        tl.store(out_value + place, tl.load(value + at, mask=inside, other=0), mask=inside)
        before += tl.sum(flags, 0)


def folded(section: Section, earlier: ChangeList, later: ChangeList) -> ChangeList:
    """A new list with the entries of both; the later one's where both have a position. Waits for the device once."""
    grid = (section.num_blocks,)
    common = torch.empty(section.num_blocks, dtype=torch.int64, device=section.device)
    count_common[grid](later.first, later.where, earlier.first, earlier.where, common, SIZE=_SIZE)
    first = earlier.first + later.first
    first[1:] -= common.cumsum(0)
    out = new_list(section, int(first[-1].item()))
    out.first.copy_(first)
    for mine, other in ((earlier, later), (later, earlier)):  # in this order: the later bits are written last
        place_entries[grid](
            mine.first, mine.where, mine.value, other.first, other.where, out.first, out.where, out.value, SIZE=_SIZE
        )
    return out


def plain_fold(earlier: ChangeList, later: ChangeList) -> ChangeList:
    """The reference in plain torch: a dictionary of positions per block, later entries last."""
    first, where, value = [0], [], []
    for block in range(earlier.first.numel() - 1):
        found: dict[int, int] = {}
        for one in (earlier, later):
            part = slice(int(one.first[block]), int(one.first[block + 1]))
            places = (one.where[part] & 0xFFFFFF).tolist()
            found |= dict(zip(places, one.value[part].tolist(), strict=True))
        where += sorted(found)
        value += [found[place] for place in sorted(found)]
        first.append(len(where))
    device = earlier.first.device
    return ChangeList(
        torch.tensor(first, dtype=torch.int64, device=device),
        torch.tensor(where, dtype=torch.int32, device=device),
        torch.tensor(value, dtype=earlier.value.dtype, device=device),
    )
