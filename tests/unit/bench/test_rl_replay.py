"""What the RL benchmark replays: sizes, times, and stand-in weights whose delta is as large as was asked for."""

from __future__ import annotations

import tomllib

import pytest
import torch

from sync_runtime.offline import diff
from sync_runtime.standalone import StandaloneGroup
from tests.bench.rl_replay import FULL_BYTES, IDEAL_TOKENS_PER_S, Replay, recorded, scaled
from tests.bench.rl_syncgroup import group_file
from tests.bench.rl_weights import change, size_of, stand_in


def replay(**changes: int) -> Replay:
    return recorded(1.5, 0.9, **({"steps": 8, "regions": 4} | changes))


def test_sizes_follow_from_the_model_and_the_bytes_of_a_changed_element() -> None:
    sizes = replay().sizes
    assert sizes.full == FULL_BYTES
    assert sizes.pairs == pytest.approx(6 * 78e6)
    assert sizes.fast == pytest.approx(1.5 * 78e6)
    assert sizes.tight == pytest.approx(0.9 * 78e6)


def test_a_scaled_run_keeps_what_matters_in_proportion() -> None:
    whole, small = replay(), scaled(replay(), 50)
    assert small.step_s * 50 == pytest.approx(whole.step_s)
    assert small.train_s / small.step_s == pytest.approx(whole.train_s / whole.step_s)
    assert small.sizes.tight / small.step_s == pytest.approx(whole.sizes.tight / whole.step_s, rel=1e-6)
    assert small.tokens_per_s == whole.tokens_per_s


@pytest.mark.parametrize("weights", [(1.0,), (2.0, 1.0), (3.0, 1.0, 1.0)])
def test_workers_together_are_as_fast_as_was_recorded(weights: tuple[float, ...]) -> None:
    speeds = replay().speeds(weights)
    assert len(speeds) == 4
    assert sum(speeds) == pytest.approx(IDEAL_TOKENS_PER_S)
    assert speeds[0] / speeds[-1] == pytest.approx(weights[0] / weights[3 % len(weights)])


def test_a_step_of_the_stand_in_cannot_be_coded_in_less_than_its_size() -> None:
    before, after = stand_in(1_000_000), stand_in(1_000_000)
    change(after, 1)
    assert size_of(before) == pytest.approx(1_000_000, rel=0.01)
    for codec in ("fast", "tight"):
        coded = len(diff(before, after, codec=codec).to_bytes())
        assert coded == pytest.approx(size_of(before), rel=0.02)


def test_the_stand_in_is_the_same_for_everyone_and_finite() -> None:
    one, other = stand_in(100_000), stand_in(100_000)
    for step in (1, 2):
        change(one, step)
        change(other, step)
    assert all(torch.equal(one[name].view(torch.int16), other[name].view(torch.int16)) for name in one)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in one.values())


def test_the_group_of_the_benchmark_is_one_that_sidecars_take() -> None:
    group = StandaloneGroup.parse(tomllib.loads(group_file("10.77.0.1", "bcde")))
    assert [member.name for member in group.members] == ["trainer-0", *(f"rollout-{region}" for region in "bcde")]
    assert (group.work.mode, group.max_staleness) == ("Leased", 1)
