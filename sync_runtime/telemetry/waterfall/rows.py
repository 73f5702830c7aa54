"""From a trace to the rows of its waterfall: who comes under whom, when on one common clock, in which words. Pure.

Parentage comes from the spans alone; clocks only decide where a bar stands. A member's clock may be wrong by hours:
what a parent sent cannot have come before or long after, so such a part is moved to where its parent's span of sending
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sync_runtime.contract import traces
from sync_runtime.telemetry.waterfall.documents import Trace, TraceSpan

TOLERANCE_NS: Final = 1_000_000_000
"""Clocks that are kept in step differ by less, and so does the time that a busy member takes to hear an offer."""
PARTS: Final = frozenset({traces.VERSION, traces.MEMBER})
_KB: Final = 1000.0


@dataclass(frozen=True)
class Row:
    """One line of the picture."""

    depth: int
    label: str
    start_ns: int
    """Since the trace began, on the root's clock."""
    duration_ns: int
    detail: str
    error: str
    is_part: bool
    """A span over a whole member's work, in which the others lie."""
    clock_off_ns: int
    """By how much this member's clock was put right; 0: it was left alone."""
    span: TraceSpan

    @property
    def end_ns(self) -> int:
        """Since the trace began."""
        return self.start_ns + self.duration_ns


def rows_of(trace: Trace) -> tuple[Row, ...]:
    """Every span once, a parent before its children: its own stages in the order of time, then those it sent to."""
    known = {span.span_id for span in trace.spans}
    children: dict[str, list[TraceSpan]] = {}
    for span in trace.spans:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    found: list[Row] = []
    root = trace.root
    for top in sorted(children.get("", ()), key=lambda span: (span is not root, span.start_ns, span.span_id)):
        _visit(top, None, children, found)
    for span in trace.spans if len(found) < len(trace.spans) else ():  # what hangs in a circle has no top
        if all(row.span is not span for row in found):
            found.append(_row(span, 0, 0))
    began_ns = min((row.start_ns for row in found), default=0)
    return tuple(replace(row, start_ns=row.start_ns - began_ns) for row in found)


def title_of(trace: Trace) -> str:
    """The version in a line."""
    root, rows = trace.root, rows_of(trace)
    seq = root.attributes.get(traces.ATTR_SEQ)
    words = f"{root.name} {seq}" if seq is not None else root.name
    step = root.attributes.get(traces.ATTR_STEP)
    words += f" (step {step})" if step is not None else ""
    group = root.resource.get(traces.ATTR_GROUP)
    words += f" of {group}" if group else ""
    members = len({span.member for span in trace.spans})
    sent = sum(_number(span, traces.ATTR_BYTES) for span in trace.spans if span.name == traces.SEND)
    failed = sum(bool(span.error) for span in trace.spans)
    parts = [
        duration(max((row.end_ns for row in rows), default=0)),
        _counted(members, "member"),
        _counted(len(trace.spans), "span"),
    ]
    parts += [f"{size(sent)} sent"] if sent else []
    parts += [_counted(failed, "error")] if failed else []
    return f"{words}: {', '.join(parts)}"


def duration(value_ns: int) -> str:
    """For people, with three digits."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns >= scale:
            return f"{value_ns / scale:.3g} {unit}" if value_ns < 1000 * scale else f"{value_ns / scale:.0f} {unit}"
    return f"{value_ns} ns"


def size(value_bytes: float) -> str:
    """For people."""
    for unit in ("B", "kB", "MB", "GB"):
        if value_bytes < _KB:
            return f"{value_bytes:.3g} {unit}"
        value_bytes /= _KB
    return f"{value_bytes:.3g} TB"


def _visit(top: TraceSpan, above: Row | None, children: Mapping[str, list[TraceSpan]], found: list[Row]) -> None:
    """Depth first without recursion: a hostile document may be a chain of thousands."""
    waiting: list[tuple[TraceSpan, Row | None]] = [(top, above)]
    while waiting:
        span, parent = waiting.pop()
        row = _row(span, 0 if parent is None else parent.depth + 1, _shift(span, parent, children))
        found.append(row)
        below = children.get(span.span_id, ())
        ordered = sorted(below, key=lambda one: _order(one, row, children))
        waiting += [(one, row) for one in reversed(ordered)]


def _order(span: TraceSpan, parent: Row, children: Mapping[str, list[TraceSpan]]) -> tuple[bool, int, str, str]:
    """A member's own stages first, then the members that it sent to; each by time."""
    start_ns = span.start_ns + _shift(span, parent, children)
    return span.member != parent.span.member, start_ns, span.name, span.span_id


def _shift(span: TraceSpan, parent: Row | None, children: Mapping[str, list[TraceSpan]]) -> int:
    """What is added to a span's times so that they are on the root's clock."""
    if parent is None:
        return 0
    if span.member == parent.span.member:
        return parent.clock_off_ns
    sends = [
        one
        for one in children.get(parent.span.span_id, ())
        if one.name == traces.SEND and one.attributes.get(traces.ATTR_PEER) == span.member
    ]
    if not sends:
        earliest = parent.span.start_ns + parent.clock_off_ns
        return 0 if span.start_ns >= earliest else earliest - span.start_ns
    return min((_off(span, one, parent.span, parent.clock_off_ns) for one in sends), key=abs)


def _off(span: TraceSpan, send: TraceSpan, parent: TraceSpan, parent_off_ns: int) -> int:
    """How far a part begins from where it was sent to; 0: it may well have begun then.

    A part begins with the offer, which goes out before the first bucket does: at any time since the parent's own begin.
    """
    earliest_ns = parent.start_ns + parent_off_ns - TOLERANCE_NS
    is_plausible = earliest_ns <= span.start_ns <= send.end_ns + parent_off_ns + TOLERANCE_NS
    return 0 if is_plausible else send.start_ns + parent_off_ns - span.start_ns


def _row(span: TraceSpan, depth: int, shift_ns: int) -> Row:
    is_part = span.name in PARTS
    where = f" ({span.region})" if span.region else ""
    peer = span.attributes.get(traces.ATTR_PEER)
    label = f"{span.member}{where}" if is_part else f"{span.name} to {peer}" if _is_send(span) and peer else span.name
    return Row(
        depth=depth,
        label=label,
        start_ns=span.start_ns + shift_ns,
        duration_ns=span.duration_ns,
        detail=", ".join(_details(span, shift_ns if is_part else 0)),
        error=span.error,
        is_part=is_part,
        clock_off_ns=shift_ns,
        span=span,
    )


def _is_send(span: TraceSpan) -> bool:
    return span.name == traces.SEND


def _details(span: TraceSpan, shift_ns: int) -> Iterable[str]:
    size_bytes, repeated = _number(span, traces.ATTR_BYTES), _number(span, traces.ATTR_REPEATED_BYTES)
    if size_bytes:
        yield size(size_bytes)
    if repeated:
        yield f"{size(repeated)} of it again"
    streams = _number(span, traces.ATTR_STREAMS)
    if streams:
        yield _counted(int(streams), "stream")
    bucket = _number(span, traces.ATTR_BUCKET_BYTES)
    if bucket:
        yield f"buckets of {size(bucket)}"
    codec = span.attributes.get(traces.ATTR_CODEC)
    if codec:
        yield str(codec)
    if shift_ns:
        yield f"clock {duration(abs(shift_ns))} {'behind' if shift_ns > 0 else 'ahead'}"


def _number(span: TraceSpan, name: str) -> float:
    value = span.attributes.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
