"""The demo's Jaeger as objects of Kubernetes, and how a trace is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import jaeger
from tools.demo import tracing


def by_kind() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in tracing.documents(Path("/cache/jaeger-1/jaeger"))}


def test_the_pod_runs_the_program_of_this_machine_and_listens_for_every_region() -> None:
    found = by_kind()
    spec = found["Pod"]["spec"]
    assert spec["containers"][0]["command"][0] == "/opt/jaeger/jaeger"
    assert {"name": "program", "hostPath": {"path": "/cache/jaeger-1"}} in spec["volumes"]
    (text,) = found["ConfigMap"]["data"].values()
    assert jaeger.HOST not in text
    assert json.loads(text)["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == f"0.0.0.0:{tracing.OTLP_PORT}"


def test_members_elsewhere_reach_it_by_a_load_balancer() -> None:
    service = by_kind()["Service"]["spec"]
    assert service["type"] == "LoadBalancer"
    assert service["selector"] == by_kind()["Pod"]["metadata"]["labels"]
    assert {one["port"] for one in service["ports"]} == {tracing.OTLP_PORT, tracing.QUERY_PORT}


def test_without_a_backend_that_answers_there_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "WHOLE_S", 0.0)
    asked: list[str] = []

    def ask(path: str) -> dict[str, Any]:
        asked.append(path)
        raise OSError("away")

    assert tracing.whole_trace(ask, "uid-1", 7, 4) is None
    assert "uid-1" in asked[0]


def test_who_has_no_jaeger_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaeger, "is_built", lambda: False)
    said: list[str] = []
    assert tracing.program(said.append) is None
    assert "python -m tools.kube build jaeger" in said[0]
