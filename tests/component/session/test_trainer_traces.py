"""One trace per version across trainer, relay and member, as a real OTLP/HTTP receiver gets it."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.contract import traces
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member
from tests.support.models import nudge, small_model
from tests.unit.telemetry.receiver import TRACES, Receiver, message_of

pytestmark = pytest.mark.timeout(120)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
SAMPLED = Member("eu-1", "eu", ("eu-0",))
PLAIN = Member("eu-2", "eu", ("eu-0",))
PUBLISHING = {traces.VERSION, traces.EXTRACT, traces.ENCODE, traces.SPOOL, traces.SEND}
RECEIVING = {traces.MEMBER, traces.RECEIVE, traces.DECODE, traces.STAGE, traces.APPLY, traces.ACTIVATE, traces.SCRUB}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_a_version_is_one_trace_from_extraction_to_scrub(tmp_path: Path, receiver: Receiver) -> None:
    members = [TRAINER, RELAY, SAMPLED, PLAIN]
    with Group(tmp_path, members, ringBytes=1 << 20, sampledMembers=["eu-1"]) as group:
        group.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_METRICS_EXPORTER": "none"}
        group.start_all()
        trained = small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            subscribers = [
                Subscriber(small_model(), socket=group.socket(name)) for name in group.members if name != "trainer-0"
            ]
            for step in (1, 2):
                nudge(trained, step)
                seq = publisher.publish(step=step).seq
                for subscriber in subscribers:
                    follow(subscriber, seq)
                    assert subscriber.scrub()
            for subscriber in subscribers:
                subscriber.close()
        for name in group.members:
            assert group.stop(name) == 0  # sends what waits
    traces = _by_trace(receiver)
    assert len(traces) == 2
    for spans in traces.values():
        found = {member: {span.name for span in own} for member, own in spans.items()}
        assert found == {
            "trainer-0": PUBLISHING,
            "eu-0": RECEIVING | {traces.SEND, traces.RELAY},
            "eu-1": RECEIVING,
        }
        _check_tree(spans)


def test_a_backend_that_does_not_answer_delays_nothing(tmp_path: Path) -> None:
    with Group(tmp_path, [TRAINER], ringBytes=1 << 20) as group, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        group.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        group.start("trainer-0")
        trained = small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            nudge(trained, 0)
            publisher.publish()
        began = time.monotonic()
        assert group.stop("trainer-0") == 0
        assert time.monotonic() - began < 6  # the exporter alone would try for ten seconds


def _check_tree(spans: dict[str, list[Any]]) -> None:
    """Every part hangs under its parent's part, every stage under its member's part and inside the trace's time."""
    parts = {
        member: next(span for span in own if span.name in (traces.VERSION, traces.MEMBER))
        for member, own in spans.items()
    }
    assert parts["trainer-0"].parent_span_id == b""
    assert parts["eu-0"].parent_span_id == parts["trainer-0"].span_id
    assert parts["eu-1"].parent_span_id == parts["eu-0"].span_id
    for member, own in spans.items():
        for span in own:
            assert span is parts[member] or span.parent_span_id == parts[member].span_id
            assert span.start_time_unix_nano <= span.end_time_unix_nano


def _by_trace(receiver: Receiver) -> dict[bytes, dict[str, list[Any]]]:
    """Spans by trace and member."""
    found: dict[bytes, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for body in receiver.bodies[TRACES]:
        for resource in message_of("trace", "ExportTraceServiceRequest").FromString(body).resource_spans:
            attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found[span.trace_id][attributes[traces.ATTR_MEMBER]].append(span)
    return found
