"""How regions are attached: routes, neighbours, offloads, interfaces that come back, and TUN devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.component.linkemu.conftest import start_lab_or_skip
from tests.component.linkemu.judgement import assert_rate
from tests.component.linkemu.traffic import call, datagrams, round_trip_us, running, sending, tcp_rate
from tools.errors import HostError
from tools.linkemu import Emulator, EmulatorError, Lab, LinkShape, RegionPort, offload_command, parse_link

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(120)]

_SEND_ONE = "import socket, sys; socket.socket(2, 2).sendto(b'x', (sys.argv[1], 9))"


@pytest.fixture
def own_lab() -> Iterator[Lab]:
    """A lab to take apart."""
    with start_lab_or_skip(2) as lab:
        yield lab


def _send_one(lab: Lab, address: str, region: str = "a") -> None:
    lab.run(region, [sys.executable, "-I", "-S", "-c", _SEND_ONE, address], check=True, timeout=20)


def _ip(lab: Lab, region: str | None, *lines: str) -> None:
    batch, text = ["ip", "-batch", "-"], "\n".join(lines) + "\n"
    command = lab.command(region, batch) if region else lab.core_command(batch)
    subprocess.run(command, input=text, text=True, check=True, timeout=20)


@pytest.mark.parametrize("address", ["203.0.113.9", "10.77.0.99"], ids=["nobody's", "its own region's"])
def test_packets_to_nowhere_are_counted_and_dropped(lab: Lab, address: str) -> None:
    _send_one(lab, address)
    assert lab.emulator.stats().port("a").no_route == 1


def test_ipv6_is_counted_and_dropped(lab: Lab) -> None:
    before = lab.emulator.stats().port("a").not_ipv4
    frame = (
        "import socket; s = socket.socket(17, 3); s.bind(('eth0', 0)); s.send(bytes(12) + b'\\x86\\xdd' + bytes(40))"
    )
    lab.run("a", [sys.executable, "-I", "-S", "-c", frame], check=True, timeout=20)
    assert lab.emulator.stats().port("a").not_ipv4 > before


def test_the_longest_prefix_wins_and_may_change(lab: Lab) -> None:
    address = lab.address("b")
    lab.emulator.add_route("c", f"{address}/32")
    _send_one(lab, address)
    lab.emulator.remove_route("c", f"{address}/32")
    stats = lab.emulator.stats()
    assert (stats.pair("a", "c").in_packets, stats.pair("a", "b").in_packets) == (1, 0)
    assert round_trip_us(lab, "a", "b") < 5_000


def test_a_region_without_a_neighbour_entry_finds_the_gateway_by_asking(own_lab: Lab) -> None:
    for region in own_lab.regions:
        _ip(own_lab, region, "neigh del 169.254.1.1 dev eth0")
    assert round_trip_us(own_lab, "a", "b") < 5_000


def test_a_sysctl_of_a_region_is_its_own(own_lab: Lab) -> None:
    own_lab.set_sysctl("a", "net.ipv4.tcp_slow_start_after_idle", "0")
    read = ["cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"]
    values = [
        own_lab.run(region, read, check=True, capture_output=True, text=True).stdout for region in own_lab.regions
    ]
    assert values == ["0\n", "1\n"]
    with pytest.raises(HostError, match="tcp_colour"):
        own_lab.set_sysctl("a", "net.ipv4.tcp_colour", "red")


def test_large_sends_are_cut_into_packets_before_the_link(lab: Lab) -> None:
    arrivals = datagrams(lab, count=400, rate_pps=100_000, ip_bytes=1_400)
    pair = lab.emulator.stats().pair("a", "b")
    assert arrivals.numbers == list(range(400))
    assert (pair.in_packets, pair.in_bytes) == (400, 400 * 1_400)


def test_without_a_namespace_to_enter_the_address_is_learned_and_offloads_are_the_callers(own_lab: Lab) -> None:
    own_lab.emulator.stop()
    for region in own_lab.regions:  # new interfaces, as the kernel makes them
        netns = own_lab.netns(region)
        index = own_lab.regions.index(region)
        _ip(own_lab, None, f"link del wan-{region}", f"link add wan-{region} type veth peer name eth0 netns {netns}")
        _ip(own_lab, None, f"link set wan-{region} up")
        _ip(own_lab, region, "link set eth0 up", f"addr add 10.77.{index}.1/32 dev eth0")
        _ip(own_lab, region, "route add default via 169.254.1.1 dev eth0 onlink")
    ports = [
        RegionPort(name=region, interface=f"wan-{region}", prefixes=(f"{own_lab.address(region)}/32",))
        for region in own_lab.regions
    ]
    with Emulator.start(ports, enter=own_lab.core_command([])) as emulator:
        for region in own_lab.regions:  # whoever has spoken once can be reached
            _send_one(own_lab, "203.0.113.9", region)
        call(own_lab, "b", "echo", own_lab.address("a"), 1, 0)
        emulator.reset()
        _send_one(own_lab, own_lab.address("b"))
        assert emulator.stats().port("a").offloaded == 1
        for region in own_lab.regions:
            own_lab.run(region, offload_command(), check=True, timeout=20)
        with sending(own_lab, count=400, rate_pps=100_000, ip_bytes=1_400) as collected:
            pass
        assert collected[0].numbers == list(range(400))
        assert emulator.stats().port("a").offloaded == 1


def test_an_interface_made_anew_is_attached_again_on_request(own_lab: Lab) -> None:
    _ip(own_lab, None, "link del wan-a")
    netns = own_lab.netns("a")
    with pytest.raises(EmulatorError, match=r"wan-a|eth0"):
        own_lab.emulator.reopen("a")
    _ip(own_lab, None, f"link add wan-a type veth peer name eth0 netns {netns}", "link set wan-a up")
    _ip(own_lab, "a", "link set eth0 up", "addr add 10.77.0.1/32 dev eth0")
    _ip(own_lab, "a", "route add default via 169.254.1.1 dev eth0 onlink")
    own_lab.emulator.reopen("a")
    assert round_trip_us(own_lab, "a", "b") < 5_000
    assert own_lab.emulator.stats().port("a").open


def test_an_interface_that_goes_down_neither_ends_nor_heats_the_emulator(own_lab: Lab) -> None:
    with running(own_lab, "a", "udp_source", own_lab.address("b"), 9, 8_000_000, 1_000, 3_000, waits=False):
        _ip(own_lab, None, "link set wan-b down")
        own_lab.emulator.reset()
        own_lab.run("b", ["sleep", "1"], check=True, timeout=20)
        stats = own_lab.emulator.stats()
    assert stats.cpu_us < 0.5 * stats.elapsed_us
    _ip(own_lab, None, "link set wan-b up")
    assert round_trip_us(own_lab, "a", "b") < 5_000


def test_a_tun_device_carries_the_same_link() -> None:
    try:
        started = Lab.start(2, link=parse_link("20ms/100M/0%"), kind="tun")
    except EmulatorError as error:
        pytest.skip(str(error))
    with started as lab:
        assert round_trip_us(lab, "a", "b") == pytest.approx(20_000, rel=0.05)
        # The meter takes off Ethernet headers, which a TUN device does not have.
        assert_rate(lambda: tcp_rate(lab, seconds=2), 100_000_000 * (1 - 14 / 1500))
        lab.emulator.set("a", "b", LinkShape(loss_ppm=1_000_000))
        with sending(lab, count=50, rate_pps=1_000, patience_s=1) as collected:
            pass
        assert collected[0].numbers == []
