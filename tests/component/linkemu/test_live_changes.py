"""Links change while packets fly, and each direction is its own."""

from __future__ import annotations

import threading
import time

import pytest

from tests.component.linkemu.judgement import assert_rate, settle
from tests.component.linkemu.traffic import RateRun, datagrams, round_trip_us, sending, udp_rate
from tools.linkemu import Lab, LinkShape, parse_link

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]


def test_a_cut_drops_everything_until_it_is_mended(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(delay_us=10_000))
    with sending(lab, count=2_500, rate_pps=1_000, idle_s=2) as collected:
        time.sleep(1)
        lab.emulator.cut("a", "b")
        time.sleep(0.8)
        lab.emulator.mend("a", "b")
    lost = collected[0].lost
    first, last = lost.index(True), len(lost) - 1 - lost[::-1].index(True)
    assert all(lost[first : last + 1]), "the gap is one gap"
    assert last - first == pytest.approx(800, rel=0.15)
    assert lab.emulator.stats().pair("a", "b").cut == sum(lost)


def test_a_cut_of_one_direction_leaves_the_other_and_other_links_alone(lab: Lab) -> None:
    lab.emulator.cut("a", "b")
    assert datagrams(lab, count=100, rate_pps=1_000, ends="ba").numbers == list(range(100))
    assert datagrams(lab, count=100, rate_pps=1_000, ends="ac").numbers == list(range(100))
    with sending(lab, count=100, rate_pps=1_000, ends="ab", patience_s=1) as collected:
        pass
    assert collected[0].numbers == []


def test_a_changed_rate_holds(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(rate_bps=40_000_000, delay_us=5_000, queue_bytes=100_000))
    assert_rate(lambda: udp_rate(lab, offered_bps=60_000_000, seconds=1), 40_000_000)
    lab.emulator.set("a", "b", LinkShape(rate_bps=12_000_000, delay_us=5_000, queue_bytes=100_000))
    assert_rate(lambda: udp_rate(lab, offered_bps=60_000_000, seconds=1), 12_000_000)


def test_a_step_under_load_shows_within_a_slice(lab: Lab) -> None:
    fast, slow = (LinkShape(rate_bps=rate_bps, queue_bytes=100_000) for rate_bps in (50_000_000, 15_000_000))

    def step() -> RateRun:
        lab.emulator.set("a", "b", fast)
        change = threading.Timer(1.7, lab.emulator.set, ("a", "b", slow))
        change.start()
        try:
            return udp_rate(lab, offered_bps=60_000_000, seconds=2, num_slices=8)
        finally:
            change.join()

    settle(
        step,
        lambda run: 47.5e6 < run.slices_bps[0] < 52.5e6 and 14.25e6 < run.slices_bps[-1] < 15.75e6,
        "50 and then 15 Mbit/s",
        needed_bps=55e6,
    )


def test_changing_shapes_all_the_time_loses_nothing(lab: Lab) -> None:
    shapes = [parse_link(text) for text in ("80ms/5M/0%", "2ms/max/0%", "40ms/50M/0%,jitter=5ms", "10ms/1G/0%")]
    with sending(lab, count=3_000, rate_pps=1_500) as collected:
        for step in range(60):
            lab.emulator.set("a", "b", shapes[step % len(shapes)])
            time.sleep(0.03)
    assert collected[0].numbers == list(range(3_000))


def test_the_two_directions_of_a_link_are_independent(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(delay_us=30_000, rate_bps=40_000_000))
    lab.emulator.set("b", "a", LinkShape(delay_us=5_000, loss_ppm=0, rate_bps=10_000_000))
    assert round_trip_us(lab, "a", "b") == pytest.approx(35_000, rel=0.05)
    assert round_trip_us(lab, "b", "a") == pytest.approx(35_000, rel=0.05)
    assert round_trip_us(lab, "a", "c") < 2_000
    assert_rate(lambda: udp_rate(lab, offered_bps=50_000_000, seconds=1), 40_000_000)


def test_links_do_not_share_a_queue(lab: Lab) -> None:
    lab.emulator.set("a", "b", LinkShape(rate_bps=5_000_000, queue_bytes=200_000))
    lab.emulator.set_link("a", "c", LinkShape(delay_us=10_000, rate_bps=100_000_000))
    with sending(lab, count=2_000, rate_pps=2_000, ip_bytes=1_000):
        time.sleep(0.4)
        assert round_trip_us(lab, "a", "c") == pytest.approx(20_000, rel=0.05)
