"""kill -9 of the trainer's sidecar at every stage of a group: none is lost, none counts twice, order stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sync_runtime import Publisher, Work
from sync_runtime.library.work import WorkResult
from tests.component.work.crew import EU, groups, working
from tests.support.deaths import VARIABLE
from tests.support.groups import TRAINER, Group
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(120)

STAGES = {
    "before prompts are written": "sync_runtime.work.store:WorkStore.write:before:2",
    "before prompts are synced": "sync_runtime.work.store:WorkStore.sync:before:2",
    "after prompts are synced": "sync_runtime.work.store:WorkStore.sync:after:2",
    "before a lease is written": "sync_runtime.work.ledger:Ledger.lease:before:1",
    "after a lease is written": "sync_runtime.work.workers:Workers.leased:before:1",
    "before a result is written": "sync_runtime.work.ledger:Ledger.judge:before:1",
    "after a result is written": "sync_runtime.session.work.desk:WorkDesk._tell:before:1",
    "before a verdict is told": "sync_runtime.session.work.desk:Verdict:before:1",
    "before the second result": "sync_runtime.work.ledger:Ledger.judge:before:2",
    "while a result is delivered": "sync_runtime.session.work.counter:_result:before:1",
    "before a result is consumed": "sync_runtime.session.work.counter:_consumed:before:9",
    "after the last verdict": "sync_runtime.session.work.desk:WorkDesk._tell:after:6",
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path, [TRAINER, EU], ringBytes=1 << 20) as made:
        yield made


@contextmanager
def revived(group: Group, name: str) -> Iterator[None]:
    """Starts a sidecar again, whole, when it was killed."""
    process = group.processes[name]

    def revive() -> None:
        assert process.wait(60) == -9
        group.start(name)

    group.environment = {}
    thread = threading.Thread(target=revive)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive(), "the sidecar did not die: the stage was not reached"


@pytest.mark.parametrize("stage", STAGES)
def test_a_sidecar_that_dies_loses_no_group_and_counts_none_twice(group: Group, stage: str) -> None:
    group.environment = {VARIABLE: STAGES[stage]}
    group.start("trainer-0")
    group.environment = {}
    group.start("eu-0")
    model, ids = small_model(), [f"g{at}" for at in range(6)]
    publisher = Publisher(model, socket=group.socket("trainer-0"), patience=30)
    found: list[WorkResult] = []
    with (
        revived(group, "trainer-0"),
        Work(socket=group.socket("trainer-0"), order="fixed") as work,
        working(group, "eu-0"),
    ):
        work.submit(groups(*ids))
        found += work.results(timeout=60)
        work.commit()
        assert work.pending == 0
        assert [one.id for one in found] == ids
        assert all(one.payload == b"prompt %s under 0" % one.id.encode() for one in found)
        nudge(model, 0)
        version = publisher.publish()
        work.submit(groups("again"))
        (last,) = work.results(timeout=60)
        assert last.version is not None
        assert last.version.seq == version.seq
    publisher.close(drain=0)
