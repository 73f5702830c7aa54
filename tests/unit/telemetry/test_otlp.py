"""Telemetry that is on: what reaches a real OTLP/HTTP receiver."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from sync_runtime.contract import traces
from sync_runtime.telemetry import names, start
from sync_runtime.telemetry.context import parse_traceparent
from sync_runtime.telemetry.surface import Fault, Origin, Telemetry, VersionLabel
from tests.unit.telemetry.receiver import TRACES, Receiver

pytestmark = pytest.mark.timeout(60)  # the SDK alone takes a second to import on a busy machine

TRAINER = Origin("demo", "uid-1", "local", "us-east", "trainer-0", "trainer", "0.1.0")
WORKER = Origin("demo", "uid-1", "local", "eu-west", "worker-0", "rollout", "0.1.0")
VERSION = VersionLabel("0a1b", 7, step=70)
S = 1_000_000_000
BEGIN = 1_800_000_000 * S


def _has_exporter() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


needs_exporter = pytest.mark.skipif(
    not _has_exporter(), reason="opentelemetry-exporter-otlp-proto-http is not installed"
)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    found = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
    yield found
    found.status = 200  # an exporter that still tries again comes to its end
    for thread in threading.enumerate():
        if thread.name == "telemetry-close":
            thread.join(30)  # it draws random pauses, which would disturb whatever test comes next
    found.close()


def started(origin: Origin = TRAINER) -> Telemetry:
    telemetry = start(os.environ, origin)
    assert telemetry.enabled, telemetry.problem
    return telemetry


@needs_exporter
def test_one_version_is_one_trace_over_trainer_relay_and_member(receiver: Receiver) -> None:
    trainer, relay, worker = started(), started(WORKER), started(WORKER)
    root = trainer.begin(VERSION, BEGIN)
    hop = relay.join(root.traceparent, VERSION, BEGIN + S, sampled=True)
    leaf = worker.join(hop.traceparent, VERSION, BEGIN + 2 * S, sampled=True)
    leaf.span(traces.RECEIVE, BEGIN + 2 * S, BEGIN + 3 * S, {traces.ATTR_BYTES: 70_000_000, traces.ATTR_PEER: "relay"})
    hop.span(traces.RELAY, BEGIN + S, BEGIN + 3 * S)
    root.span(traces.SEND, BEGIN, BEGIN + 3 * S, {traces.ATTR_TO_REGION: "eu-west"})
    for part in (leaf, hop, root):
        part.end(BEGIN + 4 * S)
    for telemetry in (worker, relay, trainer):
        telemetry.close()
    bodies = receiver.spans()
    assert set(bodies) == {traces.VERSION, traces.MEMBER, traces.RECEIVE, traces.RELAY, traces.SEND}
    assert len({span.trace_id for span in bodies.values()}) == 1
    version, send, receive = bodies[traces.VERSION], bodies[traces.SEND], bodies[traces.RECEIVE]
    assert version.parent_span_id == b""
    assert send.parent_span_id == version.span_id
    assert (receive.start_time_unix_nano, receive.end_time_unix_nano) == (BEGIN + 2 * S, BEGIN + 3 * S)
    attributes = {pair.key: pair.value for pair in receive.attributes}
    assert attributes[traces.ATTR_BYTES].int_value == 70_000_000
    labels = {pair.key: pair.value for pair in version.attributes}
    assert (labels[traces.ATTR_SEQ].int_value, labels[traces.ATTR_STEP].int_value) == (7, 70)


@needs_exporter
def test_the_parts_of_a_trace_are_nested_as_the_tree_of_delivery(receiver: Receiver) -> None:
    trainer, relay = started(), started(WORKER)
    root = trainer.begin(VERSION, BEGIN)
    hop = relay.join(root.traceparent, VERSION, BEGIN, sampled=True)
    sent, received = parse_traceparent(root.traceparent), parse_traceparent(hop.traceparent)
    assert sent is not None
    assert received is not None
    assert sent.sampled
    assert received.trace_id == sent.trace_id
    assert received.span_id != sent.span_id
    hop.end(BEGIN + S)
    root.end(BEGIN + S)
    relay.close()
    trainer.close()
    spans = receiver.spans()
    assert spans[traces.MEMBER].parent_span_id == spans[traces.VERSION].span_id
    assert spans[traces.VERSION].span_id == sent.span_id.to_bytes(8, "big")


@needs_exporter
def test_members_that_are_not_sampled_give_metrics_only_and_hand_the_context_on(receiver: Receiver) -> None:
    worker = started(WORKER)
    line = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    part = worker.join(line, VERSION, BEGIN, sampled=False)
    part.span(traces.DECODE, BEGIN, BEGIN + S // 2)
    part.end(BEGIN + S)
    orphan = worker.join("", VERSION, BEGIN, sampled=True)
    orphan.span(traces.DECODE, BEGIN, BEGIN + S // 2)
    orphan.end(BEGIN + S)
    worker.close()
    assert (part.traceparent, orphan.traceparent) == (line, "")
    assert receiver.spans() == {}
    (point,) = receiver.metrics()[names.STAGE_DURATION.name].histogram.data_points
    assert (point.count, point.sum) == (2, pytest.approx(1.0))
    assert point.attributes[0].value.string_value == traces.DECODE


@needs_exporter
def test_a_trace_that_was_not_sampled_at_its_root_is_not_sent(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    trainer = started()
    root = trainer.begin(VERSION, BEGIN)
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    relay = started(WORKER)
    hop = relay.join(root.traceparent, VERSION, BEGIN, sampled=True)
    hop.span(traces.RELAY, BEGIN, BEGIN + S)
    for part in (hop, root):
        part.end(BEGIN + S)
    relay.close()
    trainer.close()
    assert root.traceparent.endswith("-00")
    assert receiver.spans() == {}


@needs_exporter
def test_metrics_of_every_kind_arrive(receiver: Receiver) -> None:
    telemetry = started()
    for _ in range(2):
        telemetry.record(names.SENT_BYTES, 5, {traces.ATTR_TO_REGION: "eu-west"})
        telemetry.record(names.VERSION_SEQ, 7)
        telemetry.record(names.PAUSE_DURATION, 0.012)
    telemetry.close()
    metrics = receiver.metrics()
    assert metrics[names.SENT_BYTES.name].sum.data_points[0].as_int == 10
    assert metrics[names.SENT_BYTES.name].unit == "By"
    assert metrics[names.VERSION_SEQ.name].gauge.data_points[0].as_int == 7
    assert metrics[names.PAUSE_DURATION.name].histogram.data_points[0].count == 2


@needs_exporter
def test_the_resource_says_which_sidecar_it_is_and_the_environment_may_rename_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = started(WORKER)
    first.begin(VERSION, BEGIN).end(BEGIN + S)
    first.close()
    resource = receiver.resource()
    assert resource["service.name"] == traces.RUNTIME_SERVICE
    assert (resource[traces.ATTR_MEMBER], resource[traces.ATTR_REGION]) == ("worker-0", "eu-west")
    receiver.bodies[TRACES].clear()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=rl")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    second = started(WORKER)
    second.begin(VERSION, BEGIN).end(BEGIN + S)
    second.close()
    resource = receiver.resource()
    assert (resource["service.name"], resource["team"], resource[traces.ATTR_MEMBER]) == ("mine", "rl", "worker-0")
    assert receiver.headers[-1]["x-key"] == "abc"


@needs_exporter
def test_failures_are_marked_and_times_that_run_backwards_do_no_harm(receiver: Receiver) -> None:
    telemetry = started()
    root = telemetry.begin(VERSION, BEGIN)
    root.span(traces.ENCODE, BEGIN + S, BEGIN, fault=Fault("SpoolFull", "no room in the spool"))
    root.end(BEGIN + S, fault=Fault("SpoolFull", "no room in the spool"))
    root.end(BEGIN + 9 * S)
    telemetry.close()
    spans = receiver.spans()
    assert spans[traces.ENCODE].status.message == "no room in the spool"
    assert spans[traces.ENCODE].end_time_unix_nano == spans[traces.ENCODE].start_time_unix_nano
    assert spans[traces.VERSION].end_time_unix_nano == BEGIN + S


@needs_exporter
def test_parts_that_nobody_ended_are_sent_when_the_sidecar_ends(receiver: Receiver) -> None:
    telemetry = started()
    telemetry.begin(VERSION, time.time_ns())
    telemetry.close()
    assert receiver.spans()[traces.VERSION].status.message == "the sidecar ended first"


@needs_exporter
def test_the_number_of_open_parts_is_bounded(receiver: Receiver) -> None:
    from sync_runtime.telemetry.otel import MAX_OPEN, OtelTelemetry

    telemetry = started()
    assert isinstance(telemetry, OtelTelemetry)
    for seq in range(MAX_OPEN + 10):
        telemetry.begin(VersionLabel("0a", seq), time.time_ns())
    assert len(telemetry._open) == MAX_OPEN
    telemetry.close()


@needs_exporter
def test_a_backend_that_is_away_costs_a_bounded_time_at_the_end_and_nothing_before(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 503  # the exporter will try again for longer than we wait
    telemetry = started()
    begun = time.monotonic()
    for seq in range(100):
        trace = telemetry.begin(VersionLabel("0a", seq), BEGIN)
        trace.span(traces.SEND, BEGIN, BEGIN + S)
        trace.end(BEGIN + S)
    assert time.monotonic() - begun < 5
    begun = time.monotonic()
    telemetry.close(timeout_s=0.3)
    assert time.monotonic() - begun < 5
    assert any("not all sent" in record.message for record in caplog.records)


HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from sync_runtime import telemetry
from sync_runtime.telemetry.surface import Origin
variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
found = telemetry.start(variables, Origin("g", "u", "c", "r", "m", "trainer"))
print(found.enabled, found.problem)
"""


def test_a_missing_package_leaves_it_off_with_a_sentence() -> None:
    done = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("False the Python package opentelemetry")
    assert "pip install 'syncgroup[sidecar]'" in done.stdout
    assert "Traceback" not in done.stderr
