"""Whatever is measured, in whatever order: no exception, no figure that is not one, no count outside the bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.errors import ContractError
from sync_runtime.tuning.controller import LinkController
from sync_runtime.tuning.samples import PayloadSample
from sync_runtime.tuning.state import LinkState
from tests.support.examples import examples
from tests.support.linksim import bounds

reals = st.one_of(
    st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300, 1e-9]),
    st.floats(0, 10),
    st.floats(),
)
sizes = st.one_of(st.sampled_from([0, -1, 1, 2**62, 10**30]), st.integers(0, 10**9))
samples = st.builds(
    PayloadSample,
    size_bytes=sizes,
    duration_s=reals,
    streams=st.one_of(st.integers(1, 12), st.integers(-3, 1000)),
    whole=st.booleans(),
    windowed=st.booleans(),
    cold=st.booleans(),
    app_limited=st.booleans(),
    rtt_s=reals,
    min_rtt_s=reals,
    sent_bytes=sizes,
    retransmitted_bytes=sizes,
    busy_s=reals,
    rwnd_limited_s=reals,
    send_buffer_bytes=sizes,
)
likely = st.builds(
    PayloadSample,
    size_bytes=st.just(60_000_000),
    duration_s=st.floats(0.5, 5),
    streams=st.integers(2, 12),
    rtt_s=st.floats(0.01, 0.5),
    min_rtt_s=st.just(0.01),
)
happenings = st.lists(st.tuples(st.one_of(samples, likely), reals, st.integers(0, 9)), max_size=40)


def check(controller: LinkController, fewest: int, most: int) -> None:
    for decision in (controller.decision, controller.for_payload(10_000_000), controller.for_payload(-5)):
        assert fewest <= decision.streams <= most
        assert decision.streams <= decision.open_streams <= most
        assert 256 * 1024 <= decision.bucket_bytes <= 8 * 2**20
        assert decision.bucket_bytes % 65536 == 0
        assert decision.pacing_bits_per_second is None or 1e6 <= decision.pacing_bits_per_second < 2**53
        assert decision.reason
        assert "\n" not in decision.reason
        assert "nan" not in decision.reason
        assert len(decision.reason) <= 256
    assert math.isfinite(controller.estimates.predicted_s(60_000_000))
    assert controller.estimates.inflation >= 1


@settings(max_examples=examples(60), deadline=None)
@given(happenings, st.integers(1, 6), st.integers(0, 20))
@pytest.mark.timeout(20)
def test_any_samples_leave_a_controller_that_works(
    events: list[tuple[PayloadSample, float, int]], fewest: int, room: int
) -> None:
    most = fewest + room
    controller = LinkController(None, bounds(fewest, fewest=fewest, most=most))
    for sample, now_s, other in events:
        controller.observe(sample, now_s)
        if other == 0:
            controller.stream_failed(now_s)
        if other == 1:
            most = max(fewest, most - 1)
            controller.set_bounds(bounds(fewest, fewest=fewest, most=most))
        check(controller, fewest, most)
    state = controller.state
    assert LinkState.from_json(state.to_json()) == state
    check(LinkController(state, bounds(fewest, fewest=fewest, most=most)), fewest, most)


def test_a_clock_that_goes_back_leaves_no_round_trip_for_good() -> None:
    controller = LinkController(None, bounds())
    for now_s, min_rtt_s in ((1e6, 0.09), (10.0, 0.1), (15.0, 0.11)):
        controller.observe(PayloadSample(60_000_000, 3.0, 4, rtt_s=0.2, min_rtt_s=min_rtt_s), now_s)
    assert controller.estimates.min_rtt_s == pytest.approx(0.1)


def test_the_least_round_trip_is_that_of_the_last_minute() -> None:
    controller = LinkController(None, bounds())
    for now_s, min_rtt_s in ((0.0, 0.1), (50.0, 0.12), (100.0, 0.12)):
        controller.observe(PayloadSample(60_000_000, 3.0, 4, rtt_s=0.2, min_rtt_s=min_rtt_s), now_s)
    assert controller.estimates.min_rtt_s == pytest.approx(0.12)


def good_state() -> str:
    controller = LinkController(None, bounds())
    controller.observe(PayloadSample(60_000_000, 3.0, 4, rtt_s=0.2, min_rtt_s=0.1), 1.0)
    return controller.state.to_json()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"formatVersion":1', '"formatVersion":2'),
        ('"streams":4,', '"streams":65,'),
        ('"streams":4,', '"streams":4.5,'),
        ('"streams":4,', '"streams":"4",'),
        ('"settled":false', '"settled":false,"more":1'),
        ('"rttMicros":200000', '"rttMicros":-1'),
        ('"payloads":1', '"payloads":NaN'),
        ("{", "[" * 100),
    ],
)
def test_a_state_that_was_tampered_with_is_refused(old: str, new: str) -> None:
    text = good_state()
    assert old in text
    with pytest.raises(ContractError):
        LinkState.from_json(text.replace(old, new, 1))


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_a_state_fail_otherwise(data: bytes) -> None:
    with pytest.raises(ContractError):
        LinkState.from_json(data)
