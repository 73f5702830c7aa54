"""Traces as backends write them in JSON, read into plain values. Bytes from elsewhere: checked, never trusted.

Two forms are read: that of Jaeger's query API (`data`) and OTLP's own (`resourceSpans`, alone or under `result`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sync_runtime.contract import traces
from sync_runtime.errors import SyncError

MAX_SPANS: Final = 20_000
_OTLP_VALUES: Final = ("stringValue", "boolValue", "intValue", "doubleValue")
_ERRORS: Final = (2, "2", "STATUS_CODE_ERROR")
Value = str | int | float | bool


class TraceDocumentError(SyncError):
    """The text is no trace; ask the backend's query API, or save its JSON again."""


@dataclass(frozen=True)
class TraceSpan:
    """One span."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty: a root."""
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    resource: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    """Why it failed; empty: it did not."""
    links: tuple[tuple[str, str], ...] = ()
    """Trace and span of what caused it."""

    @property
    def member(self) -> str:
        """Who made it."""
        found = self.resource.get(traces.ATTR_MEMBER) or self.resource.get("service.instance.id")
        return str(found or self.resource.get("service.name", ""))

    @property
    def region(self) -> str:
        """Where."""
        return str(self.resource.get(traces.ATTR_REGION, ""))

    @property
    def duration_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Trace:
    """All spans of one trace, in no order."""

    trace_id: str
    spans: tuple[TraceSpan, ...]

    @property
    def root(self) -> TraceSpan:
        """The span over all of it; where it has not come yet, the earliest that has no parent here."""
        known = {span.span_id for span in self.spans}
        roots = [span for span in self.spans if span.parent_id not in known]
        return min(roots or self.spans, key=lambda span: (bool(span.parent_id), span.start_ns, span.span_id))


def newest(found: Iterable[Trace]) -> Trace | None:
    """The one that began last."""
    return max(found, key=lambda trace: trace.root.start_ns, default=None)


def read_traces(document: object) -> tuple[Trace, ...]:
    """The traces in a parsed JSON document; raises TraceDocumentError."""
    try:
        spans = list(_spans(document))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceDocumentError(f"this is no trace as Jaeger or OTLP write it: {error!r:.200}") from error
    if len(spans) > MAX_SPANS:
        raise TraceDocumentError(f"{len(spans)} spans are more than one picture shows ({MAX_SPANS}): ask for one trace")
    found: dict[str, dict[str, TraceSpan]] = {}
    for span in spans:  # a backend that was sent a span twice shows it twice
        found.setdefault(span.trace_id, {})[span.span_id] = span
    return tuple(Trace(trace_id, tuple(own.values())) for trace_id, own in found.items())


def _spans(document: Any) -> Iterator[TraceSpan]:
    if not isinstance(document, Mapping):
        raise TypeError("not a JSON object")
    if "result" in document:
        document = document["result"]
    if "resourceSpans" in document:
        for resource in document["resourceSpans"]:
            shared = _otlp_values(resource.get("resource", {}).get("attributes", []))
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    yield _from_otlp(span, shared)
        return
    for trace in document["data"] or ():
        processes = {key: _process(one) for key, one in trace["processes"].items()}
        for span in trace["spans"]:
            yield _from_jaeger(span, processes[span["processID"]])


def _from_otlp(span: Mapping[str, Any], resource: Mapping[str, Value]) -> TraceSpan:
    status = span.get("status", {})
    failed = status.get("code") in _ERRORS
    return TraceSpan(
        trace_id=_text(span["traceId"]),
        span_id=_text(span["spanId"]),
        parent_id=_text(span.get("parentSpanId", "")),
        name=_text(span["name"]),
        **_times(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])),
        attributes=_otlp_values(span.get("attributes", [])),
        resource=resource,
        error=(_text(status.get("message", "")) or "failed") if failed else "",
        links=tuple((_text(link["traceId"]), _text(link["spanId"])) for link in span.get("links", [])),
    )


def _from_jaeger(span: Mapping[str, Any], resource: Mapping[str, Value]) -> TraceSpan:
    attributes = _jaeger_values(span.get("tags") or [])
    references = span.get("references") or []
    parents = [_text(one["spanID"]) for one in references if one["refType"] == "CHILD_OF"]
    failed = attributes.get("error") is True or attributes.get("otel.status_code") == "ERROR"
    start_ns = 1000 * int(span["startTime"])
    return TraceSpan(
        trace_id=_text(span["traceID"]),
        span_id=_text(span["spanID"]),
        parent_id=parents[0] if parents else "",
        name=_text(span["operationName"]),
        **_times(start_ns, start_ns + 1000 * int(span["duration"])),
        attributes=attributes,
        resource=resource,
        error=str(attributes.get("otel.status_description") or "failed") if failed else "",
        links=tuple(
            (_text(one["traceID"]), _text(one["spanID"])) for one in references if one["refType"] != "CHILD_OF"
        ),
    )


def _process(process: Mapping[str, Any]) -> Mapping[str, Value]:
    return {"service.name": _text(process["serviceName"]), **_jaeger_values(process.get("tags") or [])}


def _jaeger_values(tags: Iterable[Mapping[str, Any]]) -> dict[str, Value]:
    return {_text(tag["key"]): tag["value"] for tag in tags if isinstance(tag["value"], str | int | float | bool)}


def _otlp_values(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in pairs:
        for kind in _OTLP_VALUES:
            if kind in pair["value"]:
                value = pair["value"][kind]
                found[_text(pair["key"])] = int(value) if kind == "intValue" else value
    return found


def _times(start_ns: int, end_ns: int) -> dict[str, int]:
    if not 0 <= start_ns < 1 << 64:
        raise ValueError("a span begins outside of time")
    return {"start_ns": start_ns, "end_ns": max(start_ns, end_ns)}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where a text belongs")
    return value
