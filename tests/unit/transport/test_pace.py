"""The best rate of a link, and what is made of it."""

from __future__ import annotations

import pytest

from sync_runtime.transport import pace
from sync_runtime.transport.pace import PeakRate


def play(peak: PeakRate, rate_bytes_per_s: float, seconds: float, start_s: float = 0.0) -> float:
    """Acknowledgements every 10 ms; when they end."""
    steps = int(seconds * 100)
    for step in range(steps):
        peak.delivered(int(rate_bytes_per_s / 100), start_s + step / 100, 0.05)
    return start_s + steps / 100


def test_the_peak_is_the_best_window_not_the_mean() -> None:
    peak = PeakRate()
    now_s = play(peak, 1e6, 1.0)
    now_s = play(peak, 5e7, 0.5, now_s)
    play(peak, 1e6, 1.0, now_s)
    assert peak.bytes_per_s == pytest.approx(5e7, rel=0.1)


def test_bytes_that_arrive_in_one_burst_are_no_rate() -> None:
    peak = PeakRate()
    peak.delivered(50_000_000, 1.0, 0.05)
    peak.delivered(50_000_000, 1.001, 0.05)
    assert peak.bytes_per_s == 0.0


def test_a_long_pause_between_acknowledgements_gives_no_peak() -> None:
    peak = PeakRate()
    peak.delivered(10_000_000, 0.0, 0.05)
    peak.delivered(1_000_000, 10.0, 0.05)
    assert peak.bytes_per_s == pytest.approx(1e5)


def test_a_link_that_became_slower_is_believed_after_four_payloads() -> None:
    peak = PeakRate()
    now_s = play(peak, 5e7, 1.0)
    peak.payload_over()
    for _ in range(3):
        now_s = play(peak, 1e7, 1.0, now_s + 5)
        peak.payload_over()
        assert peak.bytes_per_s == pytest.approx(5e7, rel=0.1)
    play(peak, 1e7, 1.0, now_s + 5)
    peak.payload_over()
    assert peak.bytes_per_s == pytest.approx(1e7, rel=0.1)


def test_windows_grow_with_the_round_trip() -> None:
    """Half a second of a burst is no window on a path of 400 ms."""
    short, long = PeakRate(), PeakRate()
    for step in range(50):
        short.delivered(100_000, step / 100, 0.01)
        long.delivered(100_000, step / 100, 0.4)
    assert short.bytes_per_s == pytest.approx(1e7, rel=0.1)
    assert long.bytes_per_s == 0.0


def test_a_payload_starts_far_above_a_rate_that_is_still_growing_and_little_above_a_settled_one() -> None:
    peak = PeakRate()
    assert pace.starting_rate(peak, None) is None
    assert pace.starting_rate(peak, 1.1e6) == 1.1e6
    now_s = 0.0
    found = []
    for rate in (1e7, 2e7, 2.04e7):
        now_s = play(peak, rate, 1.0, now_s + 5)
        peak.payload_over()
        found.append(round((pace.starting_rate(peak, None) or 0) / peak.bytes_per_s, 2))
    assert found == [pace.UNSETTLED_HEADROOM, pace.UNSETTLED_HEADROOM, pace.SETTLED_HEADROOM]
    assert pace.starting_rate(peak, 1.1e6) == 1.1e6


def test_a_remembered_rate_counts_as_settled_until_a_payload_beats_it() -> None:
    peak = PeakRate()
    peak.remember(1e7)
    assert (peak.bytes_per_s, peak.headroom) == (1e7, pace.SETTLED_HEADROOM)
    play(peak, 2e7, 1.0)
    peak.payload_over()
    peak.remember(9e9)
    assert peak.bytes_per_s == pytest.approx(2e7, rel=0.1)
    assert peak.headroom == pace.UNSETTLED_HEADROOM


def test_a_lossy_link_gets_room_for_what_is_sent_again_up_to_a_limit() -> None:
    peak = PeakRate()
    peak.remember(1e7)
    peak.loss = pace.SMALL_LOSS
    assert peak.headroom == pace.SETTLED_HEADROOM
    peak.loss += 0.005
    assert peak.headroom == pytest.approx(pace.SETTLED_HEADROOM + 0.005 * pace.LOSS_ROOM)
    peak.loss = 0.3
    assert peak.headroom == pace.MAX_LOSS_HEADROOM


def test_what_waits_unsent_is_twenty_milliseconds_within_limits() -> None:
    assert pace.unsent_bytes(1e6, 4) == pace.MIN_UNSENT_BYTES
    assert pace.unsent_bytes(1e8, 4) == 500_000
    assert pace.unsent_bytes(1e12, 1) == pace.MAX_UNSENT_BYTES


def test_long_paths_are_held_to_the_known_rate_for_longer() -> None:
    assert pace.capped_for_s(0.01) == pace.CAPPED_S
    assert pace.capped_for_s(0.4) == pytest.approx(8.0)


def test_a_remembered_link_warms_up_with_twice_what_it_has_in_flight_and_a_short_one_not_at_all() -> None:
    assert pace.warming_bytes(60e6, 0.1) == 12_000_000
    assert pace.warming_bytes(60e6, 0.01) == 0
    assert pace.warming_bytes(0.0, 0.1) == 0
    assert pace.warming_bytes(1e12, 1.0) == pace.MAX_WARMING_LINK_BYTES


def test_a_remembered_mean_is_beaten_by_the_same_link_without_a_flood() -> None:
    peak = PeakRate()
    peak.remember(1e7)
    play(peak, 1.1e7, 1.0)
    peak.payload_over()
    assert peak.headroom == pace.SETTLED_HEADROOM
