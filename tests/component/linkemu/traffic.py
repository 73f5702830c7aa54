"""Traffic through a lab and what came of it: the measuring side of the component tests and the benchmark.

Figures come from the receiving region's own kernel and programs, never from the emulator, whose counters only say
whether a run is to be believed.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from tools.linkemu import EmulatorStats, Lab

_PROGRAM = Path(__file__).with_name("traffic_program.py")
_ETHERNET_BYTES = 14
_TIMEOUT_S = 60
UDP_IP_BYTES = 1500
MAX_LATE_SHARE = 0.05
BUSY_IDLE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class RateRun:
    """One measurement of a rate."""

    rate_bps: float
    """IP bytes that reached the region, by its kernel's counters."""
    slices_bps: list[float]
    stats: EmulatorStats
    seconds: float
    idle_share: float
    """Of all cores of the machine, during the run."""

    @property
    def offered_bps(self) -> float:
        """What region a gave the link to carry."""
        return self.stats.pair("a", "b").in_bytes * 8e6 / self.stats.elapsed_us

    @property
    def in_time(self) -> bool:
        """False where the emulator was late so often or so much that the figure says little."""
        late = self.stats.late
        return late.over_1ms_share <= MAX_LATE_SHARE and late.p999_us < 0.01 * self.seconds * 1e6

    def is_believable(self, needed_bps: float = 0) -> bool:
        """False where the emulator was late or dropped packets itself, or the sender had no core to send enough.

        With an idle core, too little sent is no excuse: then the link may well be what held the sender back.
        """
        starved = self.idle_share < BUSY_IDLE_SHARE and self.offered_bps < 0.97 * needed_bps
        return self.in_time and self.stats.own_drops == 0 and not starved

    def __str__(self) -> str:
        late, own_drops = self.stats.late, self.stats.own_drops
        return (
            f"{self.rate_bps / 1e6:.2f} Mbit/s of {self.offered_bps / 1e6:.2f} offered, {late.over_1ms_share:.1%} of "
            f"packets over 1 ms late, {own_drops} dropped by the emulator, cores {self.idle_share:.0%} idle"
        )


def traffic_command(*words: object) -> list[str]:
    """The program with arguments; isolated, so that it starts quickly."""
    return [sys.executable, "-I", "-S", str(_PROGRAM), *(str(word) for word in words)]


def call(lab: Lab, region: str, *words: object) -> dict[str, Any]:
    """Run the program in a region to its end and return what it says."""
    done = lab.run(region, traffic_command(*words), check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@contextlib.contextmanager
def running(lab: Lab, region: str, *words: object, waits: bool = True) -> Iterator[IO[str]]:
    """Run the program beside the block; yields its output, past `ready` if it says so."""
    with lab.popen(region, traffic_command(*words), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            if waits:
                json.loads(process.stdout.readline())
            yield process.stdout
        finally:
            process.kill()


def drain(lab: Lab) -> None:
    """Wait until nothing is queued or in flight: what an earlier sender left would drop what comes next."""
    for _ in range(500):
        if lab.emulator.stats().pool_used == 0:
            return
        time.sleep(0.01)
    raise AssertionError("somebody is still sending")


def round_trips_us(lab: Lab, source: str, destination: str, count: int = 10, interval_s: float = 0.01) -> list[float]:
    """Times of ICMP echoes between two regions."""
    times_us: list[float] = call(lab, source, "echo", lab.address(destination), count, interval_s)["times_us"]
    return times_us


def round_trip_us(lab: Lab, source: str, destination: str) -> float:
    """The median of a few echoes."""
    return statistics.median(round_trips_us(lab, source, destination))


def _slices(marks: list[tuple[float, int, int]]) -> list[tuple[float, float]]:
    """Seconds and bit/s of each slice of a meter's marks."""
    slices = []
    for (t0_s, bytes0, packets0), (t1_s, bytes1, packets1) in pairwise(marks):
        ip_bytes = bytes1 - bytes0 - _ETHERNET_BYTES * (packets1 - packets0)
        slices.append((t1_s - t0_s, ip_bytes * 8 / (t1_s - t0_s)))
    return slices


def _read_meter(lab: Lab, output: IO[str]) -> RateRun:
    """The running meter's figures and the emulator's account of the same time."""
    json.loads(output.readline())  # it has begun
    lab.emulator.reset()
    idle, total = _core_times()
    slices = _slices(json.loads(output.readline())["marks"])
    stats = lab.emulator.stats()
    idle_after, total_after = _core_times()
    total_s = sum(s for s, _ in slices)
    return RateRun(
        rate_bps=sum(s * bps for s, bps in slices) / total_s,
        slices_bps=[bps for _, bps in slices],
        stats=stats,
        seconds=total_s,
        idle_share=(idle_after - idle) / (total_after - total),
    )


def _core_times() -> tuple[int, int]:
    """Idle and total time of all cores so far, in the kernel's ticks."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return times[3], sum(times)


def tcp_rate(lab: Lab, *, seconds: float, warm_s: float = 1.2) -> RateRun:
    """The rate of one TCP stream from region a to region b, after its start."""
    source = ("tcp_source", lab.address("b"), 5001, seconds + warm_s + 30)
    with (
        running(lab, "b", "tcp_sink", 5001),
        running(lab, "b", "meter", 5003, warm_s, seconds, 1) as output,
        running(lab, "a", *source, waits=False),
    ):
        return _read_meter(lab, output)


def udp_rate(
    lab: Lab,
    *,
    offered_bps: int,
    seconds: float,
    warm_s: float = 0.7,
    num_slices: int = 1,
    ip_bytes: int = UDP_IP_BYTES,
) -> RateRun:
    """The rate at which datagrams offered at `offered_bps` arrive in region b."""
    count = int(offered_bps * (seconds + warm_s + 30) / 8 / ip_bytes)
    source = ("udp_source", lab.address("b"), 5003, offered_bps, ip_bytes, count)
    with (
        running(lab, "b", "meter", 5003, warm_s, seconds, num_slices) as output,
        running(lab, "a", *source, waits=False),
    ):
        return _read_meter(lab, output)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Which of the numbered datagrams arrived, in the order of arrival."""

    sent: int
    numbers: list[int]
    times_us: list[int]
    on_interface: int
    """How many the region's interface saw; more than `numbers` if the receiving program was too slow."""

    @property
    def lost(self) -> list[bool]:
        """For each datagram sent, whether it is missing."""
        arrived = set(self.numbers)
        return [number not in arrived for number in range(self.sent)]


@contextlib.contextmanager
def sending(
    lab: Lab,
    *,
    count: int,
    rate_pps: int,
    ip_bytes: int = 100,
    ends: str = "ab",
    patience_s: float = 20,
    idle_s: float = 0.5,
) -> Iterator[list[Arrivals]]:
    """Send numbered datagrams beside the block; the list holds what arrived once the block has ended."""
    collected: list[Arrivals] = []
    source, destination = tuple(ends)
    before = lab.interface_counters(destination)["rx_packets"]
    with running(lab, destination, "udp_sink", 5004, patience_s, idle_s) as sink:
        words = ("udp_source", lab.address(destination), 5004, rate_pps * ip_bytes * 8, ip_bytes, count)
        with running(lab, source, *words, waits=False) as output:
            yield collected
            sent = json.loads(output.readline())["sent"]
        answer = json.loads(sink.readline())
    seen = lab.interface_counters(destination)["rx_packets"] - before
    collected.append(Arrivals(sent, answer["numbers"], answer["times_us"], seen))


def datagrams(lab: Lab, *, count: int, rate_pps: int, ip_bytes: int = 100, ends: str = "ab") -> Arrivals:
    """Send numbered datagrams and collect what arrives; again if the receiving program was too slow to see it all."""
    seen: list[tuple[int, int]] = []
    for _ in range(4):
        lab.emulator.reset()
        with sending(lab, count=count, rate_pps=rate_pps, ip_bytes=ip_bytes, ends=ends) as collected:
            pass
        if collected[0].on_interface == len(collected[0].numbers):
            return collected[0]
        seen.append((collected[0].on_interface, len(collected[0].numbers)))
    raise AssertionError(f"the receiving program could not keep up (on the interface, received): {seen}")


def is_gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def processes_in_pid_namespace(namespace: str) -> list[int]:
    """Everybody whose pid namespace is the one that `readlink /proc/PID/ns/pid` called so."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/pid") == namespace:
                found.append(int(entry))
    return found
