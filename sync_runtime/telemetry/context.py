"""W3C trace context as it travels in offers: one line of text, hostile until it is parsed.

    00-<32 hex digits of the trace>-<16 hex digits of the parent span>-<2 hex digits of flags>

Pure, and without OpenTelemetry: a sidecar with telemetry off hands the line on as it came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_CHARACTERS: Final = 55
_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1


@dataclass(frozen=True)
class TraceParent:
    """Where a span belongs."""

    trace_id: int
    span_id: int
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{_SAMPLED if self.sampled else 0:02x}"


def parse_traceparent(text: str) -> TraceParent | None:
    """The context in a line; None where there is none: a trace is never worth a refusal."""
    found = _FORM.fullmatch(text) if len(text) == MAX_CHARACTERS else None
    if found is None:
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    if not trace_id or not span_id:  # the standard's way to say "invalid"
        return None
    return TraceParent(trace_id, span_id, bool(int(found[3], 16) & _SAMPLED))
