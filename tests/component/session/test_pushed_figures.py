"""What sidecars push by OTLP beside their traces: every metric that is declared, and true values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.telemetry import names
from sync_runtime.telemetry.names import Metric
from sync_runtime.telemetry.off import OffTelemetry
from sync_runtime.telemetry.surface import NO_ATTRIBUTES, Attributes
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(60)
EU = Member("eu-0", "eu", ("trainer-0",), relay=True)
ELSEWHERE = {names.STAGE_DURATION, names.WORK_RESULTS, names.WORK_TOKENS}
"""With spans, and with work leases: their own tests."""


@dataclass(frozen=True)
class Recorder(OffTelemetry):
    """Telemetry that is on and keeps what it is given."""

    seen: dict[Metric, list[tuple[float, Attributes]]] = field(default_factory=dict)

    @property
    def enabled(self) -> bool:
        return True

    def record(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.seen.setdefault(metric, []).append((value, attributes))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, EU]) as made:
        made.start_all()
        yield made


def total(recorded: list[tuple[float, Attributes]]) -> float:
    return sum(value for value, _ in list(recorded))


def test_every_declared_metric_is_pushed_with_what_is_true(group: InsideGroup) -> None:
    recorders: dict[str, Recorder] = {}
    for name, sidecar in group.sidecars.items():
        recorders[name] = sidecar.tracing.telemetry = Recorder()
        group.call(partial(sidecar.refusals.update, {"NotTls": 2}))
    trained, model = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(model, socket=group.socket("eu-0")) as subscriber,
    ):
        for step in range(3):
            nudge(trained, step)
            seq = publisher.publish(step=step).seq
            follow(subscriber, seq)
        trainer, member = recorders["trainer-0"].seen, recorders["eu-0"].seen
        wait_for(lambda: {*trainer, *member} >= set(names.METRICS) - ELSEWHERE, what="all metrics")
        wait_for(lambda: (seq, {}) in member.get(names.VERSION_SEQ, []), what="the newest version")
        size_bytes = sum(one["bytes"] for one in group.ask("trainer-0", "/v1/versions")["objects"])
        # What was sent is counted when the last of it is acknowledged: the member may serve it by then.
        wait_for(lambda: total(trainer[names.SENT_BYTES]) >= size_bytes, what="all that was sent")
    assert total(member[names.RECEIVED_BYTES]) >= size_bytes
    assert len(member[names.PAUSE_DURATION]) == 3
    assert trainer[names.REFUSALS] == [(2, {"syncgroup.reason": "NotTls"})]
    (where,) = {tuple(sorted(attributes.items())) for _, attributes in trainer[names.LINK_STREAMS]}
    assert ("syncgroup.link.to_region", "eu") in where
