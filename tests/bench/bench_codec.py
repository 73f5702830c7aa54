"""Sizes and CPU speed of the codecs, with the bars they must reach: JSON lines, exit code 1 where one is missed.

    python -m tests.bench.bench_codec [--elements 1e9] [--only traces|speed|merge|anchor|densities|linear]

Ours and the baselines come from the same data in the same run. Speeds of one core are per second of CPU time, so that
waiting for a busy machine does not count; those of several cores are by the clock. Each is the best of several runs,
of the largest state of one. With 1e9 elements two states are held: about 5 GB. The last line tells what the run took.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.codec_sizes import bench_densities, bench_traces
from tests.bench.codec_speed import bench_anchor, bench_linear, bench_merge, bench_speed, warm_up
from tests.bench.report import Report

DEFAULT_TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description="Sizes and CPU speed of the codecs.")
    parser.add_argument("--elements", type=float, default=1e9, help="elements of the largest state (default 1e9)")
    parser.add_argument("--only", choices=["traces", "speed", "merge", "anchor", "densities", "linear"])
    parser.add_argument("--traces", type=Path, default=DEFAULT_TRACES, metavar="DIR", help="recorded updates")
    options = parser.parse_args()
    report, started_s = Report("codec"), time.monotonic()
    parts: dict[str, Callable[[], None]] = {
        "traces": lambda: bench_traces(report, options.traces),
        "speed": lambda: bench_speed(report),
        "merge": lambda: bench_merge(report),
        "anchor": lambda: bench_anchor(report),
        "densities": lambda: bench_densities(report, int(options.elements)),
        "linear": lambda: bench_linear(report, int(options.elements)),
    }
    warm_up()
    for name, part in parts.items():
        if options.only in (None, name):
            part()
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report.figure("the benchmark itself", "peak memory", peak_bytes / 1e9, "GB", at_most=20)
    report.figure("the benchmark itself", "duration", time.monotonic() - started_s, "s", at_most=900)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
