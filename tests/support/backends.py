"""Trace backends for tests: a real Jaeger, and a small receiver of OTLP that needs no building. Asked until a trace is
whole.

Nothing is built here: where Jaeger has not been built, tests that want it skip and say how to get it.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from sync_runtime.contract import traces
from sync_runtime.telemetry.waterfall import Trace, read_traces, search_path
from tests.unit.telemetry.receiver import TRACES, Receiver, message_of
from tools import jaeger
from tools.jaeger import Jaeger

HOW = "Jaeger is not built; `python -m tools.kube build jaeger` does it"


class Backend(Protocol):
    """Where spans go, and where traces of versions are found."""

    @property
    def otlp(self) -> str:
        """Where spans go."""

    def find(self, group_uid: str, seq: int) -> tuple[Trace, ...]:
        """The traces of a version."""

    def document(self, trace_id: str) -> dict[str, Any]:
        """One trace as this backend tells it."""


class JaegerBackend:
    """A real one."""

    def __init__(self, program: Jaeger) -> None:
        self.program = program
        self.otlp = program.otlp

    def find(self, group_uid: str, seq: int) -> tuple[Trace, ...]:
        return read_traces(self.program.ask(search_path(group_uid=group_uid, seq=seq)))

    def document(self, trace_id: str) -> dict[str, Any]:
        return {"data": self.program.ask(f"/api/traces/{trace_id}")["data"]}


class SinkBackend:
    """Keeps what it is sent, and reads it as OTLP's JSON."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.otlp = receiver.endpoint

    def find(self, group_uid: str, seq: int) -> tuple[Trace, ...]:
        found = read_traces({"resourceSpans": self._resources()})
        return tuple(
            trace
            for trace in found
            if any(span.attributes.get(traces.ATTR_SEQ) == seq for span in trace.spans)
            and all(span.resource[traces.ATTR_GROUP_UID] == group_uid for span in trace.spans)
        )

    def document(self, trace_id: str) -> dict[str, Any]:
        resources = self._resources()
        for scope in (scope for resource in resources for scope in resource["scopeSpans"]):
            scope["spans"] = [span for span in scope["spans"] if span["traceId"] == trace_id]
        return {"resourceSpans": [one for one in resources if any(scope["spans"] for scope in one["scopeSpans"])]}

    def _resources(self) -> list[Any]:
        as_json = importlib.import_module("google.protobuf.json_format").MessageToDict  # comes with the exporter
        found: list[Any] = []
        for body in list(self._receiver.bodies[TRACES]):
            message = message_of("trace", "ExportTraceServiceRequest").FromString(body)
            found += _in_hex(as_json(message))["resourceSpans"]
        return found


@contextlib.contextmanager
def started(factory: pytest.TempPathFactory) -> Iterator[JaegerBackend]:
    """One Jaeger; skips where there is none."""
    if not jaeger.is_built():
        pytest.skip(HOW)
    with jaeger.running(factory.mktemp("jaeger")) as found:
        yield JaegerBackend(found)


@contextlib.contextmanager
def sink() -> Iterator[SinkBackend]:
    """The small one."""
    receiver = Receiver()
    try:
        yield SinkBackend(receiver)
    finally:
        receiver.close()


def whole_trace(
    backend: Backend, group_uid: str, seq: int, is_whole: Callable[[Trace], bool], timeout_s: float = 30.0
) -> Trace:
    """The trace of a version, once it is whole."""
    end_s = time.monotonic() + timeout_s
    found: tuple[Trace, ...] = ()
    while time.monotonic() < end_s:
        found = backend.find(group_uid, seq)
        if len(found) == 1 and is_whole(found[0]):
            return found[0]
        time.sleep(0.2)
    have = [sorted((span.member, span.name) for span in trace.spans) for trace in found]
    raise AssertionError(f"version {seq} was not one whole trace within {timeout_s:g} s; there is {have}")


def save(backend: Backend, trace: Trace, path: Path) -> None:
    """One trace in a form that is kept in a repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(backend.document(trace.trace_id), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _in_hex(document: Any) -> Any:
    """OTLP's JSON has ids in hex; protobuf's own JSON has them as other bytes, in base64."""
    if isinstance(document, list):
        return [_in_hex(one) for one in document]
    if not isinstance(document, dict):
        return document
    ids = ("traceId", "spanId", "parentSpanId")
    return {key: base64.b64decode(one).hex() if key in ids else _in_hex(one) for key, one in document.items()}
