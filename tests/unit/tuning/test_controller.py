"""Guards and duties of the controller, one situation each, on samples made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sync_runtime.tuning.codec import CodedObject
from sync_runtime.tuning.controller import Decision, LinkController
from sync_runtime.tuning.samples import PayloadSample
from sync_runtime.tuning.state import LinkState
from tests.support.linksim import bounds

MIB = 2**20


def sample(rate: float, streams: int, *, size_bytes: int = 100_000_000, **more: Any) -> PayloadSample:
    """A payload that had this goodput after its last round trip of 0.1 s."""
    made = PayloadSample(size_bytes, size_bytes / rate + 0.1, streams, rtt_s=0.1, min_rtt_s=0.1)
    return replace(made, **more)


class Link:
    """A controller that is fed payloads at the count it asks for."""

    def __init__(self, seed: int = 4, *, state: LinkState | None = None, fewest: int = 1, most: int = 64) -> None:
        self.controller = LinkController(state, bounds(seed, fewest=fewest, most=most))
        self.now_s = 0.0

    @property
    def streams(self) -> int:
        return self.controller.decision.streams

    def feed(self, rate: float, *, streams: int | None = None, **more: Any) -> Decision | None:
        self.now_s += 5.0
        return self.controller.observe(sample(rate, streams or self.streams, **more), self.now_s)

    def settle(self, rate: float, payloads: int = 3) -> None:
        """Through the climb, on a link that more streams do not make faster."""
        for _ in range(payloads):
            self.feed(rate)
        assert self.controller.phase == "Holding"

    def until_it_tries(self, rate: float, **more: Any) -> None:
        for _ in range(40):
            if self.controller.phase == "Trying":
                return
            self.feed(rate, **more)
        pytest.fail("no trial was begun")


def test_it_starts_with_the_plans_seed_and_says_so() -> None:
    assert Link(6).controller.decision.reason == "6 streams: the plan's seed"


def test_it_doubles_while_that_gains_and_keeps_the_last_count_that_did() -> None:
    link, used = Link(2), []
    for _ in range(5):
        used.append(link.streams)
        link.feed(min(link.streams, 8.5) * 1e6)
    assert used == [2, 4, 8, 16, 8]
    assert link.controller.state.streams == 8
    assert all("\n" not in decision.reason and decision.reason for decision in link.controller.decisions)


def test_it_never_leaves_the_bounds_while_climbing() -> None:
    link = Link(4, most=6)
    for _ in range(20):
        link.feed(link.streams * 1e6)
        assert link.streams <= 6
    assert link.controller.state.streams == 6


def test_a_first_payload_over_cold_streams_is_not_what_gains_are_measured_against() -> None:
    link = Link(4)
    link.feed(1e6, cold=True)
    assert link.streams == 4
    link.feed(20e6)
    assert link.streams == 8


def test_streams_that_never_get_warm_are_tuned_too() -> None:
    link = Link(4)
    for _ in range(3):
        link.feed(10e6, cold=True)
    assert link.streams == 8


def test_a_gain_is_believed_of_cold_streams_and_a_loss_is_not() -> None:
    quick, slow = Link(4), Link(4)
    for link in (quick, slow):
        link.feed(20e6)
    assert "try 16" in (quick.feed(30e6, cold=True) or quick.controller.decision).reason
    slow.feed(15e6, cold=True)
    assert slow.streams == 8
    slow.feed(30e6)
    assert slow.streams == 16


def test_a_receiver_that_cannot_keep_up_gets_no_more_streams() -> None:
    link = Link(4)
    for _ in range(40):
        link.feed(20e6, busy_s=4.0, rwnd_limited_s=2.0)
        assert link.streams <= 4
    assert any("receiver's window" in decision.reason for decision in link.controller.decisions)


def test_a_receiver_that_cannot_keep_up_is_not_tried_with_more_later_either() -> None:
    link = Link(4, state=LinkState(streams=4, settled=True), fewest=4)
    for _ in range(40):
        link.feed(20e6, busy_s=4.0, rwnd_limited_s=2.0)
        assert link.streams == 4
    link.until_it_tries(20e6, busy_s=4.0)
    assert link.streams == 6


def test_full_send_buffers_are_a_reason_to_try_more() -> None:
    link = Link(state=LinkState(streams=4, settled=True))
    link.until_it_tries(200e6, size_bytes=1_000_000_000, send_buffer_bytes=4 * MIB)
    assert link.streams == 6


def test_bbr_is_not_driven_up_where_it_fills_the_link_already() -> None:
    link = Link(4)
    link.controller.set_congestion_control("bbr")
    link.feed(10e6, cold=True, sent_bytes=100_000_000, retransmitted_bytes=5_000_000)
    decision = link.feed(20e6, sent_bytes=100_000_000, retransmitted_bytes=100_000)
    assert decision is not None
    assert decision.reason == "bbr fills a link with 4 streams: hold"
    assert link.controller.phase == "Holding"


def test_bbr_held_back_by_its_buffers_and_anything_else_is() -> None:
    for control, buffer_bytes in (("bbr", MIB), ("cubic", 64 * MIB)):
        link = Link(4)
        link.controller.set_congestion_control(control)
        link.feed(20e6, send_buffer_bytes=buffer_bytes)
        assert link.streams == 8


def test_few_streams_are_left_alone_where_payloads_are_short_for_their_way() -> None:
    near, far = (Link(state=LinkState(streams=4, settled=True)) for _ in range(2))
    near.until_it_tries(20e6)  # 5.1 s, 51 round trips
    far.until_it_tries(100e6)  # 1.1 s, 11 round trips
    assert near.streams == 3
    assert far.streams == 6


def test_small_losses_do_not_add_up_from_step_to_step() -> None:
    link = Link(state=LinkState(streams=16, settled=True))
    for _ in range(60):
        link.feed(20e6 * 0.988 ** {16: 0, 11: 1, 7: 2, 5: 3, 3: 4, 2: 5}.get(link.streams, 0))
    assert link.controller.state.streams == 11


def test_payloads_and_not_their_windows_end_a_pause() -> None:
    link = Link(state=LinkState(streams=8, settled=True))
    for _ in range(5):
        for _ in range(4):
            link.feed(20e6, whole=False)
        link.feed(20e6, windowed=True)
        assert link.streams == 8
    for _ in range(20):
        link.feed(20e6, whole=False)
    assert link.controller.state.streams < 8  # inside a payload that does not end, windows do


def test_a_queue_of_our_own_making_brings_the_next_trial_down_sooner() -> None:
    calm, queueing = Link(8), Link(8)
    calm.settle(20e6)
    queueing.settle(20e6)
    for link in (calm, queueing):  # one refused trial, so that both hold for long
        link.until_it_tries(20e6)
        link.feed(10e6)
        assert link.streams == 8
    for _ in range(8):
        calm.feed(20e6)
        queueing.feed(20e6, rtt_s=0.5)
    assert calm.streams == 8
    assert queueing.streams < 8


def test_payloads_of_a_few_round_trips_use_more_streams_and_teach_nothing() -> None:
    link = Link(2)
    link.settle(20e6)
    before = link.controller.state.streams
    small = link.controller.for_payload(1_000_000)
    assert small.streams == 8
    assert "round trips" in small.reason
    for _ in range(30):
        link.feed(3e6, size_bytes=1_000_000)
    assert link.controller.state.streams == before
    assert link.controller.for_payload(100_000_000).streams == link.streams
    assert link.controller.estimates.capacity_bytes_per_s == pytest.approx(20e6, rel=0.01)


def test_a_payload_that_should_have_been_short_and_was_not_shows_a_slower_link() -> None:
    link = Link(state=LinkState(streams=4, settled=True))
    for _ in range(3):
        link.feed(20e6)
    for _ in range(2):
        link.feed(1e6, size_bytes=10_000_000)
    assert link.controller.phase == "Climbing"


def test_a_payload_that_waited_for_its_sender_teaches_nothing_about_streams() -> None:
    link = Link(4)
    link.settle(20e6)
    phase = link.controller.phase
    for _ in range(30):
        link.feed(5e6, app_limited=True)
    assert link.controller.phase == phase
    assert link.controller.estimates.capacity_bytes_per_s == pytest.approx(20e6, rel=0.01)


def test_three_failures_within_half_a_minute_cost_one_stream() -> None:
    controller = LinkController(None, bounds(8))
    assert controller.stream_failed(0.0) is None
    assert controller.stream_failed(20.0) is None
    assert controller.stream_failed(60.0) is None
    assert controller.stream_failed(70.0) is None
    decision = controller.stream_failed(80.0)
    assert decision is not None
    assert decision.streams == 7
    for now_s in (81.0, 82.0, 83.0, 84.0, 111.0, 112.0):
        assert controller.stream_failed(now_s) is None  # the rest of the same break
    decision = controller.stream_failed(113.0)
    assert decision is not None
    assert decision.streams == 6


def test_failures_never_take_the_last_stream_of_the_plan() -> None:
    controller = LinkController(None, bounds(4, fewest=4))
    for second in range(20):
        controller.stream_failed(float(second))
    assert controller.decision.streams == 4


def test_streams_that_do_not_come_up_are_not_counted_on() -> None:
    link = Link(8)
    link.settle(20e6)
    for _ in range(6):
        link.feed(20e6, streams=5)
    assert link.controller.state.streams == 5


def test_an_outage_keeps_the_streams_and_the_payload_it_hit_is_not_judged() -> None:
    link = Link(4)
    link.settle(20e6)
    before = link.streams
    outage = link.controller.observe(PayloadSample(0, 3.0, 4, whole=False), 100.0)
    assert outage is not None
    assert "no byte" in outage.reason
    link.feed(18e6, whole=False)
    link.feed(6e6)
    assert link.streams == before
    assert link.controller.phase == "Holding"


def test_two_slow_payloads_start_the_search_again_and_one_does_not() -> None:
    link = Link(state=LinkState(streams=4, settled=True))
    for _ in range(3):
        link.feed(50e6)
    assert "search again" not in (link.feed(30e6) or link.controller.decision).reason
    decision = link.feed(30e6)
    assert decision is not None
    assert "fell to 60 %" in decision.reason
    assert link.controller.phase == "Climbing"


def test_streams_that_are_still_speeding_up_are_no_slower_link() -> None:
    link = Link(state=LinkState(streams=4, settled=True))
    for _ in range(3):
        link.feed(20e6)
    for _ in range(2):
        link.feed(8e6, cold=True)
    assert link.controller.phase == "Holding"


def test_half_of_the_streams_carrying_half_is_no_slower_link() -> None:
    link = Link(2, state=LinkState(streams=2, settled=True))
    link.until_it_tries(20e6)
    assert link.streams == 1
    decision = link.feed(9e6)
    assert decision is not None
    assert "stay at 2" in decision.reason


def test_loss_that_costs_rate_starts_the_search_again_sooner() -> None:
    link = Link(state=LinkState(streams=4, settled=True))
    for _ in range(3):
        link.feed(20e6, sent_bytes=100_000_000)
    for _ in range(2):
        link.feed(16e6, sent_bytes=100_000_000, retransmitted_bytes=4_000_000)
    assert "loss rose" in link.controller.decision.reason


def test_a_longer_way_starts_the_search_again() -> None:
    link = Link(4)
    link.settle(20e6)
    for _ in range(2):
        link.feed(20e6, rtt_s=0.3, min_rtt_s=0.3)
    assert "round-trip time changed" in link.controller.decision.reason


def test_it_paces_when_loss_and_queueing_come_together_and_goes_on_when_that_helped() -> None:
    link = Link(4)
    for _ in range(4):
        link.feed(20e6, rtt_s=0.3, sent_bytes=100_000_000, retransmitted_bytes=3_000_000)
    pacing = link.controller.decision.pacing_bits_per_second
    assert pacing is not None
    assert pacing == pytest.approx(8 * 1.25 * 20e6, rel=0.05)
    assert link.controller.decision.stream_pacing_bytes_per_second == pacing // (8 * link.streams)
    link.feed(20.5e6, rtt_s=0.3, sent_bytes=100_000_000, retransmitted_bytes=3_000_000)
    assert link.controller.decision.pacing_bits_per_second == pacing  # not worth a system call per stream
    for _ in range(12):
        link.feed(22e6, sent_bytes=100_000_000)
    assert link.controller.decision.pacing_bits_per_second == pytest.approx(8 * 1.25 * 22e6, rel=0.05)
    for _ in range(2):
        link.feed(5e6, sent_bytes=100_000_000)
    assert link.controller.decision.pacing_bits_per_second is None  # another link now


def test_what_cold_streams_lose_is_no_reason_to_pace_by_their_rate() -> None:
    link = Link(4)
    link.feed(10e6, cold=True, sent_bytes=100_000_000, retransmitted_bytes=12_000_000)
    assert link.controller.decision.pacing_bits_per_second is None
    link.feed(20e6, sent_bytes=100_000_000, retransmitted_bytes=12_000_000)
    assert link.controller.decision.pacing_bits_per_second == pytest.approx(8 * 1.25 * 20e6, rel=0.01)


def test_streams_that_a_trial_leaves_out_stay_open() -> None:
    link = Link(8)
    link.settle(20e6)
    link.until_it_tries(20e6)
    assert link.streams < 8
    assert link.controller.decision.open_streams == 8


def test_new_bounds_hold_at_once() -> None:
    link = Link(16)
    decision = link.controller.set_bounds(bounds(4, fewest=2, most=8))
    assert decision is not None
    assert decision.streams == 8


def test_another_congestion_control_makes_the_remembered_count_a_place_to_start() -> None:
    first = Link(8)
    first.controller.set_congestion_control("cubic")
    first.settle(20e6)
    again = LinkController(first.controller.state, bounds(8))
    for name in ("cubic", "unknown", "", "no kernel's"):
        assert again.set_congestion_control(name) is None
    decision = again.set_congestion_control("bbr")
    assert decision is not None
    assert again.phase == "Climbing"
    assert "bbr" in decision.reason


def test_tight_is_used_only_where_the_plan_allows_it_and_it_pays() -> None:
    fast, tight = CodedObject(100e6, 0.0, 0.0), CodedObject(50e6, 0.0, 3.0)
    for codec, rate, expected in (("Fast", 1e6, "Fast"), ("Tight", 1e6, "Tight"), ("Tight", 100e6, "Fast")):
        controller = LinkController(None, bounds(4, codec="Tight" if codec == "Tight" else "Fast"))
        controller.observe(sample(rate, 4), 0.0)
        assert controller.for_payload(100_000_000, fast=fast, tight=tight).codec == expected


def test_bucket_size_follows_what_was_measured() -> None:
    link = Link(4)
    assert link.controller.decision.bucket_bytes == MIB
    link.settle(125e6)
    assert (
        link.controller.for_payload(2_000_000_000).bucket_bytes > link.controller.for_payload(20_000_000).bucket_bytes
    )


def test_windows_of_a_payload_and_the_payload_itself_are_not_counted_twice() -> None:
    link = Link(4)
    for _ in range(3):
        link.feed(20e6, whole=False)
    link.feed(10e6, windowed=True)
    assert link.controller.estimates.capacity_bytes_per_s == pytest.approx(20e6, rel=0.2)
    assert link.controller.estimates.payloads == 1
    assert len(link.controller.state.windows) == 3
