"""When a measurement counts: runs that say nothing about the link are repeated, never passed.

A busy machine makes the emulator late or keeps the sender from sending enough. Such a run is no evidence for or against
the link. If there is none but such runs, and no core was idle meanwhile, the test is skipped with the figures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.component.linkemu.traffic import BUSY_IDLE_SHARE, RateRun

_MAX_RUNS, _MAX_BELIEVED = 6, 3


def settle(
    measure: Callable[[], RateRun], holds: Callable[[RateRun], bool], what: str, needed_bps: float = 0
) -> RateRun:
    """The first of at most three believable runs for which `holds`; without one the test fails."""
    runs: list[RateRun] = []
    believed: list[RateRun] = []
    while len(runs) < _MAX_RUNS and len(believed) < _MAX_BELIEVED:
        run = measure()
        runs.append(run)
        if run.is_believable(needed_bps):
            believed.append(run)
            if holds(run):
                return run
    figures = "; ".join(map(str, runs))
    if not believed and all(run.idle_share < BUSY_IDLE_SHARE for run in runs):
        pytest.skip(f"the machine is too busy to tell whether {what}: {figures}")
    pytest.fail(f"not {what}: {figures}")


def assert_rate(measure: Callable[[], RateRun], asked_bps: float, tolerance: float = 0.05) -> RateRun:
    """The measured rate is the asked one."""
    what = f"within {tolerance:.0%} of {asked_bps / 1e6} Mbit/s"
    return settle(measure, lambda run: abs(run.rate_bps / asked_bps - 1) <= tolerance, what, asked_bps)
