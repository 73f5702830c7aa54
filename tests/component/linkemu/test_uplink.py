"""An uplink is one rate and one queue for everything that a region sends, whoever it is for."""

from __future__ import annotations

import pytest

from tests.component.linkemu.judgement import assert_rate
from tests.component.linkemu.traffic import RateRun, round_trip_us, running, udp_rate
from tools.linkemu import Lab, LinkShape

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]

UPLINK_BPS = 20_000_000


def _rate_beside_another(lab: Lab) -> RateRun:
    """Of datagrams to region b, while as many go to region c; together half more than the uplink takes."""
    # Of another size, or two sources of one rhythm lock: then one of them finds room in the queue every time.
    offered_bps, ip_bytes = UPLINK_BPS * 3 // 4, 1093
    other = ("udp_source", lab.address("c"), 5003, offered_bps, ip_bytes, offered_bps * 40 // 8 // ip_bytes)
    with running(lab, "a", *other, waits=False):
        return udp_rate(lab, offered_bps=offered_bps, seconds=2)


def test_two_links_share_the_uplink_of_the_region_they_start_in(lab: Lab) -> None:
    lab.emulator.set_uplink("a", UPLINK_BPS, 250_000)
    assert_rate(lambda: _rate_beside_another(lab), UPLINK_BPS / 2, tolerance=0.25)


def test_without_an_uplink_they_share_nothing(lab: Lab) -> None:
    assert_rate(lambda: _rate_beside_another(lab), UPLINK_BPS * 3 // 4)


def test_an_uplink_adds_no_delay_of_its_own(lab: Lab) -> None:
    lab.emulator.set_link("a", "b", LinkShape(delay_us=20_000))
    lab.emulator.set_uplink("b", 1_000_000)
    took_us = round_trip_us(lab, "a", "b")
    assert 40_000 <= took_us < 60_000
