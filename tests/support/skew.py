"""A sidecar whose clock is wrong, as its spans tell the time. Only theirs: certificates still end when they should."""

from __future__ import annotations

import functools
import time

from sync_runtime.sidecar import tracing
from sync_runtime.telemetry.versions import VersionTraces

VARIABLE = "SYNCGROUP_TEST_CLOCK_AHEAD_S"


def set_clock(ahead_s: float) -> None:
    """In the process whose clock shall be wrong."""
    ahead_ns = int(ahead_s * 1e9)
    skewed = functools.partial(VersionTraces, clock_ns=lambda: time.time_ns() + ahead_ns)
    vars(tracing)["VersionTraces"] = skewed
