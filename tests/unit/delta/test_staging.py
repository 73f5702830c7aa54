"""The redo list: nothing is written before the commit, a commit can be repeated, several deltas fold into one."""

import numpy as np
import pytest

from sync_runtime.delta.apply import StagedBlock, Staging
from sync_runtime.errors import DigestError, FormatError
from sync_runtime.offline import diff
from sync_runtime.offline.staging import stage
from sync_runtime.tensors.bits import bind
from sync_runtime.tensors.sparse import SparseBlock
from tests.support.states import copied, next_state, same_bits, small_state


def test_staging_leaves_the_live_state_alone_until_the_commit() -> None:
    before = small_state()
    after = next_state(before, 7, 100)
    delta, live = diff(before, after), copied(before)
    staging = Staging(delta.blocks, bind(delta.layout, live))
    stage(delta, staging)
    assert same_bits(live, before)
    staging.commit()
    assert same_bits(live, after)


@pytest.mark.parametrize("codec", ["fast", "tight"])
def test_deltas_are_staged_on_top_of_each_other_and_committed_once(codec: str) -> None:
    states = [small_state()]
    for at in range(4):
        states.append(next_state(states[-1], at, 80))
    deltas = [diff(states[at], states[at + 1], codec=codec) for at in range(4)]
    live = copied(states[0])
    staging = Staging(deltas[0].blocks, bind(deltas[0].layout, live))
    for delta in deltas:
        stage(delta, staging)
    for staged in staging.staged.values():
        assert (np.diff(staged.positions.astype(np.int64)) > 0).all()
    assert staging.num_elements <= sum(delta.manifest.num_changed for delta in deltas)
    staging.commit()
    assert same_bits(live, states[-1])


def test_an_interrupted_commit_is_simply_done_again() -> None:
    before = small_state()
    after = next_state(before, 7, 100)
    delta, live = diff(before, after), copied(before)
    staging = Staging(delta.blocks, bind(delta.layout, live))
    stage(delta, staging)
    number, staged = next(iter(staging.staged.items()))
    half = Staging(delta.blocks, bind(delta.layout, live))
    half.add(delta.blocks.block(number), StagedBlock(staged.positions[::2], staged.bits[::2]))
    half.commit()
    assert not same_bits(live, before)
    staging.commit()
    staging.commit()
    assert same_bits(live, after)


def test_a_delta_out_of_turn_leaves_the_list_as_it_was() -> None:
    states = [small_state()]
    for at in range(3):
        states.append(next_state(states[-1], at, 80))
    deltas = [diff(states[at], states[at + 1]) for at in range(3)]
    live = copied(states[0])
    staging = Staging(deltas[0].blocks, bind(deltas[0].layout, live))
    stage(deltas[0], staging)
    with pytest.raises(DigestError):
        stage(deltas[2], staging)
    stage(deltas[1], staging)
    stage(deltas[2], staging)
    staging.commit()
    assert same_bits(live, states[-1])


def test_a_position_outside_the_block_is_refused() -> None:
    state = small_state()
    delta = diff(state, state)
    staging = Staging(delta.blocks, bind(delta.layout, state))
    block = delta.blocks.block(0)
    outside = SparseBlock(0, np.array([block.num_elements], np.uint32), np.array([1], np.uint32))
    with pytest.raises(FormatError):
        staging.prepare(outside, block, staging.current(block))
