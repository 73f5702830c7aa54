"""The traces of the versions that are on their way through one sidecar, found by version.

The session tells what happened to which version, as it happens; here it becomes spans. Off, every call returns at once.
A part ends when it has been quiet for a while, at the time of its last news; a scrub or work that comes later still
joins it. Keeps a bounded number: the oldest is ended when it was last heard of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sync_runtime.telemetry.context import parse_traceparent
from sync_runtime.telemetry.stages import lay_out
from sync_runtime.telemetry.surface import (
    NO_ATTRIBUTES,
    NO_FAULT,
    Attributes,
    Fault,
    Telemetry,
    VersionLabel,
    VersionTrace,
)

MAX_KEPT: Final = 64
QUIET_NS: Final = 3_000_000_000
"""After so long without news a part is over: people want to see a trace soon, and its root is part of it."""
PATIENCE_NS: Final = 900_000_000_000
"""A part of which nothing at all was heard waits longer: a large version takes its time to be written, or to come."""
VersionKey = tuple[str, int]
"""Lineage and seq."""


@dataclass(frozen=True)
class PlanMark:
    """Which plan is in force, and the operator's span that made it (a traceparent, or empty)."""

    revision: int | None = None
    cause: str = ""


NO_PLAN: Final = PlanMark()


@dataclass
class _Kept:
    trace: VersionTrace
    last_ns: int
    """When it was last heard of."""
    has_news: bool = False
    is_over: bool = False


class VersionTraces:
    """Not thread-safe: the sidecar's loop owns it."""

    def __init__(
        self,
        telemetry: Telemetry,
        sampled: Callable[[], bool],
        clock_ns: Callable[[], int] = time.time_ns,
        plan: Callable[[], PlanMark] = lambda: NO_PLAN,
    ) -> None:
        """`sampled` and `plan` are asked for every version: a new plan may change who joins."""
        self._telemetry = telemetry
        self._sampled = sampled
        self._clock_ns = clock_ns
        self._plan = plan
        self._cause = ""
        """The last one that a part was linked to."""
        self._kept: dict[VersionKey, _Kept] = {}

    def begin(self, lineage: str, seq: int, step: int | None = None) -> str:
        """A version is being published here; the line for its offers."""
        if not self._telemetry.enabled:
            return ""
        now_ns = self._clock_ns()
        trace = self._telemetry.begin(self._label(lineage, seq, step), now_ns)
        return self._keep((lineage, seq), trace, now_ns)

    def join(self, traceparent: str, lineage: str, seq: int) -> str:
        """A version is offered here; the line for offers to those behind us. Offered again, it is the same part."""
        if not self._telemetry.enabled:
            return traceparent if parse_traceparent(traceparent) is not None else ""
        kept = self._kept.get((lineage, seq))
        # A first offer without a context is no trace; a later one may bring it.
        if kept is not None and (kept.trace.traceparent or parse_traceparent(traceparent) is None):
            return kept.trace.traceparent
        now_ns = self._clock_ns()
        label = self._label(lineage, seq, None)
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
        fault: Fault = NO_FAULT,
    ) -> None:
        """A stage of a version is over, just now."""
        kept = self._news((lineage, seq))
        if kept is not None:
            start_ns = kept.last_ns - 1000 * max(spent_us, 0)
            kept.trace.span(stage, start_ns, kept.last_ns, attributes, fault=fault)

    def timings(
        self,
        lineage: str,
        seq: int,
        timings_us: Mapping[str, int],
        attributes: Mapping[str, Attributes] | None = None,
    ) -> None:
        """Several stages are over, one after the other, the last just now; `attributes` by stage."""
        kept = self._news((lineage, seq))
        if kept is not None:
            for span in lay_out(timings_us, kept.last_ns):
                known = (attributes or {}).get(span.name, NO_ATTRIBUTES)
                kept.trace.span(span.name, span.start_ns, span.end_ns, known)

    def finish(self, lineage: str, seq: int, fault: Fault = NO_FAULT) -> None:
        """This sidecar has nothing more to do with a version."""
        kept = self._kept.pop((lineage, seq), None)
        if kept is not None and not kept.is_over:
            kept.trace.end(self._clock_ns(), fault=fault)

    def tidy(self, busy: Collection[VersionKey]) -> None:
        """Now and then: parts that have been quiet end. `busy` ones are being sent, received or waited for."""
        now_ns = self._clock_ns()
        for key, kept in self._kept.items():
            patience_ns = QUIET_NS if kept.has_news else PATIENCE_NS
            if key in busy:
                kept.last_ns = max(kept.last_ns, now_ns)
            elif not kept.is_over and abs(now_ns - kept.last_ns) > patience_ns:  # a clock may be set back
                self._end(kept)

    def use(self, telemetry: Telemetry) -> None:
        """From now on; what was begun ends."""
        self.close()
        self._telemetry = telemetry

    def close(self) -> None:
        """End all, each when it was last heard of."""
        while self._kept:
            self._end_oldest()

    def _label(self, lineage: str, seq: int, step: int | None) -> VersionLabel:
        plan = self._plan()
        cause, self._cause = "" if plan.cause == self._cause else plan.cause, plan.cause
        return VersionLabel(lineage, seq, step, plan.revision, cause)

    def _news(self, key: VersionKey) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None:
            kept.last_ns, kept.has_news = self._clock_ns(), True
        return kept

    def _keep(self, key: VersionKey, trace: VersionTrace, now_ns: int) -> str:
        self._kept[key] = _Kept(trace, now_ns)
        if len(self._kept) > MAX_KEPT:
            self._end_oldest()
        return trace.traceparent

    def _end_oldest(self) -> None:
        kept = self._kept.pop(next(iter(self._kept)))
        if not kept.is_over:
            self._end(kept)

    def _end(self, kept: _Kept) -> None:
        kept.is_over = True
        kept.trace.end(kept.last_ns)
