"""Prompt groups through real sidecars: from the trainer's process to workers and back, over TLS and real sockets."""

from __future__ import annotations

import asyncio

import pytest

from sync_runtime import PromptGroup, Publisher, Work
from sync_runtime.errors import LocalError, LocalProtocolError, WorkError, WorkRefusedError, WorkTimeoutError
from sync_runtime.library.work import WorkResult
from tests.component.work.crew import do, engine, groups, working
from tests.support.following import follow
from tests.support.groups import wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(60)


def test_groups_come_back_as_results_once_each(group: InsideGroup) -> None:
    model = small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Work(socket=group.socket("trainer-0"), order="fixed") as work,
        working(group, "eu-0", "asia-0") as done,
    ):
        for step in range(3):
            nudge(model, step)
            version = publisher.publish(step=step)
            ids = [f"{step}-{at}" for at in range(6)]
            assert work.submit(groups(*ids)) == 6
            assert work.submit(groups(ids[0])) == 0
            found = list(work.results(timeout=30))
            assert [one.id for one in found] == ids  # in order of submission
            assert all(one.version == version and one.tokens == 10 and one.failed is None for one in found)
            assert all(one.payload == b"prompt %s under %d" % (one.id.encode(), version.seq) for one in found)
            # A worker notes what it did when its sidecar has it; the trainer may have counted it by then.
            wait_for(lambda: all(one.id in done[one.worker] for one in found), what="the workers' own word")  # noqa: B023
        work.commit()
        assert work.pending == 0
        status = group.ask("trainer-0", "/v1/status")["work"]
        assert (status["queued"], status["leased"], status["done"]) == (0, 0, 0)
        figures = group.ask("trainer-0", "/metrics")
        assert figures["syncgroup_work_tokens_total"] == 180
        assert figures['syncgroup_work_results_total{reason="Counted"}'] == 18


def test_results_are_iterable_asynchronously(group: InsideGroup) -> None:
    async def collect(work: Work) -> list[WorkResult]:
        return [one async for one in work.results(timeout=20)]

    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        working(group, "eu-0"),
    ):
        work.submit(groups("a", "b"))
        assert sorted(one.id for one in asyncio.run(collect(work))) == ["a", "b"]


def test_a_result_is_delivered_again_until_it_is_consumed(group: InsideGroup) -> None:
    with Publisher(small_model(), socket=group.socket("trainer-0")), working(group, "eu-0"):
        with Work(socket=group.socket("trainer-0"), order="fixed") as work:
            work.submit(groups("a", "b"))
            assert next(work.results(timeout=20)).id == "a"
        with Work(socket=group.socket("trainer-0"), order="fixed") as work:  # the process died before it could use it
            results = work.results(timeout=20)
            assert next(results).id == "a"
            assert next(results).id == "b"
            work.commit()
            assert work.pending == 0


def test_a_checkpoint_puts_the_ledger_back(group: InsideGroup) -> None:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0"), order="fixed") as work,
    ):
        with working(group, "eu-0"):
            work.submit(groups("a", "b", "c"))
            results = work.results(timeout=20)
            assert next(results).id == "a"
            work.commit()
            state = work.state_dict()
            assert [next(results).id, next(results).id] == ["b", "c"]
            work.submit(groups("d"))
        work.load_state_dict(state)
        assert work.pending == 2
        with working(group, "asia-0"):
            assert [one.id for one in work.results(timeout=20)] == ["b", "c"]
        work.clear()
        assert work.pending == 0
        with pytest.raises(WorkError, match="state of"):
            work.load_state_dict({"format": 1})


def test_work_in_hand_when_the_trainer_rolls_back_is_refused(group: InsideGroup) -> None:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (_, worker),
    ):
        work.submit(groups("a"))
        state = work.state_dict()
        task = worker.take(timeout=10, activate=True)
        assert task is not None
        work.load_state_dict(state)
        # Before its sidecar has heard of it, a result is taken there and refused by the trainer: nobody is told then.
        wait_for(lambda: group.ask("eu-0", "/v1/status")["work"]["revoked"] == 1, what="the end of the lease")
        with pytest.raises(WorkRefusedError, match=r"RolledBack|NotLive"):
            do(task)
        again = worker.take(timeout=10)
        assert again is not None
        assert (again.id, again.lease == task.lease) == ("a", False)
        do(again)
        assert [one.id for one in work.results(timeout=10)] == ["a"]


def test_weights_that_change_under_a_task_make_its_result_void(group: InsideGroup) -> None:
    model = small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (subscriber, worker),
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=10)
        assert task is not None
        nudge(model, 0)
        follow(subscriber, publisher.publish().seq)
        with pytest.raises(WorkRefusedError, match=r"WrongVersion|NotScrubbed"):
            do(task)
        again = worker.take(timeout=10)
        assert again is not None
        assert (again.id, again.version.seq) == ("a", 1)
        do(again)
        assert [one.version.seq for one in work.results(timeout=10) if one.version] == [1]
        with pytest.raises(LocalError, match="before"):
            do(again)


def test_a_worker_too_far_behind_gets_no_work(group: InsideGroup) -> None:
    model = small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (subscriber, worker),
    ):
        wait_for(lambda: subscriber.version is not None, what="its version")
        for step in range(3):  # maxStaleness is 2
            nudge(model, step)
            version = publisher.publish()
        work.submit(groups("a"))
        assert worker.take(timeout=1.0) is None
        follow(subscriber, version.seq)
        task = worker.take(timeout=10)
        assert task is not None
        assert task.version.seq == version.seq


def test_a_task_that_is_given_back_goes_to_another(group: InsideGroup) -> None:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        engine(group, "eu-0") as (_, worker),
    ):
        work.submit(groups("a"))
        task = worker.take(timeout=10)
        assert task is not None
        task.release("too hard")
        with working(group, "asia-0"):
            (result,) = work.results(timeout=20)
        assert (result.id, result.worker) == ("a", "asia-0")


def test_a_worker_that_closes_gives_back_what_it_has(group: InsideGroup) -> None:
    with Publisher(small_model(), socket=group.socket("trainer-0")), Work(socket=group.socket("trainer-0")) as work:
        work.submit(groups("a"))
        with engine(group, "eu-0") as (_, worker):
            assert worker.take(timeout=10) is not None
        wait_for(lambda: group.ask("trainer-0", "/v1/status")["work"]["queued"] == 1, what="the return")


def test_results_end_with_the_groups_and_time_out_without_workers(group: InsideGroup) -> None:
    with Publisher(small_model(), socket=group.socket("trainer-0")), Work(socket=group.socket("trainer-0")) as work:
        assert list(work.results()) == []
        work.submit(groups("a"))
        with pytest.raises(WorkTimeoutError, match="1 groups are open"):
            next(work.results(timeout=0.3))


def test_what_cannot_be_submitted_is_said(group: InsideGroup) -> None:
    with Work(socket=group.socket("trainer-0")) as work:
        with pytest.raises(WorkError, match="printable"):
            work.submit([PromptGroup("a b", b"")])
        with pytest.raises(WorkError, match="maxPayloadBytes"):
            work.submit([PromptGroup("a", b"x" * (5 << 20))])
        with pytest.raises(WorkError, match="no bytes"):
            work.submit([PromptGroup("a", "text")])  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError, match="another process submits"):
            Work(socket=group.socket("trainer-0"))
        assert work.pending == 0
    with pytest.raises(WorkError, match="must be throughput or fixed"):
        Work(socket=group.socket("trainer-0"), order="any")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="serves a subscriber"):
        Work(socket=group.socket("eu-0"))


def test_a_large_batch_with_large_prompts_goes_through(group: InsideGroup) -> None:
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Work(socket=group.socket("trainer-0")) as work,
        working(group, "eu-0"),
    ):
        sent = [PromptGroup(f"g{at}", bytes([at]) * (3 << 20)) for at in range(8)]
        assert work.submit(sent) == 8
        found = {one.id: one.payload for one in work.results(timeout=30)}
        assert found == {one.id: one.payload + b" under 0" for one in sent}
