"""How well links are used: ours beside plain warm streams and beside the link's bound, on emulated wide-area links.

    python -m tests.bench.bench_links [--link RTT/RATE/LOSS%]... [--case links|events|tree|light|tls]... [--quick]

Regions are network namespaces joined by the link emulator; payloads are opaque. Prints one JSON line per figure; exits
1 where a goal does not hold. Runs in which the emulator was late are rejected and repeated; if the last attempt is one
of them, the figure `believable` is 0. Take figures from a quiet machine: `load` stands beside them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import links_events, links_local, links_tree
from tests.bench.links_lab import Run, bound_s, lab_of, run_pair
from tests.bench.report import Report
from tests.support.identities import Group
from tools.errors import ToolError
from tools.linkemu import Lab, LinkShape, parse_link

LINKS = (
    "20ms/1G/0%",
    "100ms/500M/0.1%",
    "250ms/200M/0.1%",
    "150ms/300M/1%",
    "60ms/100M/0%,queue=120K",
    "80ms/200M/0%,burst=0.02%:10%:80%",
    "5ms/1G/0%",
)
FIXED = (1, 4, 16)
SIZE_BYTES = 60_000_000
PAUSE_S = 2.0
GIGABIT = 1_000_000_000
GOALS = {"first": 0.70, "second": 0.85, "from_third": 0.92}
PLAIN_GOAL = 0.95
BEST_FIXED_GOAL = 0.97
QUEUEING_SLACK_MS = 5.0
"""Smoothed round trips of two runs of the same program differ by as much."""
_ATTEMPTS = 3


@dataclass(frozen=True)
class Bench:
    """What the measurements of one link share."""

    lab: Lab
    group: Group
    folder: Path
    shape: LinkShape
    payloads: int

    def ours(self, payloads: int) -> Run:
        """Our links, with what the memory file holds."""
        return self._believable(lambda: run_pair(self.lab, ("parent", "child"), self._parent(payloads), self._child()))

    def plain(self, streams: int, payloads: int) -> Run:
        """Plain warm streams."""
        parent = self._parent(payloads) | {"streams": streams, "bucket_bytes": 256 << 10}
        child = self._child() | {"streams": streams}
        return self._believable(lambda: run_pair(self.lab, ("plain-parent", "plain-child"), parent, child))

    def _parent(self, payloads: int) -> dict[str, Any]:
        return {
            "identity": str(self.folder / "trainer-0"),
            "memory": str(self.folder / "links.json"),
            "size_bytes": SIZE_BYTES,
            "payloads": payloads,
            "pause_s": PAUSE_S,
            "warm_up_s": 1.0 + 10 * self.shape.delay_us / 1e6,
        }

    def _child(self) -> dict[str, Any]:
        return {
            "identity": str(self.folder / "rollout-0"),
            "host": self.lab.address("a"),
            "group": self.group.group_uid,
            "member": "rollout-0",
        }

    def _believable(self, measure: Callable[[], Run]) -> Run:
        run = measure()
        for _ in range(_ATTEMPTS - 1):
            if run.believable:
                break
            run = measure()
        return run


def measure_link(report: Report, link: str, *, quick: bool) -> None:
    """One link: a run that only learns, the plain streams, and ours after a restart."""
    shape = parse_link(link)
    with lab_of(2) as (lab, group, folder):
        lab.emulator.set_link("a", "b", shape)
        group.trainer()
        group.member("rollout-0")
        bench = Bench(lab, group, folder, shape, 6 if quick else 12)
        learning = bench.ours(4 if quick else 6)
        plain = {streams: bench.plain(streams, 5 if quick else 8) for streams in FIXED}
        ours = bench.ours(bench.payloads)
    bound = bound_s(shape, SIZE_BYTES)
    fixed = {streams: bound / _median(run, "seconds") for streams, run in plain.items()}
    for streams, share in fixed.items():
        report.figure(link, f"fixed_{streams}", round(share, 4), "share of bound")
    _report_ours(report, link, shape, learning=learning, ours=ours)
    best = max(fixed, key=lambda streams: fixed[streams])
    mine = bound / _median(ours, "seconds")
    goal = PLAIN_GOAL if shape.rate_bps >= GIGABIT else BEST_FIXED_GOAL
    report.figure(link, "ours_to_best_fixed", round(mine / fixed[best], 4), "ratio", at_least=goal)
    most_ms = _median(plain[best], "queueing_ms") + QUEUEING_SLACK_MS
    report.figure(link, "queueing", round(_median(ours, "queueing_ms"), 1), "ms", at_most=round(most_ms, 1))
    runs = [learning, ours, *plain.values()]
    report.figure(link, "believable", float(all(run.believable for run in runs)), "bool")
    report.figure(link, "load", round(max(run.load for run in runs), 2), "processes")


def _report_ours(report: Report, link: str, shape: LinkShape, *, learning: Run, ours: Run) -> None:
    bound = bound_s(shape, SIZE_BYTES)
    shares = [bound / line["seconds"] for line in ours.payloads]
    report.figure(link, "bound", round(bound, 4), "s")
    report.figure(link, "ours_without_memory", round(bound / learning.payloads[0]["seconds"], 4), "share of bound")
    goals = GOALS if shape.rate_bps < GIGABIT else {}
    report.figure(link, "ours_first", round(shares[0], 4), "share of bound", at_least=goals.get("first"))
    report.figure(link, "ours_second", round(shares[1], 4), "share of bound", at_least=goals.get("second"))
    from_third = round(statistics.median(shares[2:]), 4)
    report.figure(link, "ours_from_third", from_third, "share of bound", at_least=goals.get("from_third"))
    report.figure(link, "streams", ours.payloads[-1]["streams"], "streams")
    repeated = sum(line["repeated_bytes"] for line in ours.payloads) / (SIZE_BYTES * len(shares))
    report.figure(link, "repeated_bytes", round(repeated, 5), "share")
    sender = max(line["rss_mb"] for line in ours.lines if "rss_mb" in line)
    report.figure(link, "rss_beside_payload", round(sender - SIZE_BYTES / 1e6, 1), "MB", at_most=200.0)


def _median(run: Run, figure: str) -> float:
    return float(statistics.median(line[figure] for line in run.payloads[2:]))


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; everything if nothing was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--link", action="append", help="RTT/RATE/LOSS%%[,OPTION...]; may be repeated")
    parser.add_argument("--case", action="append", choices=("links", "events", "tree", "light", "tls"))
    parser.add_argument("--quick", action="store_true", help="fewer payloads")
    wanted = parser.parse_args(arguments)
    cases = wanted.case or (["links"] if wanted.link else ["links", "events", "tree", "light", "tls"])
    report = Report("links")
    try:
        if "links" in cases:
            for link in wanted.link or LINKS:
                measure_link(report, link, quick=wanted.quick)
        rest: dict[str, Callable[[Report], None]] = {
            "events": links_events.measure,
            "tree": links_tree.measure,
            "light": links_local.measure_light,
            "tls": links_local.measure_tls,
        }
        for case, measure in rest.items():
            if case in cases:
                measure(report)
    except ToolError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
