"""The loop as arithmetic: what networks cost under the rule that workers are one version behind at most."""

from __future__ import annotations

import json

import pytest

from tests.bench import bench_rl
from tests.bench.report import Report
from tests.bench.rl_lab import Account, Transfers
from tests.bench.rl_loop import Loop, Outcome, always
from tests.bench.rl_replay import IDEAL_TOKENS_PER_S, MAX_STALENESS, STEP_S, recorded

REPLAY = recorded(1.5, 0.9, steps=8, regions=4)


def run(delay_s: float, weights: tuple[float, ...] = (1.0,)) -> Outcome:
    return Loop(REPLAY, REPLAY.speeds(weights), always(delay_s, REPLAY.regions)).run()


def test_without_a_network_it_gives_what_was_recorded() -> None:
    ideal = run(0)
    assert ideal.tokens_per_s(REPLAY) == pytest.approx(IDEAL_TOKENS_PER_S, rel=1e-3)
    assert ideal.step_s == pytest.approx(STEP_S, rel=1e-3)


@pytest.mark.parametrize("delay_s", [1.0, STEP_S / 2, 0.9 * STEP_S])
def test_weights_that_arrive_within_a_step_cost_age_and_no_tokens(delay_s: float) -> None:
    found, ideal = run(delay_s), run(0)
    assert found.step_s == pytest.approx(ideal.step_s)
    assert ideal.lag < found.lag <= MAX_STALENESS


@pytest.mark.parametrize("steps", [1.2, 2.0, 10.0])
def test_weights_that_take_longer_than_a_step_set_its_pace(steps: float) -> None:
    assert run(steps * STEP_S).step_s == pytest.approx(steps * STEP_S, rel=0.01)


def test_a_region_that_gets_no_weights_costs_its_share() -> None:
    found = Loop(REPLAY, REPLAY.speeds(), lambda version: [0.0, 0.0, 0.0, 1e6]).run()
    assert found.started_s[-1] - found.started_s[-2] == pytest.approx(STEP_S * 4 / 3, rel=0.05)
    assert found.split[3] < 0.02
    assert max(found.lags) <= MAX_STALENESS + 1, "a group that was begun in time may end after one more version"


def test_workers_of_two_speeds_get_work_in_that_proportion() -> None:
    split = run(0, (2.0, 1.0)).split
    assert split == pytest.approx([2 / 6, 1 / 6, 2 / 6, 1 / 6], rel=0.02)


@pytest.mark.parametrize(("late_p99_us", "code"), [(100, 1), (50_000, 2)])
def test_a_missed_goal_fails_the_benchmark_unless_the_emulator_was_late(
    capsys: pytest.CaptureFixture[str], late_p99_us: int, code: int
) -> None:
    report = Report("rl")
    bench = bench_rl.Bench(report, REPLAY, 1.0, REPLAY.sizes.tight, run(0))
    bench.row("slow", run(2 * STEP_S), Account(late_p99_us, 0, 0, 0.0), loss_at_most=1.3)
    assert report.exit_code() == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    loss = next(line for line in lines if line["metric"] == "loss")
    assert loss["value"] == pytest.approx(50, abs=0.5)
    assert not loss["holds"]


def test_runs_are_repeated_until_the_emulator_was_in_time() -> None:
    late, good = Account(50_000, 0, 0, 0.0), Account(100, 0, 0, 0.0)
    accounts = [late, good, late]
    found = bench_rl.believable(lambda: Transfers([[1.0]], accounts.pop(0)), 3)
    assert found.account is good
    assert accounts == [late]


@pytest.mark.parametrize("words", [["--steps", "0"], ["--scale", "0.5"], ["--regions", "0"], ["--case", "nothing"]])
def test_what_cannot_be_measured_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_rl.main(words)
    assert "usage" in capsys.readouterr().err
