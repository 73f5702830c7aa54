"""A link measures as it was asked for: within 5 % of its rate in IP bytes and of its delay, up to 1 Gbit/s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.component.linkemu.judgement import assert_rate
from tests.component.linkemu.traffic import round_trip_us, tcp_rate, udp_rate
from tools.linkemu import Lab, LinkShape, parse_link

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]

TOLERANCE = 0.05
_MAX_ATTEMPTS = 5


@pytest.mark.parametrize("rtt_us", [1_000, 5_000, 20_000, 100_000, 250_000])
def test_an_echo_takes_the_round_trip_asked_for(lab: Lab, rtt_us: int) -> None:
    lab.emulator.set_link("a", "b", LinkShape(delay_us=rtt_us // 2, rate_bps=1_000_000_000))
    measured_us = []
    for _ in range(_MAX_ATTEMPTS):
        lab.emulator.reset()
        measured_us.append(round_trip_us(lab, "a", "b"))
        if abs(measured_us[-1] - rtt_us) <= max(TOLERANCE * rtt_us, 300):
            return
    pytest.fail(f"asked for {rtt_us} us, measured {measured_us} us, lateness {lab.emulator.stats().late}")


@pytest.mark.parametrize("link", ["40ms/10M/0%", "20ms/100M/0%", "20ms/500M/0%", "10ms/1G/0%"])
def test_one_tcp_stream_fills_the_link_and_no_more(lab: Lab, link: str) -> None:
    shape = parse_link(link)
    lab.emulator.set_link("a", "b", shape)
    assert_rate(lambda: tcp_rate(lab, seconds=2), shape.rate_bps)


@pytest.mark.parametrize("link", ["40ms/10M/0%", "20ms/100M/0%", "20ms/500M/0%", "10ms/1G/0%"])
def test_too_many_datagrams_arrive_at_the_rate_of_the_link(lab: Lab, link: str) -> None:
    shape = parse_link(link)
    queue_bytes = shape.rate_bps // 8 // 10  # 100 ms: the sender may be kept from running for a while
    lab.emulator.set_link("a", "b", replace(shape, queue_bytes=queue_bytes))
    assert_rate(lambda: udp_rate(lab, offered_bps=int(shape.rate_bps * 1.15), seconds=2), shape.rate_bps)


def test_small_datagrams_are_limited_by_bytes_of_ip_as_well(lab: Lab) -> None:
    lab.emulator.set_link("a", "b", parse_link("20ms/20M/0%"))
    assert_rate(lambda: udp_rate(lab, offered_bps=25_000_000, seconds=2, ip_bytes=200), 20_000_000)


def test_below_its_rate_a_link_loses_nothing(lab: Lab) -> None:
    lab.emulator.set_link("a", "b", parse_link("20ms/100M/0%,queue=2M"))
    pair = assert_rate(lambda: udp_rate(lab, offered_bps=50_000_000, seconds=2), 50_000_000).stats.pair("a", "b")
    assert (pair.lost, pair.queue_full) == (0, 0)


def test_the_kernel_drops_nothing_on_the_way_to_the_emulator(lab: Lab) -> None:
    lab.emulator.set_link("a", "b", parse_link("10ms/1G/0%"))
    before = lab.interface_counters("a")["tx_dropped"]
    run = tcp_rate(lab, seconds=2)
    assert lab.interface_counters("a")["tx_dropped"] == before
    assert run.stats.own_drops == 0
