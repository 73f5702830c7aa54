"""The operator's passes in a real Jaeger: only those that did something, and named in the plans that they wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from sync_runtime.contract import names, traces
from sync_runtime.telemetry.context import parse_traceparent
from sync_runtime.telemetry.waterfall import Trace, TraceSpan, read_traces
from tests.support import backends
from tests.support.operator_groups import Group, beating_group
from tests.support.operators import OperatorHub
from tools.jaeger import Jaeger

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with backends.started(tmp_path_factory) as found:
        yield found.program


@pytest.fixture
def group(hub: OperatorHub) -> Iterator[Group]:
    with beating_group(hub.region, "op-traces") as found:
        yield found


def test_passes_that_did_something_arrive_and_link(
    hub: OperatorHub, group: Group, backend: Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.otlp)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    lost = group.name_of("near", 0)
    with hub.operator("traced", leader_election="false", resync_s="1") as operator:
        group.write(replicas=2, lease={"durationSeconds": 5, "lostGraceSeconds": 5})
        group.ready(100.0)
        group.alive()
        plan = _plan_of(group)
        group.driver.silent = {lost}
        group.wait(lambda: bool(_spans(backend, group.namespace, traces.REPLACE)), "a span of the replacement", 60.0)
        group.driver.silent = set()
        group.ready(60.0)
        writes = _quiet(group)
        after = _plan_of(group)
        group.wait(lambda: _writer(after) in _written(backend, group.namespace), "the pass that wrote the plan", 60.0)
        passes, told = _passes(backend, group.namespace), operator.metrics()
        assert len({revision for _, revision in writes}) == len(writes), "a plan is never written for its name alone"
        idle = told['controller_runtime_reconcile_total{controller="syncgroup",result="success"}']
        assert len(passes) < idle
    replaced = [span for trace in passes for span in trace.spans if span.name == traces.REPLACE]
    # On a machine that is too busy to beat, others may be given up as well.
    assert {span.attributes[traces.ATTR_REASON] for span in replaced} == {"LeaseExpired"}
    assert lost in {span.attributes[traces.ATTR_MEMBER] for span in replaced}
    for trace in passes:
        _check_pass(trace, group)
    for document in (plan, after):  # whoever reads a plan finds the pass that wrote it, and that it is about the plan
        (writer,) = (trace for trace in passes if int(trace.trace_id, 16) == _writer(document)[0])
        assert int(writer.root.span_id, 16) == _writer(document)[1]
        revision = int(document["metadata"]["annotations"][names.ANNOTATION_PLAN_REVISION])
        assert writer.root.attributes[traces.ATTR_PLAN_REVISION] == revision


def _check_pass(trace: Trace, group: Group) -> None:
    """One root with the group's name, steps under it, all inside of it, and who made them."""
    root = trace.root
    assert (root.name, root.parent_id) == (traces.PASS, "")
    assert root.attributes[traces.ATTR_GROUP_NAMESPACE] == group.namespace
    assert root.resource["service.name"] == traces.OPERATOR_SERVICE
    assert root.resource["service.instance.id"] == "syncgroup-system.traced.operator"
    own = {span.name: span for span in trace.spans}
    assert traces.OBSERVE in own
    assert {traces.ACT, traces.STATUS, traces.PLAN} & set(own), "it did something"
    for span in trace.spans:
        parent = own[traces.ACT] if span.name == traces.REPLACE else root
        assert span is root or span.parent_id == parent.span_id
        assert root.start_ns - 2000 <= span.start_ns <= span.end_ns <= root.end_ns + 2000


def _quiet(group: Group) -> set[tuple[str, str]]:
    """Until the plan has not changed for a while; every write that was seen meanwhile, and the plan's number in it."""
    seen: set[tuple[str, str]] = set()
    since = time.monotonic()
    while time.monotonic() - since < 3.0:
        metadata = _plan_of(group)["metadata"]
        write = str(metadata["resourceVersion"]), str(metadata["annotations"][names.ANNOTATION_PLAN_REVISION])
        if write not in seen:
            since = time.monotonic()
        seen.add(write)
        time.sleep(0.1)
    return seen


def _passes(backend: Jaeger, namespace: str) -> list[Trace]:
    """Of this group: what other tests left on the hub is looked after too."""
    tags = json.dumps({traces.ATTR_GROUP_NAMESPACE: namespace})
    words = {
        "service": traces.OPERATOR_SERVICE, "operation": traces.PASS, "tags": tags, "lookback": "1h", "limit": "500",
    }  # fmt: skip
    return list(read_traces(backend.ask("/api/traces?" + urlencode(words))))


def _writer(plan: dict[str, Any]) -> tuple[int, int]:
    """Trace and span of the pass that a plan names."""
    line = parse_traceparent(plan["metadata"]["annotations"][names.ANNOTATION_TRACEPARENT])
    assert line is not None
    return line.trace_id, line.span_id


def _written(backend: Jaeger, namespace: str) -> set[tuple[int, int]]:
    """The passes whose root has arrived: spans are sent in batches, now and then."""
    spans = _spans(backend, namespace, traces.PASS)
    return {(int(span.trace_id, 16), int(span.span_id, 16)) for span in spans}


def _spans(backend: Jaeger, namespace: str, name: str) -> list[TraceSpan]:
    return [span for trace in _passes(backend, namespace) for span in trace.spans if span.name == name]


def _plan_path(group: Group) -> str:
    plan = group.plan()
    key = names.GroupKey(plan["groupNamespace"], plan["groupName"])
    return f"/api/v1/namespaces/{group.namespace}/configmaps/{names.plan_name(key, plan['cluster'], plan['region'])}"


def _plan_of(group: Group) -> dict[str, Any]:
    return group.object(_plan_path(group))
