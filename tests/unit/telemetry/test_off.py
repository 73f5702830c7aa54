"""Telemetry that is off: nothing imported, nothing kept, context handed on; and the pure parts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.telemetry import names, start
from sync_runtime.telemetry.context import TraceParent, parse_traceparent
from sync_runtime.telemetry.off import OFF
from sync_runtime.telemetry.stages import StageSpan, lay_out
from sync_runtime.telemetry.surface import Origin, VersionLabel, joins
from sync_runtime.telemetry.switch import read_switch

ORIGIN = Origin("demo", "uid", "local", "eu-west", "worker-0", "rollout")
LINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.timeout(20)
def test_a_sidecar_without_the_variables_imports_nothing_of_opentelemetry() -> None:
    program = """
import sys
from sync_runtime import telemetry
from sync_runtime.telemetry.surface import Origin, VersionLabel
found = telemetry.start({}, Origin("g", "u", "c", "r", "m", "trainer"))
trace = found.begin(VersionLabel("l", 1), 0)
trace.span("encode", 0, 1)
trace.end(1)
found.close()
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_off_takes_every_call_and_hands_the_context_on() -> None:
    assert start({}, ORIGIN) is OFF
    assert not OFF.enabled
    version = VersionLabel("0a", 1)
    trace = OFF.join(LINE, version, 0, sampled=True)
    trace.span(names.RECEIVE, 0, 1, {names.ATTR_BYTES: 5}, error="broken")
    trace.end(5)
    OFF.record(names.SENT_BYTES, 5)
    OFF.close()
    assert trace.traceparent == LINE
    assert OFF.join("nonsense", version, 0, sampled=True).traceparent == ""
    assert OFF.begin(version, 0).traceparent == ""


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_SERVICE_NAME": "x"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False),
        ({"OTEL_TRACES_EXPORTER": " OTLP "}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True, True),
    ],
)
def test_the_standard_variables_switch_it_on(variables: dict[str, str], traces: bool, metrics: bool) -> None:
    switch = read_switch(variables)
    assert (switch.traces, switch.metrics, switch.problem) == (traces, metrics, "")


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"},
    ],
)
def test_what_is_not_spoken_here_is_said(variables: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    found = start(variables, ORIGIN)
    assert not found.enabled
    assert "not spoken" in found.problem
    assert len(caplog.records) == 1


def test_one_signal_may_be_on_while_the_other_cannot_be() -> None:
    switch = read_switch({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_METRICS_EXPORTER": "prometheus"})
    assert (switch.traces, switch.metrics) == (True, False)
    assert "prometheus" in switch.problem


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_context_survives_its_line(trace_id: int, span_id: int, sampled: bool) -> None:
    context = TraceParent(trace_id, span_id, sampled)
    assert parse_traceparent(str(context)) == context


@pytest.mark.parametrize(
    "line",
    [
        "",
        LINE + "\n",
        LINE + "-extra",
        LINE.upper(),
        LINE.replace("00-", "ff-"),
        LINE.replace("00-", "01-"),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        LINE.replace("0a", "\u0660a"),
        LINE.replace("-", "_"),
        "x" * 100_000,
    ],
)
def test_a_line_that_is_no_context_is_none(line: str) -> None:
    assert parse_traceparent(line) is None


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(line: str) -> None:
    assert parse_traceparent(line) is None


def test_durations_are_laid_end_to_end_in_the_order_of_the_stages() -> None:
    timings_us = {"spool": 5, "extract": 10, "encode": 0, "tokens": 7, "scrub": -1}
    assert lay_out(timings_us, 1_000_000) == (
        StageSpan("extract", 985_000, 995_000),
        StageSpan("encode", 995_000, 995_000),
        StageSpan("spool", 995_000, 1_000_000),
    )
    assert lay_out({}, 5) == ()


def test_relays_and_sampled_members_join_others_do_not() -> None:
    assert joins("a", is_relay=True, sampled_members=())
    assert joins("a", is_relay=False, sampled_members=("b", "a"))
    assert not joins("a", is_relay=False, sampled_members=("b",))


def test_every_name_is_used_once() -> None:
    assert len({metric.name for metric in names.METRICS}) == len(names.METRICS)
    assert len(set(names.STAGES)) == len(names.STAGES)
    assert all(metric.name.startswith("syncgroup.") and metric.description.endswith(".") for metric in names.METRICS)
