from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract.plan import StreamPlan
from sync_runtime.tuning import model
from sync_runtime.tuning.model import PathFacts

MBIT = 125_000.0
FULL_ROOM = StreamPlan(seed=4, min=1, max=64)
figures = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e15)


def test_a_clean_stream_is_limited_by_its_buffer_and_the_round_trip() -> None:
    rate = model.stream_rate_bytes_per_s(PathFacts(200 * MBIT, 0.25, send_buffer_bytes=4 * 2**20))
    assert rate == pytest.approx(0.7 * 4 * 2**20 / 0.25)


def test_cubic_alone_is_hopeless_under_loss_where_bbr_is_not() -> None:
    cubic = model.stream_rate_bytes_per_s(PathFacts(500 * MBIT, 0.1, 0.001, congestion_control="cubic"))
    bbr = model.stream_rate_bytes_per_s(PathFacts(500 * MBIT, 0.1, 0.001, congestion_control="bbr"))
    assert cubic < 12 * MBIT
    assert bbr > 100 * MBIT


def test_other_algorithms_are_taken_for_reno() -> None:
    reno = model.stream_rate_bytes_per_s(PathFacts(500 * MBIT, 0.1, 0.001, congestion_control="reno"))
    assert reno == pytest.approx(1.22 * model.MSS_BYTES / 0.1 / math.sqrt(0.001))


def test_the_seed_fills_the_link_with_a_quarter_to_spare() -> None:
    path = PathFacts(200 * MBIT, 0.25, congestion_control="bbr")
    streams = model.seed_streams(path, FULL_ROOM)
    assert streams == math.ceil(1.25 * 200 * MBIT / model.stream_rate_bytes_per_s(path)) == 3


def test_the_plan_seeds_a_link_of_which_nothing_is_known() -> None:
    assert model.streams_to_fill(0.0, 0.0, FULL_ROOM) == FULL_ROOM.seed


def test_more_streams_shorten_the_ramp_and_warm_links_have_none() -> None:
    one, sixteen = (model.ramp_s(1000 * MBIT, 0.25, streams) for streams in (1, 16))
    assert one - sixteen == pytest.approx(4 * 0.25)
    assert model.ramp_s(1 * MBIT, 0.001, 8) == 0


@pytest.mark.parametrize(
    ("loss", "inflation", "paced", "paces"),
    [
        (0.02, 1.0, False, False),  # the path's own loss
        (0.0, 3.0, False, False),  # a deep buffer
        (0.02, 2.0, False, True),  # our overshoot
        (0.004, 1.4, False, False),  # not enough to begin …
        (0.0, 1.0, True, True),  # … but what helped goes on
        (0.10, 1.0, False, True),  # nobody loses so much but by overshoot
        (0.03, 1.0, False, False),
    ],
)
def test_pacing_needs_loss_and_queueing_together(loss: float, inflation: float, paced: bool, paces: bool) -> None:
    pacing = model.pacing_bits_per_second(10e6, loss=loss, inflation=inflation, paced=paced)
    assert (pacing == int(8 * 1.25 * 10e6)) if paces else (pacing is None)


@given(capacity=figures, rtt_s=figures, loss=st.floats(0, 1), buffer=st.integers(0, 2**40))
def test_seeds_of_any_path_are_inside_the_bounds(capacity: float, rtt_s: float, loss: float, buffer: int) -> None:
    for control in ("bbr", "cubic", "reno"):
        path = PathFacts(capacity, rtt_s, loss, buffer, control)
        assert 0 < model.stream_rate_bytes_per_s(path) <= 1e12
        assert 1 <= model.seed_streams(path, FULL_ROOM) <= 64


@given(rtt_s=st.floats(1e-4, 1), loss=st.floats(1e-6, 0.2), more=st.floats(1.1, 4))
def test_a_stream_never_gains_by_loss_or_distance(rtt_s: float, loss: float, more: float) -> None:
    for control in ("bbr", "cubic", "reno"):
        rate = model.stream_rate_bytes_per_s(PathFacts(1e9, rtt_s, loss, congestion_control=control))
        lossier = model.stream_rate_bytes_per_s(PathFacts(1e9, rtt_s, min(loss * more, 1), congestion_control=control))
        farther = model.stream_rate_bytes_per_s(PathFacts(1e9, rtt_s * more, loss, congestion_control=control))
        assert lossier <= rate * (1 + 1e-9)
        assert farther <= rate * (1 + 1e-9)
