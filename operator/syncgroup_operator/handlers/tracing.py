"""Passes as OpenTelemetry spans, sent as the runtime sends its own: bounded, counted, off unless OTEL_* says so.

The only module of the operator that speaks OpenTelemetry. What a pass did comes from `execute.tracing`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sync_runtime.contract import traces
from sync_runtime.telemetry.context import TraceParent
from sync_runtime.telemetry.errors import TelemetryError
from sync_runtime.telemetry.switch import read_switch
from syncgroup_operator.execute.tracing import OpenPass, PassSink, Step, Value
from syncgroup_operator.settings import OperatorSettings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

SCOPE: Final = "syncgroup_operator"
CONTAINER: Final = "operator"
CLOSE_S: Final = 2.0
"""The end of a replica does not wait longer for a backend."""
_log = logging.getLogger(__name__)


class Tracing(PassSink):
    """Where passes go, until it is closed."""

    def __init__(self, tracer: Tracer, provider: Any, spans: Any) -> None:
        """Use `start_tracing`."""
        self._tracer, self._provider, self._spans = tracer, provider, spans

    @property
    def dropped(self) -> int:
        """Spans that no backend took."""
        return int(self._spans.dropped)

    def begin(self, start_ns: int, attributes: Mapping[str, Value]) -> OpenPass:
        """A pass did something: a trace of its own."""
        from opentelemetry.context import Context  # noqa: PLC0415 only while it is on

        span = self._tracer.start_span(traces.PASS, Context(), attributes=dict(attributes), start_time=start_ns)
        return _TracedPass(self._tracer, span)

    def close(self) -> None:
        """Send what waits, for a moment; the SDK's own end may take longer than a replica has."""
        thread = threading.Thread(target=self._provider.shutdown, name="telemetry-close", daemon=True)
        thread.start()
        thread.join(CLOSE_S)


class _TracedPass(OpenPass):
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._span = tracer, span
        context = span.get_span_context()
        is_sampled = context.trace_flags.sampled
        self._line = str(TraceParent(context.trace_id, context.span_id, is_sampled)) if is_sampled else ""

    @property
    def traceparent(self) -> str:
        return self._line

    def step(self, step: Step) -> None:
        self._add(step, self._span)

    def end(self, whole: Step) -> None:
        self._span.set_attributes(whole.attributes)
        _finish(self._span, whole)

    def _add(self, step: Step, parent: Span) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 only while it is on

        context = set_span_in_context(parent)
        span = self._tracer.start_span(step.name, context, attributes=step.attributes, start_time=step.start_ns)
        for below in step.below:
            self._add(below, span)
        _finish(span, step)


def start_tracing(environment: Mapping[str, str], settings: OperatorSettings) -> Tracing | None:
    """What the environment asks for; what is wrong with it is logged once and never stops a replica."""
    switch = read_switch(environment)
    if switch.problem:
        _log.warning("traces stay off: %s", switch.problem)
    if not switch.traces:
        return None
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 only when it is asked for

        from sync_runtime.telemetry.export import check_files, named, traced  # noqa: PLC0415

        check_files(environment)
        provider, spans = traced(named(Resource(_resource(settings))))
    except ModuleNotFoundError as error:
        _log.warning("traces stay off: the Python package %s is missing: pip install 'syncgroup[operator]'", error.name)
        return None
    except (TelemetryError, ValueError) as error:
        _log.warning("traces stay off: %s", error)
        return None
    return Tracing(provider.get_tracer(SCOPE), provider, spans)


def _resource(settings: OperatorSettings) -> dict[str, str]:
    """The pod's own attributes come from OTEL_RESOURCE_ATTRIBUTES, which the chart writes."""
    try:
        version = importlib.metadata.version("syncgroup")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {
        traces.ATTR_SERVICE: traces.OPERATOR_SERVICE,
        traces.ATTR_SERVICE_NAMESPACE: settings.namespace,
        traces.ATTR_SERVICE_VERSION: version,
        traces.ATTR_INSTANCE: f"{settings.namespace}.{settings.identity}.{CONTAINER}",
    }


def _finish(span: Span, step: Step) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 only while it is on

    if step.reason:
        span.set_attribute(traces.ATTR_ERROR_TYPE, step.reason)
        span.set_status(Status(StatusCode.ERROR, step.sentence))
    span.end(max(step.start_ns, step.end_ns))
