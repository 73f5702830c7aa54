"""From measured durations to spans: where on the clock each stage of a version was. Pure.

The library and the session measure how long stages took, in microseconds, not when. They are laid end to end in the
order in which a version meets them, the last one ending when the whole ended: lengths are measured, positions are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sync_runtime.contract.traces import STAGES


@dataclass(frozen=True)
class StageSpan:
    """One stage on the clock, in Unix nanoseconds."""

    name: str
    start_ns: int
    end_ns: int


def lay_out(timings_us: Mapping[str, int], end_ns: int) -> tuple[StageSpan, ...]:
    """The stages among `timings_us`, in order; other names and negative durations are left out."""
    spans: list[StageSpan] = []
    for name in reversed(STAGES):
        duration_us = timings_us.get(name, -1)
        if duration_us >= 0:
            start_ns = end_ns - 1000 * duration_us
            spans.append(StageSpan(name, start_ns, end_ns))
            end_ns = start_ns
    return tuple(reversed(spans))
