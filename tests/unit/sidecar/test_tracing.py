"""A sidecar's share in traces: the plan names the backend, also while it runs, and what made the plan."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sync_runtime.contract import traces
from sync_runtime.contract.names import ANNOTATION_TRACEPARENT
from sync_runtime.pod.plans import cause_of
from sync_runtime.settings import SidecarSettings
from sync_runtime.sidecar.plans import PlanWatch
from sync_runtime.sidecar.tracing import Tracing
from sync_runtime.standalone import load_group, settings_of
from tests.support.groups import TRAINER, Group
from tests.unit.telemetry.receiver import Receiver

LINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def settings(tmp_path: Path) -> SidecarSettings:
    group = Group(tmp_path, [TRAINER])
    return settings_of(load_group(group.config), "trainer-0", group.config)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    found = Receiver()
    yield found
    found.close()


class Plans:
    """A plan that a test changes."""

    def __init__(self) -> None:
        self.plan = SimpleNamespace(revision=1, telemetry=SimpleNamespace(endpoint=None, sampled_members=[]))
        self.member = SimpleNamespace(relay=False)
        self.cause = LINE


@pytest.mark.timeout(60)
def test_a_plan_that_names_another_backend_is_heeded_without_a_restart(
    settings: SidecarSettings, receiver: Receiver
) -> None:
    async def run() -> None:
        plans = Plans()
        tracing = Tracing(settings, cast(PlanWatch, plans), {}, "1.0")
        assert not tracing.telemetry.enabled
        assert tracing.traces.begin("l", 1) == ""
        plans.plan.telemetry.endpoint = receiver.endpoint
        tracing.plan_changed()
        assert tracing.telemetry.enabled
        assert tracing.traces.begin("l", 2, 20) != ""
        tracing.traces.timed("l", 2, traces.SPOOL, 5)
        before = tracing.telemetry
        tracing.plan_changed()
        assert tracing.telemetry is before, "the same backend is not begun anew"
        plans.plan.telemetry.endpoint = None
        tracing.plan_changed()
        assert not tracing.telemetry.enabled
        await asyncio.gather(*tracing._closing)
        await tracing.close()

    asyncio.run(run())
    spans = receiver.spans()
    assert set(spans) == {traces.VERSION, traces.SPOOL}
    root = spans[traces.VERSION]
    attributes = {pair.key: pair.value.int_value for pair in root.attributes}
    assert (attributes[traces.ATTR_SEQ], attributes[traces.ATTR_STEP], attributes[traces.ATTR_PLAN_REVISION]) == (
        2,
        20,
        1,
    )
    assert [link.trace_id.hex() for link in root.links] == [LINE.split("-")[1]]


def test_what_made_a_plan_is_read_with_it(settings: SidecarSettings) -> None:
    plans = PlanWatch(settings)
    assert plans.cause == ""
    settings.plan_cause_path.write_text(LINE)
    settings.plan_path.write_text(settings.plan_path.read_text().replace("\n", "\nrevision = 2\n", 1))
    assert plans.look()
    assert plans.cause == LINE
    settings.plan_cause_path.write_bytes(b"\xff" * 100_000)
    assert len(PlanWatch(settings).cause) <= len(LINE)


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"annotations": {ANNOTATION_TRACEPARENT: LINE}}, LINE),
        ({"annotations": {ANNOTATION_TRACEPARENT: LINE + "\n"}}, ""),
        ({"annotations": {ANNOTATION_TRACEPARENT: 7}}, ""),
        ({"annotations": {"other": LINE}}, ""),
        ({"annotations": None}, ""),
        ({"annotations": "text"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_config_map_names_what_made_its_plan_or_nothing(metadata: Any, cause: str) -> None:
    assert cause_of({"metadata": metadata}) == cause.encode()


def test_a_pod_says_where_it_is(settings: SidecarSettings) -> None:
    changed = dataclasses.replace(settings, pod_name="p", pod_namespace="n", pod_uid="u", node="k")
    assert Tracing(changed, cast(PlanWatch, Plans()), {}, "1")._origin.node == "k"
