"""Telemetry that is off: nothing imported, nothing kept, context handed on; and the pure parts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract import traces
from sync_runtime.telemetry import names, start
from sync_runtime.telemetry.context import TraceParent, parse_traceparent
from sync_runtime.telemetry.off import OFF
from sync_runtime.telemetry.stages import StageSpan, lay_out
from sync_runtime.telemetry.surface import Fault, Origin, VersionLabel, joins
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
    trace.span(traces.RECEIVE, 0, 1, {traces.ATTR_BYTES: 5}, fault=Fault("Broken", "broken"))
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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "file:///etc/passwd", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:99999", "must be a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x\r\nHost: y", "printable ASCII"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x/" + "a" * 5000, "printable ASCII"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@x", "without a password"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x/?key=hunter2", "without a query"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be a URL"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no equals sign", "name=value"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b\r\nevil: c", "name=value"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a b=c", "OTEL_EXPORTER_OTLP_TRACES_HEADERS must read"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "number of seconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "nan", "number of seconds"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "none, gzip or deflate"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file", "cannot be read"),
    ],
)
def test_values_that_cannot_be_used_are_refused_in_a_sentence(name: str, value: str, words: str) -> None:
    found = start({"OTEL_TRACES_EXPORTER": "otlp", name: value}, ORIGIN)
    assert not found.enabled
    assert words in found.problem
    assert "hunter2" not in found.problem


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, "http://planned:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b,c=d%20e"}, "http://planned:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://mine"}, ""),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://mine"}, ""),
    ],
)
def test_a_plans_endpoint_counts_where_the_environment_names_none(variables: dict[str, str], endpoint: str) -> None:
    switch = read_switch(variables, "http://planned:4318/")
    assert (switch.traces, switch.traces_endpoint) == (True, endpoint)


@pytest.mark.parametrize("variables", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_whoever_said_no_is_not_overruled_by_a_plan(variables: dict[str, str]) -> None:
    assert not read_switch(variables, "http://planned:4318").on


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
    assert len(set(traces.STAGES)) == len(traces.STAGES)
    assert all(metric.name.startswith("syncgroup.") and metric.description.endswith(".") for metric in names.METRICS)
