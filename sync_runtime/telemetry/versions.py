"""The traces of the versions that are on their way through one sidecar, found by version.

The session tells what happened to which version, as it happens; here it becomes spans. Off, every call returns at once.
Keeps a bounded number: the oldest is ended when it was last heard of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sync_runtime.telemetry.context import parse_traceparent
from sync_runtime.telemetry.stages import lay_out
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, Attributes, Telemetry, VersionLabel, VersionTrace

MAX_KEPT: Final = 64
_Key = tuple[str, int]


@dataclass
class _Kept:
    trace: VersionTrace
    last_ns: int
    """When it was last heard of."""


class VersionTraces:
    """Not thread-safe: the sidecar's loop owns it."""

    def __init__(
        self, telemetry: Telemetry, sampled: Callable[[], bool], clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """`sampled` is asked for every version: the plan may change who joins."""
        self._telemetry = telemetry
        self._sampled = sampled
        self._clock_ns = clock_ns
        self._kept: dict[_Key, _Kept] = {}

    def begin(self, lineage: str, seq: int, step: int | None = None) -> str:
        """A version is being published here; the line for its offers."""
        if not self._telemetry.enabled:
            return ""
        now_ns = self._clock_ns()
        return self._keep((lineage, seq), self._telemetry.begin(VersionLabel(lineage, seq, step), now_ns), now_ns)

    def join(self, traceparent: str, lineage: str, seq: int) -> str:
        """A version is offered here; the line for offers to those behind us. Offered again, it is the same part."""
        if not self._telemetry.enabled:
            return traceparent if parse_traceparent(traceparent) is not None else ""
        kept = self._kept.get((lineage, seq))
        if kept is not None:
            return kept.trace.traceparent
        now_ns = self._clock_ns()
        label = VersionLabel(lineage, seq)
        trace = self._telemetry.join(traceparent, label, now_ns, sampled=self._sampled())
        return self._keep((lineage, seq), trace, now_ns)

    def timed(
        self,
        lineage: str,
        seq: int,
        stage: str,
        spent_us: int,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        error: str = "",
    ) -> None:
        """A stage of a version is over, just now."""
        kept = self._kept.get((lineage, seq))
        if kept is not None:
            kept.last_ns = self._clock_ns()
            kept.trace.span(stage, kept.last_ns - 1000 * max(spent_us, 0), kept.last_ns, attributes, error=error)

    def timings(self, lineage: str, seq: int, timings_us: Mapping[str, int]) -> None:
        """Several stages are over, one after the other, the last just now."""
        kept = self._kept.get((lineage, seq))
        if kept is not None:
            kept.last_ns = self._clock_ns()
            for span in lay_out(timings_us, kept.last_ns):
                kept.trace.span(span.name, span.start_ns, span.end_ns)

    def finish(self, lineage: str, seq: int, error: str = "") -> None:
        """This sidecar has nothing more to do with a version."""
        kept = self._kept.pop((lineage, seq), None)
        if kept is not None:
            kept.trace.end(self._clock_ns(), error=error)

    def close(self) -> None:
        """End all, each when it was last heard of."""
        while self._kept:
            self._end_oldest()

    def _keep(self, key: _Key, trace: VersionTrace, now_ns: int) -> str:
        self._kept[key] = _Kept(trace, now_ns)
        if len(self._kept) > MAX_KEPT:
            self._end_oldest()
        return trace.traceparent

    def _end_oldest(self) -> None:
        kept = self._kept.pop(next(iter(self._kept)))
        kept.trace.end(kept.last_ns)
