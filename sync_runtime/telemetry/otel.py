"""Telemetry that is on: spans and metrics through OpenTelemetry's SDK to an OTLP/HTTP endpoint.

With `export` the only module of the runtime that imports OpenTelemetry. Nothing here waits for the network but `close`,
and that for a bounded time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from sync_runtime.contract import traces
from sync_runtime.contract.names import RUNTIME_CONTAINER
from sync_runtime.telemetry import names
from sync_runtime.telemetry.context import TraceParent, parse_traceparent
from sync_runtime.telemetry.export import BoundedSpans, exporter, named, traced
from sync_runtime.telemetry.names import Metric
from sync_runtime.telemetry.surface import (
    NO_ATTRIBUTES,
    NO_FAULT,
    Attributes,
    Fault,
    Origin,
    VersionLabel,
    VersionTrace,
)
from sync_runtime.telemetry.switch import Switch

OTHER: Final = "_OTHER"
"""The standard's error.type where there is no better one."""
MAX_OPEN: Final = 256
"""Versions whose part is not over yet; the oldest is ended for us beyond that."""
_KINDS: Final = {traces.SEND: SpanKind.PRODUCER, traces.RECEIVE: SpanKind.CONSUMER}

_log = logging.getLogger(__name__)


class OtelTelemetry:
    """Traces and metrics of one sidecar."""

    enabled = True

    def __init__(self, switch: Switch, origin: Origin) -> None:
        self.problem = switch.problem
        resource = named(resource_of(origin))
        self._tracing: TracerProvider | None = None
        self._spans: BoundedSpans | None = None
        self._metering: MeterProvider | None = None
        if switch.traces:
            self._tracing, self._spans = traced(resource, switch.traces_endpoint)
        if switch.metrics:
            reader = PeriodicExportingMetricReader(exporter("metrics"))
            self._metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._instruments = _instruments(self._metering)
        self._open: dict[OtelTrace, None] = {}
        self._lock = threading.Lock()

    @property
    def dropped_spans(self) -> int:
        """Spans that no backend took."""
        return 0 if self._spans is None else self._spans.dropped

    def begin(self, version: VersionLabel, start_ns: int) -> VersionTrace:
        """The trace of a version that is being published here."""
        return self._part(traces.VERSION, None, version, start_ns)

    def join(self, traceparent: str, version: VersionLabel, start_ns: int, *, sampled: bool) -> VersionTrace:
        """This sidecar's part of a trace begun elsewhere; without a context there is no trace to join."""
        parent = parse_traceparent(traceparent)
        if parent is None or not sampled:
            return OtelTrace(self, None, str(parent or ""))
        return self._part(traces.MEMBER, parent, version, start_ns)

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
        attributes: dict[str, str | int] = {traces.ATTR_LINEAGE: version.lineage, traces.ATTR_SEQ: version.seq}
        if version.step is not None:
            attributes[traces.ATTR_STEP] = version.step
        if version.plan_revision is not None:
            attributes[traces.ATTR_PLAN_REVISION] = version.plan_revision
        cause = parse_traceparent(version.cause)
        links = [] if cause is None else [Link(_remote(cause))]
        tracer = self._tracing.get_tracer(names.SCOPE)
        span = tracer.start_span(name, context, SpanKind.INTERNAL, attributes, links, start_time=start_ns)
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
        self, name: str, start_ns: int, end_ns: int, attributes: Attributes = NO_ATTRIBUTES, *, fault: Fault = NO_FAULT
    ) -> None:
        """A stage that is over."""
        end_ns = max(start_ns, end_ns)  # a clock that was set back must not make a span of negative length
        duration_s = (end_ns - start_ns) / 1e9
        self._telemetry.record(names.STAGE_DURATION, duration_s, {traces.ATTR_STAGE: name})
        if self._span is None:
            return
        span = self._telemetry.stage_span(name, start_ns, self._span, attributes)
        if span is not None:
            _finish(span, end_ns, fault)

    def end(self, end_ns: int, *, fault: Fault = NO_FAULT) -> None:
        """This sidecar's part is over."""
        self._telemetry.forget(self)
        if self._span is not None and self._span.is_recording():
            _finish(self._span, end_ns, fault)

    def abandon(self, error: str) -> None:
        """End it now, since nobody else did."""
        self._telemetry.forget(self)
        if self._span is not None and self._span.is_recording():
            self._span.set_status(Status(StatusCode.ERROR, error))
            self._span.end()


def _finish(span: Span, end_ns: int, fault: Fault) -> None:
    if fault:
        span.set_attribute(traces.ATTR_ERROR_TYPE, fault.reason or OTHER)
        span.set_status(Status(StatusCode.ERROR, fault.sentence))
    span.end(end_ns)


def _remote(parent: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)


def _local(context: SpanContext) -> TraceParent:
    return TraceParent(context.trace_id, context.span_id, context.trace_flags.sampled)


def resource_of(origin: Origin) -> Resource:
    """Who makes these spans and metrics, in the words of OpenTelemetry's conventions and our own."""
    in_pod = {
        traces.ATTR_NAMESPACE: origin.pod_namespace,
        traces.ATTR_POD: origin.pod_name,
        traces.ATTR_POD_UID: origin.pod_uid,
        traces.ATTR_NODE: origin.node,
        traces.ATTR_K8S_CLUSTER: origin.cluster,
        traces.ATTR_INSTANCE: f"{origin.pod_namespace}.{origin.pod_name}.{RUNTIME_CONTAINER}",
    }
    ours = {
        traces.ATTR_SERVICE: traces.RUNTIME_SERVICE,
        traces.ATTR_SERVICE_NAMESPACE: origin.group_namespace,
        traces.ATTR_SERVICE_VERSION: origin.runtime_version,
        traces.ATTR_INSTANCE: origin.member,
        traces.ATTR_CLOUD_REGION: origin.region,
        traces.ATTR_GROUP: origin.group,
        traces.ATTR_GROUP_NAMESPACE: origin.group_namespace,
        traces.ATTR_GROUP_UID: origin.group_uid,
        traces.ATTR_CLUSTER: origin.cluster,
        traces.ATTR_REGION: origin.region,
        traces.ATTR_MEMBER: origin.member,
        traces.ATTR_ROLE: origin.role,
        **(in_pod if origin.pod_name else {}),
    }
    return Resource({name: value for name, value in ours.items() if value})


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
