"""How true the link emulator is: rate, delay, lateness and its own use of a core, link by link.

    .venv/bin/python tests/bench/bench_emulator.py [--quick] [--link LINK]...

Prints one JSON object per figure and line: bench, case, metric, value, unit and, where there is one, baseline, ratio,
goal, holds. Exits 1 if a goal does not hold. Runs in which the emulator was late or lost packets itself, or the sender
had no core to send enough, are repeated; if the last attempt is such a run, too, its figures say `believable: false`,
and goals missed in them end in exit status 2, as does a machine that cannot run a lab.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, from anywhere

from tests.bench.report import Report
from tests.component.linkemu.traffic import RateRun, drain, round_trips_us, tcp_rate, udp_rate
from tools.errors import ToolError
from tools.linkemu import Lab, LinkShape, parse_link

LINKS = ("40ms/10M/0%", "60ms/100M/0%", "100ms/500M/0%", "20ms/1G/0%", "5ms/1G/0%")
TOLERANCE = 0.05
DELAY_FLOOR_US = 250.0  # below 5 ms, 5 % of the delay is less than the noise of a busy machine
MAX_LATE_P99_US = 1_000
MAX_CORE_SHARE = 0.95
TCP_BUFFERS = f"4096 131072 {64 << 20}"  # one stream must be able to fill the longest link
_ATTEMPTS = 4


def _best_of(measure: Callable[[], RateRun], asked_bps: int) -> RateRun:
    run = measure()
    for _ in range(_ATTEMPTS - 1):
        if run.is_believable(asked_bps) and (not asked_bps or abs(run.rate_bps / asked_bps - 1) <= TOLERANCE):
            break
        run = measure()
    return run


def measure_link(report: Report, lab: Lab, link: str, seconds: float) -> None:
    """All figures of one link; loss and jitter are left out, they would blur the others."""
    shape = replace(parse_link(link), loss_ppm=0, jitter_us=0, burst=None)
    drain(lab)
    lab.emulator.set_link("a", "b", shape)
    _measure_delay(report, lab, link, shape)
    warm_s = 1.5 + 30 * shape.delay_us / 1e6
    runs = {"tcp": lambda: tcp_rate(lab, seconds=seconds, warm_s=warm_s)}
    if shape.rate_bps:
        roomy = replace(shape, queue_bytes=shape.rate_bps // 80)
        runs["udp"] = lambda: _udp(lab, roomy, seconds)
    for protocol, measure in runs.items():
        lab.emulator.set_link("a", "b", shape)
        run = _best_of(measure, shape.rate_bps)
        _report_run(report, f"{link} {protocol}", run, shape)


def _udp(lab: Lab, shape: LinkShape, seconds: float) -> RateRun:
    """Overload by 15 %; the queue of 100 ms bridges moments in which the sender has no core."""
    lab.emulator.set_link("a", "b", shape)
    return udp_rate(lab, offered_bps=int(shape.rate_bps * 1.15), seconds=seconds)


def _measure_delay(report: Report, lab: Lab, link: str, shape: LinkShape) -> None:
    asked_us = 2 * shape.delay_us
    measured_us = statistics.median(round_trips_us(lab, "a", "b", count=30))
    slack_us = max(TOLERANCE * asked_us, DELAY_FLOOR_US)
    if asked_us:
        report.figure(
            f"{link} echo", "round_trip", round(measured_us, 1), "us", baseline=asked_us,
            at_least=asked_us - slack_us, at_most=asked_us + slack_us,
        )  # fmt: skip
    else:
        report.figure(f"{link} echo", "round_trip", round(measured_us, 1), "us")


def _report_run(report: Report, case: str, run: RateRun, shape: LinkShape) -> None:
    late, stats, limited = run.stats.late, run.stats, shape.rate_bps > 0
    believable = run.is_believable(shape.rate_bps)
    if limited:
        asked, slack = shape.rate_bps, TOLERANCE * shape.rate_bps
        report.figure(
            case, "ip_rate", round(run.rate_bps, 1), "bit/s", baseline=asked, at_least=asked - slack,
            at_most=asked + slack, believable=believable,
        )  # fmt: skip
    else:
        report.figure(case, "ip_rate", round(run.rate_bps, 1), "bit/s", believable=believable)
    report.figure(case, "offered", round(run.offered_bps, 1), "bit/s")
    goals: list[tuple[str, float, str, float]] = [
        # Includes what the kernel does on our time: the receiving region's TCP stack runs inside our calls to send.
        ("core_share", round(stats.cpu_us / stats.elapsed_us, 3), "cores", MAX_CORE_SHARE),
        ("own_drops", stats.own_drops, "packets", 0),
    ]
    if limited:  # without a limit the queue is in the emulator itself
        goals.append(("lateness_p99", late.p99_us, "us", MAX_LATE_P99_US))
    for metric, value, unit, most in goals:
        report.figure(case, metric, value, unit, at_most=most, believable=believable)
    report.figure(case, "lateness_mean", round(late.mean_ns / 1000, 1), "us")
    report.figure(case, "over_1ms", round(late.over_1ms_share, 6), "share of packets")
    report.figure(case, "machine_idle", round(run.idle_share, 3), "share of cores")


def main() -> int:
    """Measure the asked links."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--link", action="append", help="RTT/RATE/LOSS%%[,OPTION...], e.g. 100ms/500M/0%%; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    arguments = parser.parse_args()
    report = Report("emulator")
    try:
        with Lab.start(2) as lab:
            for region in lab.regions:
                for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
                    lab.set_sysctl(region, name, TCP_BUFFERS)
            report.figure("lab", "prioritised", float(lab.emulator.prioritised), "bool")
            for link in arguments.link or LINKS:
                measure_link(report, lab, link, 1.5 if arguments.quick else 4)
            measure_link(report, lab, "0ms/max/0%", 1.5 if arguments.quick else 4)
    except ToolError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
