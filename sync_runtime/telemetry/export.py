"""Spans on their way out: a bounded queue whose losses are counted, an exporter, nothing that waits.

Shared by sidecar and operator. The SDK batches and sends in a thread of its own; what is beyond the bound is dropped at
once, so a backend that is away for hours costs a fixed amount of memory and no time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from sync_runtime.telemetry.errors import INSTALL, TelemetryError

EXPORTER: Final = "otlp_proto_http"
MAX_WAITING: Final = 4096
"""Spans that wait for the backend."""
BATCH: Final = 512
FILES: Final = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
DELAY_MS: Final = 1000
"""Between two batches: a person who looks for a trace does not wait long."""

_log = logging.getLogger(__name__)


class BoundedSpans(SpanProcessor):
    """Hands spans to the SDK's batches while few enough wait; counts the others."""

    def __init__(self, exporter: SpanExporter, most: int = MAX_WAITING) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._waiting = 0
        self.sent = 0
        self.dropped = 0
        """Spans that nobody will see: too many waited, or the backend did not take them."""
        counted = _CountedExporter(exporter, self._handed, self._answered)
        self._batches = BatchSpanProcessor(
            counted, max_queue_size=most + BATCH, max_export_batch_size=BATCH, schedule_delay_millis=DELAY_MS
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """A span is whole."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            is_full = self._waiting >= self._most
            self.dropped += is_full
            self._waiting += not is_full
            first = is_full and self.dropped == 1
        if first:
            _log.warning("the trace backend does not keep up: spans are dropped, and counted")
        if not is_full:
            self._batches.on_end(span)

    def shutdown(self) -> None:
        """Sends what waits."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Sends what waits now."""
        return self._batches.force_flush(timeout_millis)

    def _handed(self, count: int) -> None:
        with self._lock:
            self._waiting -= count

    def _answered(self, count: int, *, taken: bool) -> None:
        with self._lock:
            self.sent += count if taken else 0
            self.dropped += 0 if taken else count


class _CountedExporter(SpanExporter):
    """An exporter that says what became of batches."""

    def __init__(self, exporter: SpanExporter, handed: Any, answered: Any) -> None:
        self._exporter, self._handed, self._answered = exporter, handed, answered

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """One batch."""
        self._handed(len(spans))
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._answered(len(spans), taken=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """No more."""
        self._exporter.shutdown()


def traced(resource: Resource, endpoint: str = "") -> tuple[TracerProvider, BoundedSpans]:
    """What makes spans, and the way that they go; `endpoint` is whole, empty: the environment names it."""
    spans = BoundedSpans(exporter("traces", endpoint))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(spans)
    return provider, spans


def exporter(signal: str, endpoint: str = "") -> Any:
    """The OTLP/HTTP exporter, found as OpenTelemetry finds its own; it sets itself up from OTEL_* variables."""
    for entry in entry_points(group=f"opentelemetry_{signal}_exporter", name=EXPORTER):
        return entry.load()(endpoint=endpoint or None)
    raise TelemetryError(f"the exporter for OTLP over HTTP is missing: {INSTALL}")


def check_files(environment: Mapping[str, str]) -> None:
    """Certificates and keys that the variables name can be read; the exporter would find out at every batch anew."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}{kind}" for signal in ("", "TRACES_", "METRICS_") for kind in FILES):
        path = environment.get(name, "").strip()
        if path and not os.access(path, os.R_OK):
            raise TelemetryError(f"{name} names the file {path!r:.200}, which cannot be read")


def named(ours: Resource) -> Resource:
    """Ours first: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of the environment win, as the standard has it."""
    theirs = Resource.create()
    if str(theirs.attributes.get("service.name", "")).startswith("unknown_service"):
        return theirs.merge(ours)
    return ours.merge(theirs)
