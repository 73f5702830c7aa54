from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.tuning.trial import DOWN_LOSS, UP_GAIN, Trial, larger, smaller


def run(trial: Trial, base: float, tried: float, samples: int) -> Trial:
    for _ in range(samples):
        trial = trial.with_rate(tried if trial.tries_now else base)
    return trial


def up(base: float = 100.0) -> Trial:
    return Trial(4, 6, (base,), whole=True)


def down(base: float = 100.0) -> Trial:
    return Trial(6, 4, (base,), whole=True)


def test_counts_are_compared_in_both_orders() -> None:
    trial, order = up(), []
    for _ in range(7):
        order.append(trial.wanted_streams)
        trial = trial.with_rate(100.0)
    assert order == [6, 6, 4, 4, 6, 6, 4]


def test_a_drift_of_the_link_cancels_out() -> None:
    rates = [100.0, 110.0, 121.0, 133.1]  # the link gains a tenth from sample to sample, streams make no difference
    trial = up(rates[0])
    for rate in rates[1:]:
        trial = trial.with_rate(rate)
    assert trial.gain == pytest.approx(0.0, abs=1e-9)
    assert trial.verdict() is None  # the pairs disagree: one more of them


def test_more_streams_must_earn_their_keep() -> None:
    assert run(up(), 100.0, 100 * (1 + UP_GAIN) + 0.5, 3).verdict() == "accept"
    assert run(up(), 100.0, 100 * (1 + UP_GAIN) - 0.5, 3).verdict() == "reject"


def test_fewer_streams_may_cost_a_little() -> None:
    assert run(down(), 100.0, 100 * (1 - DOWN_LOSS) + 0.5, 3).verdict() == "accept"
    assert run(down(), 100.0, 100 * (1 - DOWN_LOSS) - 0.5, 3).verdict() == "reject"


def test_a_clear_first_pair_saves_the_second() -> None:
    assert run(up(), 100.0, 150.0, 1).verdict() == "accept"
    assert run(up(), 100.0, 80.0, 1).verdict() == "reject"
    assert run(down(), 100.0, 70.0, 1).verdict() == "reject"
    assert run(down(), 100.0, 100.0, 1).verdict() is None


def test_pairs_that_go_on_disagreeing_are_decided_by_their_mean() -> None:
    # Gains of +20 % and -5 % in turn: in the mean more than UP_GAIN.
    trial = up(100.0)
    for rate in (120.0, 95.0, 100.0, 100.0, 120.0, 95.0):
        trial = trial.with_rate(rate)
    assert trial.verdict() is None
    assert trial.with_rate(100.0).verdict() == "accept"


@given(st.lists(st.floats(1e-3, 1e12), min_size=7, max_size=7), st.booleans())
def test_eight_samples_always_decide(rates: list[float], upward: bool) -> None:
    trial = up(1e6) if upward else down(1e6)
    verdict = None
    for rate in rates:
        trial = trial.with_rate(rate)
        verdict = verdict or trial.verdict()
    assert verdict in ("accept", "reject")


@given(streams=st.integers(1, 64))
def test_steps_move_by_at_least_one_and_stay_inside(streams: int) -> None:
    assert smaller(streams, 1) == 1 or smaller(streams, 1) < streams
    assert larger(streams, 64) == 64 or larger(streams, 64) > streams
    assert 1 <= smaller(streams, 1) <= streams <= larger(streams, 64) <= 64
