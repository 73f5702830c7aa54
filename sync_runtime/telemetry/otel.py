"""Telemetry that is on: spans and metrics through OpenTelemetry's SDK to an OTLP/HTTP endpoint.

The only module of the runtime that imports OpenTelemetry. The SDK batches and sends in threads of its own and drops
what it cannot get rid of; nothing here waits for the network but `close`, and that for a bounded time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from sync_runtime.telemetry import names
from sync_runtime.telemetry.context import TraceParent, parse_traceparent
from sync_runtime.telemetry.errors import INSTALL, TelemetryError
from sync_runtime.telemetry.names import Metric
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, Attributes, Origin, VersionLabel, VersionTrace
from sync_runtime.telemetry.switch import Switch

EXPORTER: Final = "otlp_proto_http"
MAX_OPEN: Final = 256
"""Versions whose part is not over yet; the oldest is ended for us beyond that."""
_KINDS: Final = {names.SEND: SpanKind.PRODUCER, names.RECEIVE: SpanKind.CONSUMER}

_log = logging.getLogger(__name__)


class OtelTelemetry:
    """Traces and metrics of one sidecar."""

    enabled = True

    def __init__(self, switch: Switch, origin: Origin) -> None:
        self.problem = switch.problem
        resource = _resource(origin)
        self._tracing: TracerProvider | None = None
        self._metering: MeterProvider | None = None
        if switch.traces:
            self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._tracing.add_span_processor(BatchSpanProcessor(_exporter("traces")))
        if switch.metrics:
            reader = PeriodicExportingMetricReader(_exporter("metrics"))
            self._metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._instruments = _instruments(self._metering)
        self._open: dict[OtelTrace, None] = {}
        self._lock = threading.Lock()

    def begin(self, version: VersionLabel, start_ns: int) -> VersionTrace:
        """The trace of a version that is being published here."""
        return self._part(names.VERSION, None, version, start_ns)

    def join(self, traceparent: str, version: VersionLabel, start_ns: int, *, sampled: bool) -> VersionTrace:
        """This sidecar's part of a trace begun elsewhere; without a context there is no trace to join."""
        parent = parse_traceparent(traceparent)
        if parent is None or not sampled:
            return OtelTrace(self, None, str(parent or ""))
        return self._part(names.MEMBER, parent, version, start_ns)

    def record(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """A counter grows by `value`, a gauge becomes it, a histogram takes it in."""
        instrument = self._instruments.get(metric.name)
        if instrument is not None:
            instrument(value, attributes)

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is waiting, for so long at most."""
        with self._lock:
            unfinished = list(self._open)
        for part in unfinished:
            part.abandon("the sidecar ended first")
        # The SDK retries inside shutdown, longer than a pod may have: it does so in a thread that nobody waits for.
        thread = threading.Thread(target=self._shut_down, name="telemetry-close", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            _log.warning("telemetry was not all sent within %g s", timeout_s)

    def stage_span(self, name: str, start_ns: int, parent: Span, attributes: Attributes) -> Span | None:
        """A span of a stage under a part's own."""
        if self._tracing is None:
            return None
        kind = _KINDS.get(name, SpanKind.INTERNAL)
        tracer = self._tracing.get_tracer(names.SCOPE)
        context = set_span_in_context(parent)
        return tracer.start_span(name, context, kind, dict(attributes), start_time=start_ns)

    def forget(self, part: OtelTrace) -> None:
        """A part is over."""
        with self._lock:
            self._open.pop(part, None)

    def _part(self, name: str, parent: TraceParent | None, version: VersionLabel, start_ns: int) -> VersionTrace:
        if self._tracing is None:
            return OtelTrace(self, None, str(parent or ""))
        context = None if parent is None else set_span_in_context(NonRecordingSpan(_remote(parent)))
        attributes: dict[str, str | int] = {names.ATTR_LINEAGE: version.lineage, names.ATTR_SEQ: version.seq}
        if version.step is not None:
            attributes[names.ATTR_STEP] = version.step
        tracer = self._tracing.get_tracer(names.SCOPE)
        span = tracer.start_span(name, context, SpanKind.INTERNAL, attributes, start_time=start_ns)
        part = OtelTrace(self, span, str(_local(span.get_span_context())))
        with self._lock:
            self._open[part] = None
            oldest = next(iter(self._open)) if len(self._open) > MAX_OPEN else None
        if oldest is not None:
            oldest.abandon("nobody ended it")
        return part

    def _shut_down(self) -> None:
        if self._tracing is not None:
            self._tracing.shutdown()
        if self._metering is not None:
            self._metering.shutdown()


class OtelTrace:
    """One sidecar's part of a version's trace; without a span it only feeds metrics and hands the context on."""

    def __init__(self, telemetry: OtelTelemetry, span: Span | None, traceparent: str) -> None:
        self._telemetry = telemetry
        self._span = span
        self.traceparent = traceparent

    def span(
        self, name: str, start_ns: int, end_ns: int, attributes: Attributes = NO_ATTRIBUTES, *, error: str = ""
    ) -> None:
        """A stage that is over."""
        end_ns = max(start_ns, end_ns)  # a clock that was set back must not make a span of negative length
        duration_s = (end_ns - start_ns) / 1e9
        self._telemetry.record(names.STAGE_DURATION, duration_s, {names.ATTR_STAGE: name})
        if self._span is None:
            return
        span = self._telemetry.stage_span(name, start_ns, self._span, attributes)
        if span is not None:
            _finish(span, end_ns, error)

    def end(self, end_ns: int, *, error: str = "") -> None:
        """This sidecar's part is over."""
        self._telemetry.forget(self)
        if self._span is not None and self._span.is_recording():
            _finish(self._span, end_ns, error)

    def abandon(self, error: str) -> None:
        """End it now, since nobody else did."""
        self._telemetry.forget(self)
        if self._span is not None and self._span.is_recording():
            self._span.set_status(Status(StatusCode.ERROR, error))
            self._span.end()


def _exporter(signal: str) -> Any:
    """The OTLP/HTTP exporter, found as OpenTelemetry finds its own; it sets itself up from OTEL_* variables."""
    found = entry_points(group=f"opentelemetry_{signal}_exporter", name=EXPORTER)
    for entry in found:
        return entry.load()()
    raise TelemetryError(f"the exporter for OTLP over HTTP is missing: {INSTALL}")


def _finish(span: Span, end_ns: int, error: str) -> None:
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(end_ns)


def _remote(parent: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)


def _local(context: SpanContext) -> TraceParent:
    return TraceParent(context.trace_id, context.span_id, context.trace_flags.sampled)


def _resource(origin: Origin) -> Resource:
    """Ours first: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of the environment win, as the standard has it."""
    ours = Resource(
        {
            "service.name": names.SERVICE,
            "service.version": origin.runtime_version,
            "service.instance.id": origin.member,
            names.ATTR_GROUP: origin.group,
            names.ATTR_GROUP_UID: origin.group_uid,
            names.ATTR_CLUSTER: origin.cluster,
            names.ATTR_REGION: origin.region,
            names.ATTR_MEMBER: origin.member,
            names.ATTR_ROLE: origin.role,
        }
    )
    theirs = Resource.create()
    if theirs.attributes.get("service.name", "").startswith("unknown_service"):  # type: ignore[union-attr]
        return theirs.merge(ours)
    return ours.merge(theirs)


def _instruments(provider: MeterProvider | None) -> dict[str, Callable[[float, Attributes], None]]:
    """Per metric, the call that takes a value; none where metrics are off."""
    if provider is None:
        return {}
    meter = provider.get_meter(names.SCOPE)
    return {metric.name: _instrument(meter, metric) for metric in names.METRICS}


def _instrument(meter: Meter, metric: Metric) -> Callable[[float, Attributes], None]:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description).add
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.description).set
    return meter.create_histogram(metric.name, metric.unit, metric.description).record
