"""How lanes of many blocks stand in warps."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.codec.gpu.plans import WARP_LANES, make_lanes

CPU = torch.device("cpu")
BLOCKS = st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.sampled_from([1, 3584, 65536, 1 << 20])), max_size=40)


@given(BLOCKS)
def test_every_block_has_its_lanes_once_and_no_warp_mixes_numbers_of_steps(
    drawn: list[tuple[int, bool, int]],
) -> None:
    log2, elements = (np.array([row[k] for row in drawn], np.int64) for k in (0, 2))
    present = np.array([row[1] for row in drawn], bool)
    lanes = make_lanes(log2, present, CPU, steps_of=elements)
    assert lanes.num_lanes == lanes.block.numel()
    seen: set[int] = set()
    for block in np.flatnonzero(present):
        own = range(int(lanes.first[block]), int(lanes.first[block]) + (1 << int(log2[block])))
        assert {int(number) for number in lanes.block[own.start : own.stop]} == {int(block)}
        assert seen.isdisjoint(own)
        seen.update(own)
    assert (
        len(seen) + (WARP_LANES - 1) * len(set(zip(log2[present], elements[present], strict=True))) >= lanes.num_lanes
    )
    owners = lanes.block.numpy()
    for begin in range(0, lanes.num_lanes, WARP_LANES):
        warp = owners[begin : begin + WARP_LANES]
        assert len({(log2[block], elements[block]) for block in warp}) == 1


@given(BLOCKS)
def test_without_steps_lanes_follow_their_blocks_with_none_idle(drawn: list[tuple[int, bool, int]]) -> None:
    log2, present = np.array([row[0] for row in drawn], np.int64), np.array([row[1] for row in drawn], bool)
    lanes = make_lanes(log2, present, CPU)
    expected = np.repeat(np.arange(log2.size), np.where(present, 1 << log2, 0))
    assert np.array_equal(lanes.block.numpy(), expected)
