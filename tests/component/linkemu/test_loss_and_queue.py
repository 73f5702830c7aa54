"""Loss, order, queue, policer and cross traffic, counted at the far end."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.component.linkemu.judgement import assert_rate, settle
from tests.component.linkemu.traffic import datagrams, udp_rate
from tools.linkemu import BurstLoss, CrossTraffic, Lab, LinkShape, Policer, parse_link

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]


@pytest.mark.parametrize("loss_ppm", [1_000, 10_000, 100_000])
def test_random_loss_takes_its_share(lab: Lab, loss_ppm: int) -> None:
    lab.emulator.set("a", "b", LinkShape(loss_ppm=loss_ppm))
    arrivals = datagrams(lab, count=20_000, rate_pps=15_000)
    share = loss_ppm / 1e6
    missing = sum(arrivals.lost)
    assert abs(missing - arrivals.sent * share) <= 5 * math.sqrt(arrivals.sent * share * (1 - share))
    assert lab.emulator.stats().pair("a", "b").lost >= missing


def test_bursty_loss_comes_in_bursts_of_the_asked_length(lab: Lab) -> None:
    burst = BurstLoss(enter_ppm=5_000, exit_ppm=200_000, loss_ppm=1_000_000)
    lab.emulator.set("a", "b", LinkShape(burst=burst))
    arrivals = datagrams(lab, count=30_000, rate_pps=15_000)
    lost = arrivals.lost
    num_bursts = sum(after and not before for before, after in pairwise([False, *lost]))
    assert sum(lost) / arrivals.sent == pytest.approx(burst.mean_loss_ppm / 1e6, rel=0.35)
    assert sum(lost) / num_bursts == pytest.approx(5, rel=0.35)


def test_each_direction_loses_packets_of_its_own(lab: Lab) -> None:
    for destination in ("b", "c"):
        lab.emulator.set("a", destination, LinkShape(loss_ppm=200_000))
    lost = [datagrams(lab, count=500, rate_pps=2_000, ends=ends).lost for ends in ("ab", "ac")]
    assert lost[0] != lost[1]


def test_a_perfect_link_loses_nothing_and_keeps_the_order(lab: Lab) -> None:
    arrivals = datagrams(lab, count=10_000, rate_pps=10_000)
    assert arrivals.numbers == list(range(10_000))


def test_jitter_spreads_the_delay_and_keeps_the_order(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(delay_us=5_000, jitter_us=20_000))
    arrivals = datagrams(lab, count=4_000, rate_pps=2_000)
    assert arrivals.numbers == sorted(arrivals.numbers)
    drift_us = [at - number * 500 for at, number in zip(arrivals.times_us, arrivals.numbers, strict=True)]
    assert max(drift_us) - min(drift_us) > 10_000


def test_reordering_jitter_lets_packets_overtake(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(delay_us=1_000, jitter_us=5_000, reorder=True))
    arrivals = datagrams(lab, count=2_000, rate_pps=2_000)
    assert arrivals.numbers != sorted(arrivals.numbers)
    assert sorted(arrivals.numbers) == list(range(2_000))


def test_a_queue_holds_its_bytes_and_delays_by_no_more_than_they_take(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(rate_bps=10_000_000, queue_bytes=50_000))
    for _ in range(5):
        arrivals = datagrams(lab, count=200, rate_pps=500_000, ip_bytes=1_000)
        stats = lab.emulator.stats().pair("a", "b")
        if stats.late.over_1ms == 0:
            break
    # Fifty fit; while the burst comes in, a few leave and make room.
    assert 50 <= len(arrivals.numbers) <= 60
    assert stats.queue_full == 200 - len(arrivals.numbers)
    assert 49_000 < stats.queue_bytes_max <= 50_000
    spread_us = arrivals.times_us[-1] - arrivals.times_us[0]
    assert spread_us == pytest.approx((len(arrivals.numbers) - 1) * 800, rel=0.05)


def test_a_policer_drops_what_exceeds_it_and_delays_nothing(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(policer=Policer(rate_bps=20_000_000, burst_bytes=50_000)))
    pair = assert_rate(lambda: udp_rate(lab, offered_bps=40_000_000, seconds=2), 20_000_000).stats.pair("a", "b")
    assert pair.policed == pytest.approx(pair.in_packets / 2, rel=0.1)
    assert (pair.queue_full, pair.queue_bytes_max) == (0, 0)


def test_cross_traffic_leaves_the_rest_of_the_link(lab: Lab) -> None:
    lab.emulator.set("a", "b", parse_link("20ms/50M/0%,cross=20M"))
    assert_rate(lambda: udp_rate(lab, offered_bps=60_000_000, seconds=2), 30_000_000)


def test_cross_traffic_that_comes_and_goes_is_felt_in_turn(lab: Lab) -> None:
    cross = CrossTraffic(rate_bps=30_000_000, on_us=1_000_000, off_us=1_000_000)
    lab.emulator.set("a", "b", LinkShape(rate_bps=50_000_000, queue_bytes=60_000, cross=cross))
    settle(
        lambda: udp_rate(lab, offered_bps=60_000_000, seconds=3, num_slices=12),
        lambda run: 47e6 < max(run.slices_bps) < 53e6 and 18e6 < min(run.slices_bps) < 22e6,
        "50 and 20 Mbit/s in turn",
        needed_bps=55e6,
    )
