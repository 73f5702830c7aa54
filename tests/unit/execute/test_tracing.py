"""Passes as traces: only those that did something, step by step, and named in the plans that they write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sync_runtime.contract import names, traces
from syncgroup_operator.errors import ConflictError
from syncgroup_operator.execute.tracing import OpenPass, PassLog, Step, Value, marked
from syncgroup_operator.handlers.tracing import Tracing, start_tracing
from syncgroup_operator.planning.covering import covers
from syncgroup_operator.planning.diff import Apply, Delete
from syncgroup_operator.planning.observation import ObjectKey
from syncgroup_operator.settings import OperatorSettings
from tests.unit.telemetry.receiver import TRACES, Receiver

LINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ABOUT: Mapping[str, Value] = {traces.ATTR_GROUP: "demo", traces.ATTR_GENERATION: 3}
PLAN: dict[str, Any] = {
    "kind": "ConfigMap",
    "metadata": {"name": "plan", "namespace": "rl", "annotations": {names.ANNOTATION_PLAN_REVISION: "4"}},
    "data": {"plan.json": "{}"},
}


class Noted(OpenPass):
    traceparent = LINE

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.whole: Step | None = None

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def end(self, whole: Step) -> None:
        self.whole = whole


class Sink:
    dropped = 0

    def __init__(self) -> None:
        self.passes: list[Noted] = []

    def begin(self, start_ns: int, attributes: Mapping[str, Value]) -> OpenPass:
        self.passes.append(Noted())
        return self.passes[-1]


def test_a_pass_that_did_nothing_leaves_nothing() -> None:
    sink = Sink()
    with PassLog(sink, ABOUT) as log:
        with log.step(traces.OBSERVE):
            pass
        assert log.traceparent == ""
    assert sink.passes == []


def test_a_pass_that_did_something_has_all_its_steps_also_those_before() -> None:
    sink = Sink()
    with PassLog(sink, ABOUT) as log:
        with log.step(traces.OBSERVE) as step:
            step.attributes[traces.ATTR_MEMBERS] = 5
        log.did()
        with log.step(traces.ACT):
            assert log.traceparent == LINE
    (found,) = sink.passes
    assert [step.name for step in found.steps] == [traces.OBSERVE, traces.ACT]
    assert found.steps[0].attributes == {traces.ATTR_MEMBERS: 5}
    assert found.whole is not None
    assert found.whole.start_ns <= found.steps[0].start_ns <= found.steps[1].end_ns <= found.whole.end_ns
    assert found.whole.reason == ""


def test_a_pass_that_died_is_told_with_our_own_error() -> None:
    sink = Sink()
    with pytest.raises(ConflictError), PassLog(sink, ABOUT) as log, log.step(traces.PLAN):
        raise ConflictError("somebody else wrote the record")
    (found,) = sink.passes
    assert found.whole is not None
    assert (found.whole.reason, found.whole.sentence) == ("Conflict", "somebody else wrote the record")
    assert found.steps[0].reason == "Conflict"


def test_without_a_backend_nothing_is_named() -> None:
    with PassLog(None, ABOUT) as log:
        log.did()
        assert log.traceparent == ""


def test_a_plan_names_the_pass_that_wrote_it_and_nothing_else_does() -> None:
    trust = {"kind": "ConfigMap", "metadata": {"name": "trust", "namespace": "rl"}}
    gone = Delete("local", ObjectKey("ConfigMap", "rl", "old"), "u")
    plan, other, deleted = marked([Apply("local", PLAN), Apply("local", trust), gone], LINE)
    assert isinstance(plan, Apply)
    annotations = plan.document["metadata"]["annotations"]
    assert annotations == {names.ANNOTATION_PLAN_REVISION: "4", names.ANNOTATION_TRACEPARENT: LINE}
    assert (other, deleted) == (Apply("local", trust), gone)
    assert names.ANNOTATION_TRACEPARENT not in PLAN["metadata"]["annotations"]
    assert marked([Apply("local", PLAN)], "") == [Apply("local", PLAN)]


def test_a_plan_that_is_as_it_should_be_is_not_written_again_for_another_name() -> None:
    (written,) = marked([Apply("local", PLAN)], LINE)
    assert isinstance(written, Apply)
    assert covers(PLAN, written.document)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    found = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
    yield found
    found.close()


def started(**settings: Any) -> Tracing:
    found = start_tracing(os.environ, OperatorSettings(**settings))
    assert found is not None
    return found


@pytest.mark.timeout(60)
def test_a_pass_reaches_a_backend_as_one_trace(receiver: Receiver) -> None:
    tracing = started(namespace="ops", identity="operator-7")
    with PassLog(tracing, ABOUT) as log:
        with log.step(traces.OBSERVE):
            pass
        log.did()
        line = log.traceparent
        with log.step(traces.ACT) as act:
            act.failed("Denied", "apply Pod x: forbidden")
        act.below.append(Step(traces.REPLACE, act.start_ns, act.end_ns, {traces.ATTR_MEMBER: "demo-eu-0"}))
        log.add({traces.ATTR_PLAN_REVISION: 9})
    tracing.close()
    spans = receiver.spans()
    root, act_span, replace_span = spans[traces.PASS], spans[traces.ACT], spans[traces.REPLACE]
    assert line == f"00-{root.trace_id.hex()}-{root.span_id.hex()}-01"
    assert root.parent_span_id == b""
    assert spans[traces.OBSERVE].parent_span_id == act_span.parent_span_id == root.span_id
    assert replace_span.parent_span_id == act_span.span_id
    assert act_span.status.message == "apply Pod x: forbidden"
    attributes = {pair.key: pair.value for pair in root.attributes}
    assert attributes[traces.ATTR_PLAN_REVISION].int_value == 9
    assert attributes[traces.ATTR_GROUP].string_value == "demo"
    resource = receiver.resource()
    assert resource["service.name"] == "syncgroup-operator"
    assert resource["service.instance.id"] == "ops.operator-7.operator"
    assert tracing.dropped == 0


@pytest.mark.timeout(60)
def test_a_sampler_that_says_no_names_nothing_and_sends_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    tracing = started()
    with PassLog(tracing, ABOUT) as log:
        log.did()
        assert log.traceparent == ""
    tracing.close()
    assert receiver.bodies[TRACES] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url"), ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/no/such/file")],
)
def test_what_cannot_be_used_is_said_once_and_stops_nothing(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert start_tracing({"OTEL_TRACES_EXPORTER": "otlp", name: value}, OperatorSettings()) is None
    assert [name in record.getMessage() for record in caplog.records] == [True]


def test_nobody_asked_means_off() -> None:
    assert start_tracing({}, OperatorSettings()) is None
