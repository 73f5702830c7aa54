"""What the operator itself costs and how fast it reacts: `make bench-operator`, ARGS="--groups 100,300,1000".

A hub and two remote control planes with kwok's nodes; groups of ten pods over three clusters; every lease renewed every
30 s by a process of its own. The operator runs with the rights of its service account and its default limits. Its own
share of every delay comes from its own histograms; what a user would see, end to end, stands beside.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Final

from tests.bench import operator_cases as cases
from tests.bench.operator_lab import LabError, open_lab
from tests.bench.report import Report
from tools.devcluster import hostcheck
from tools.devcluster.config import Level

QUIET_LOAD: Final = 0.5
"""With more running beforehand, a missed goal says little."""


def measure(report: Report, groups: int, options: argparse.Namespace) -> None:
    """All cases at one size."""
    load = os.getloadavg()[0]
    context = cases.Context(report, f"{groups} groups", groups, believable=load <= QUIET_LOAD)
    context.figure("load average before", round(load, 2), "")
    with open_lab(groups) as lab:
        with lab.hub.operator("operator-0") as operator:
            started_s = time.monotonic()
            cases.create_groups(lab, operator, groups)
            context.figure("all groups ready after", round(time.monotonic() - started_s, 1), "s")
            time.sleep(options.settle_s)
            cases.steady_state(context, lab, operator, options.steady_s)
            cases.spec_changes(context, lab, operator)
            time.sleep(options.settle_s)
            cases.expiry(context, lab, operator)
            time.sleep(options.settle_s)
        cases.restart_and_hand_over(context, lab)
        if groups <= options.plain_up_to:
            cases.plain_kopf(context, lab, options.steady_s)
    context.figure("load average after", round(os.getloadavg()[0], 2), "")


def main() -> int:
    """Measure every size that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="100,300,1000", help="sizes, one after the other (%(default)s)")
    parser.add_argument("--steady-s", type=float, default=60.0, help="how long the steady state is watched")
    parser.add_argument("--settle-s", type=float, default=40.0, help="rest before each case (%(default)s)")
    parser.add_argument("--plain-up-to", type=int, default=100, help="largest size for the plain kopf operator")
    options = parser.parse_args()
    report = Report("operator")
    reason = hostcheck.why_impossible(Level.PLANES)
    if reason is not None:
        sys.stderr.write(f"not measured. {reason}\n")
        return 1
    for groups in (int(text) for text in options.groups.split(",")):
        try:
            measure(report, groups, options)
        except LabError as error:
            sys.stderr.write(f"{groups} groups: {error}\n")
            report.failed.append(f"{groups} groups")
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
