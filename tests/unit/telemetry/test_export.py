"""Spans on their way out: bounded, counted, and never waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="traces need OpenTelemetry's SDK")

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from sync_runtime.contract import traces
from sync_runtime.telemetry.export import BATCH, BoundedSpans
from sync_runtime.telemetry.otel import resource_of
from sync_runtime.telemetry.surface import Origin

MOST = 100


class Backend(SpanExporter):
    """A backend that answers when it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.result = SpanExportResult.SUCCESS
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.answers.wait(10)
        self.taken += len(spans)
        return self.result

    def shutdown(self) -> None:
        """Nothing."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.answers.set()


def made(spans: BoundedSpans, count: int) -> None:
    provider = TracerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_span_processor(spans)
    tracer = provider.get_tracer("test")
    for _ in range(count):
        tracer.start_span("one").end()


def test_a_backend_that_is_away_costs_a_fixed_amount_and_what_is_lost_is_counted(backend: Backend) -> None:
    spans = BoundedSpans(backend, MOST)
    began_s = time.monotonic()
    made(spans, 20 * MOST)
    assert time.monotonic() - began_s < 5
    # One batch may be in the exporter's hands already; everything else beyond the bound is gone.
    assert 20 * MOST - MOST - BATCH <= spans.dropped <= 19 * MOST
    kept = 20 * MOST - spans.dropped
    backend.answers.set()
    spans.shutdown()
    assert (backend.taken, spans.sent) == (kept, kept)


def test_a_batch_that_the_backend_refuses_is_counted(backend: Backend) -> None:
    backend.result = SpanExportResult.FAILURE
    backend.answers.set()
    spans = BoundedSpans(backend, MOST)
    made(spans, 7)
    spans.shutdown()
    assert (spans.sent, spans.dropped) == (0, 7)


def test_after_a_backend_came_back_spans_go_out_again(backend: Backend) -> None:
    spans = BoundedSpans(backend, MOST)
    made(spans, 2 * MOST)
    backend.answers.set()
    spans.force_flush()
    dropped = spans.dropped
    made(spans, MOST // 2)
    spans.shutdown()
    assert spans.dropped == dropped
    assert spans.sent == 2 * MOST - dropped + MOST // 2


def test_a_pod_is_named_as_the_conventions_have_it() -> None:
    origin = Origin(
        "demo", "uid-1", "west", "eu", "demo-eu-0", "rollout", "0.1.0", group_namespace="team",
        pod_namespace="remote", pod_name="demo-eu-0-x", pod_uid="uid-2", node="node-3",
    )  # fmt: skip
    assert dict(resource_of(origin).attributes) == {
        "service.name": "syncgroup-sidecar",
        "service.namespace": "team",
        "service.version": "0.1.0",
        "service.instance.id": "remote.demo-eu-0-x.sync-runtime",
        "k8s.namespace.name": "remote",
        "k8s.pod.name": "demo-eu-0-x",
        "k8s.pod.uid": "uid-2",
        "k8s.node.name": "node-3",
        "k8s.cluster.name": "west",
        "cloud.region": "eu",
        traces.ATTR_GROUP: "demo",
        traces.ATTR_GROUP_NAMESPACE: "team",
        traces.ATTR_GROUP_UID: "uid-1",
        traces.ATTR_CLUSTER: "west",
        traces.ATTR_REGION: "eu",
        traces.ATTR_MEMBER: "demo-eu-0",
        traces.ATTR_ROLE: "rollout",
    }


def test_outside_a_pod_nothing_of_kubernetes_is_claimed() -> None:
    resource = resource_of(Origin("demo", "uid-1", "local", "eu", "eu-0", "rollout")).attributes
    assert resource["service.instance.id"] == "eu-0"
    assert not any(name.startswith("k8s.") for name in resource)
