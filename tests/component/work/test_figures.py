"""Work in traces and figures, and a poisoned worker."""

from __future__ import annotations

import pytest
import torch

from sync_runtime import Publisher, Subscriber, Work, Worker
from sync_runtime.errors import WorkRefusedError
from sync_runtime.telemetry.names import WORK
from tests.component.work.crew import do, engine, groups
from tests.support.groups import wait_for
from tests.support.inside import InsideGroup
from tests.support.models import same_bits, small_model

pytestmark = pytest.mark.timeout(60)


def test_a_group_is_a_span_of_its_version_at_both_ends(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str, str, int]] = []
    for name, sidecar in group.sidecars.items():

        def timed(lineage: str, seq: int, stage: str, spent_us: int, name: str = name, **_: object) -> None:
            spans.append((name, stage, seq))

        monkeypatch.setattr(sidecar.traces, "timed", timed)
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (_, worker),
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=20, activate=True)
        assert task is not None
        do(task)
        assert len(list(work.results(timeout=20))) == 1
    assert {one for one in spans if one[1] == WORK} == {("trainer-0", WORK, 0), ("eu-0", WORK, 0)}


def test_a_worker_with_wrong_weights_gets_no_work_and_its_results_do_not_count(group: InsideGroup) -> None:
    trained, model = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        Subscriber(model, socket=group.socket("eu-0")) as subscriber,
        Worker(subscriber, socket=group.socket("eu-0")) as worker,
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=20, activate=True)
        assert task is not None
        with torch.no_grad():
            next(model.parameters()).view(-1)[3] += 1
        assert not subscriber.scrub()
        with pytest.raises(WorkRefusedError, match="NotScrubbed"):
            do(task)
        assert worker.take(timeout=0.3) is None
        assert subscriber.wait(0, timeout=10) is not None
        wait_for(lambda: subscriber.activate() is not None or same_bits(model, trained), what="the repair")
        assert subscriber.scrub()
        again = worker.take(timeout=20)
        assert again is not None
        do(again)
        (result,) = work.results(timeout=20)
        assert result.id == "a"
        assert same_bits(model, trained)
