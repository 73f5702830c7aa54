"""Workers that die, fall silent or lose their connection: their work goes to others, and nothing counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sync_runtime import Publisher, Work
from sync_runtime.errors import WorkRefusedError
from tests.component.work.crew import ASIA, EU, do, engine, groups, working
from tests.support.children import REPOSITORY
from tests.support.groups import TRAINER, Group, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import small_model

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Group]:
    """The group with a process per sidecar."""
    with Group(tmp_path, [TRAINER, EU, ASIA], ringBytes=1 << 20, leaseSeconds=5) as made:
        made.start_all()
        yield made


@contextmanager
def doomed_worker(group: Group, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that has one task in hand."""
    command = [sys.executable, "-m", "tests.support.worker_program", group.socket(name)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("took")
            yield process
        finally:
            process.kill()


def is_idle(work: dict[str, object]) -> bool:
    return work["connected"] is True and work["unjudged"] == 0 and work["inHand"] == 0


def test_a_worker_killed_in_its_task_costs_the_group_nothing(group: InsideGroup) -> None:
    with Publisher(small_model(), socket=group.socket("trainer-0")), Work(socket=group.socket("trainer-0")) as work:
        work.submit(groups("a", "b", "c"))
        with doomed_worker(group, "eu-0") as process:
            process.kill()
            process.wait()
            with working(group, "asia-0"):
                found = list(work.results(timeout=30))  # long before the lease of ten minutes ends
        assert sorted(one.id for one in found) == ["a", "b", "c"]
        assert all(one.failed is None and one.worker == "asia-0" for one in found)
        assert group.ask("trainer-0", "/metrics")['syncgroup_work_returned_total{reason="Released"}'] >= 1


def test_a_workers_sidecar_that_is_killed_gives_its_work_to_others(processes: Group) -> None:
    with (
        Publisher(small_model(), socket=processes.socket("trainer-0")),
        Work(socket=processes.socket("trainer-0")) as work,
        engine(processes, "eu-0") as (_, worker),
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=20, activate=True)
        assert task is not None
        processes.kill("eu-0")
        with working(processes, "asia-0"):
            (result,) = work.results(timeout=30)
        assert (result.id, result.worker) == ("a", "asia-0")
        processes.start("eu-0")
        with pytest.raises(WorkRefusedError, match="task a"):
            do(task)


def test_a_region_that_is_cut_off_loses_its_work_and_its_late_result(processes: Group) -> None:
    with (
        Publisher(small_model(), socket=processes.socket("trainer-0")),
        Work(socket=processes.socket("trainer-0")) as work,
        engine(processes, "eu-0") as (_, worker),
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=20, activate=True)
        assert task is not None
        sidecar = processes.processes["eu-0"].pid
        os.kill(sidecar, signal.SIGSTOP)  # no word, no reset: the path is away
        try:
            with working(processes, "asia-0"):
                (result,) = work.results(timeout=60)
            assert result.worker == "asia-0"
        finally:
            os.kill(sidecar, signal.SIGCONT)
        with suppress(WorkRefusedError):  # its sidecar may not know yet, and hand it over: the trainer refuses it
            do(task)
        wait_for(lambda: is_idle(processes.ask("eu-0", "/v1/status")["work"]), what="the verdict")
        work.commit()
        assert work.pending == 0
        assert list(work.results(timeout=1)) == []


def test_a_connection_that_breaks_costs_nothing(group: InsideGroup) -> None:
    def cut() -> None:
        link = group.sidecars["eu-0"].role.work.dialler.link  # type: ignore[union-attr]
        if link is not None:
            link.close("Renewed", "as a test wants it")

    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0"), order="fixed") as work,
        engine(group, "eu-0") as (_, worker),
    ):
        ids = [f"g{at}" for at in range(8)]
        work.submit(groups(*ids))
        for _ in ids:
            task = worker.take(timeout=20)
            assert task is not None
            cut()  # the result is handed over while nobody is there, or just before
            do(task)
        assert [one.id for one in work.results(timeout=20)] == ids
        figures = group.ask("trainer-0", "/metrics")
        assert figures['syncgroup_work_results_total{reason="Counted"}'] == len(ids)


def test_a_clock_that_jumps_changes_nothing(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    real_s, real_ns, by_s = time.time, time.time_ns, [0]
    monkeypatch.setattr(time, "time", lambda: real_s() + by_s[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + by_s[0] * 10**9)
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (_, worker),
    ):
        for jump_s in (86_400, -86_400, 3600):  # leases last ten minutes
            work.submit(groups(f"{jump_s}"))
            task = worker.take(timeout=20, activate=True)
            assert task is not None
            by_s[0] += jump_s
            time.sleep(1.2)  # housekeeping looks for what has expired
            do(task)
            assert [one.id for one in work.results(timeout=20)] == [f"{jump_s}"]
    assert not [name for name in group.ask("trainer-0", "/metrics") if name.startswith("syncgroup_work_returned_total")]


def test_a_trainer_that_starts_from_older_weights_takes_no_work_of_the_dead_lineage(group: InsideGroup) -> None:
    trained = small_model()
    with Work(socket=group.socket("trainer-0")) as work, engine(group, "eu-0") as (_, worker):
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            first = publisher.version
            assert first is not None
            work.submit(groups("a"))
            task = worker.take(timeout=20, activate=True)
            assert task is not None
        with Publisher(small_model(seed=7), socket=group.socket("trainer-0")) as publisher:
            second = publisher.version
            assert second is not None
            assert second.lineage != first.lineage
            # At the worker's own sidecar: until that has heard of it, it takes the result, and nobody is told more.
            wait_for(lambda: group.ask("eu-0", "/v1/status")["work"]["revoked"] == 1, what="the end of the lease")
            assert group.ask("trainer-0", "/v1/status")["work"]["returned"]["NewLineage"] == 1
            with pytest.raises(WorkRefusedError):
                do(task)
            again = worker.take(timeout=30, activate=True)  # whole weights came meanwhile
            assert again is not None
            assert (again.id, again.version.lineage) == ("a", second.lineage)
            do(again)
            (result,) = work.results(timeout=20)
            assert result.version is not None
            assert result.version.lineage == second.lineage
