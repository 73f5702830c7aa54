"""Work in traces and figures, and a poisoned worker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber, Work, Worker
from sync_runtime.contract.traces import WORK
from sync_runtime.errors import (
    DigestError,
    LocalError,
    SidecarLostError,
    SpoolCorruptError,
    WorkError,
    WorkRefusedError,
)
from sync_runtime.library.version import Version
from tests.component.work.crew import EU, do, engine, groups
from tests.support.groups import TRAINER, wait_for
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


class Moody:
    """An engine that fails in a way that passes, once for every call, or for good."""

    def __init__(self, *errors: Exception, version: Version | None) -> None:
        self.errors, self.version = list(errors), version

    def activate(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def scrub(self) -> bool:
        return True


def test_a_worker_waits_while_its_engine_cannot_work(group: InsideGroup) -> None:
    version = Version("a" * 32, 1, "b" * 32)
    with Worker(
        Moody(DigestError("its repair is not staged yet"), SidecarLostError("away"), version=version),
        socket=group.socket("eu-0"),
    ) as worker:
        assert worker.take(timeout=0.3, activate=True) is None
    with Worker(Moody(LocalError("whole weights come"), version=None), socket=group.socket("eu-0")) as worker:
        assert worker.take(timeout=0.2, activate=True) is None
    with (
        Worker(Moody(LocalError("it was closed"), version=version), socket=group.socket("eu-0")) as worker,
        pytest.raises(LocalError, match="closed"),
    ):
        worker.take(timeout=0.2, activate=True)


def test_a_ledger_that_cannot_be_read_is_told_and_weights_go_on(group: InsideGroup) -> None:
    group.stop("trainer-0")
    path = group.folder / "state/trainer-0/spool/work/ledger"
    path.write_bytes(b"something else")
    group.start("trainer-0")
    assert "no work ledger" in group.ask("trainer-0", "/v1/status")["work"]["problem"]
    with pytest.raises(SpoolCorruptError, match="take it away"):
        Work(socket=group.socket("trainer-0"))
    with Publisher(small_model(), socket=group.socket("trainer-0")) as publisher:
        assert publisher.publish().seq == 1
    path.unlink()
    with Work(socket=group.socket("trainer-0")) as work:
        assert work.pending == 0


def test_a_group_without_work_leases_says_so(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, EU], ringBytes=1 << 20, work={"mode": "Disabled"}) as group:
        group.start_all()
        with pytest.raises(WorkError, match="are off"):
            Work(socket=group.socket("trainer-0"))
        moody = Moody(version=Version("a" * 32, 1, "b" * 32))
        with Worker(moody, socket=group.socket("eu-0")) as worker, pytest.raises(WorkError, match="are off"):
            worker.take(timeout=5)
