"""What a worker's sidecar has in hand, wants, and gives back; without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from sync_runtime.errors import WorkError
from sync_runtime.session.work.tasks import ACTIVE_S, Held, Tasks
from sync_runtime.session.work.worker import WorkerContext, WorkerSession
from sync_runtime.transport.events import WorkArrived, WorkConnected, WorkGone
from sync_runtime.transport.work_link import WorkLink
from sync_runtime.transport.work_messages import Holding, Result, Return, Revoke, Take, Task, TaskHead, Verdict
from sync_runtime.work.model import Policy, WorkVersion
from tests.unit.work.ledgers import version


def task(number: int, at: WorkVersion) -> Task:
    head = TaskHead(
        lease=f"1-1-{number}", id=f"g{number}", samples=1, lineage=at.lineage, seq=at.seq, digest=at.digest, step=None
    )
    return Task(head, b"prompt")


class FakeLink:
    """Remembers what was sent."""

    def __init__(self) -> None:
        self.name = "trainer-0"
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]


class Member:
    """A worker's session with an engine that runs what a test says."""

    def __init__(self) -> None:
        self.live: WorkVersion | None = version(1)
        self.coming: WorkVersion | None = None
        self._spawned: set[asyncio.Future[Any]] = set()
        context = WorkerContext(
            live=lambda: self.live,
            coming=lambda: self.coming,
            policy=lambda: Policy(max_payload_bytes=100),
            is_on=lambda: True,
            spawn=self._spawn,
            worked=lambda *_: None,
            measured=lambda _: None,
        )
        self.session = WorkerSession(context)
        self.link = FakeLink()

    def _spawn(self, work: object) -> None:
        self._spawned.add(asyncio.ensure_future(cast("Coroutine[Any, Any, None]", work)))

    def connect(self) -> None:
        self.link = FakeLink()
        self.session.on_event(WorkConnected(cast("WorkLink", self.link)))

    def hear(self, message: Any) -> None:
        self.session.on_event(WorkArrived(cast("WorkLink", self.link), message))

    async def take(self, owner: str = "me", wait_s: float = 0.0) -> Held | None:
        return await self.session.take(owner, None, wait_s, lambda: False)

    async def has(self, number: int = 0) -> Held:
        """With one task in hand."""
        assert await self.take() is None  # it asks, and is given one
        self.hear(task(number, version(1)))
        held = await self.take()
        assert held is not None
        return held


def test_one_is_wanted_for_who_asks_and_one_ahead_for_who_works() -> None:
    tasks = Tasks()
    assert tasks.want(0.0, version(1)) == 0
    tasks.asking = 1
    assert tasks.want(0.0, version(1)) == 1
    tasks.asking, held = 0, Held(task(0, version(1)), version(1), 0.0)
    tasks.asked(1.0)
    assert tasks.want(1.0, version(1)) == 1  # it will ask again in a moment
    assert tasks.want(1.0 + ACTIVE_S, version(1)) == 0
    tasks.arrived(held)
    tasks.give(held, "me", 2.0)
    assert tasks.want(2.0, version(1)) == 1  # one ahead
    tasks.arrived(Held(task(1, version(1)), version(1), 2.0))
    assert tasks.want(2.0, version(1)) == 0


def test_short_tasks_far_away_are_taken_further_ahead() -> None:
    tasks = Tasks()
    for at, service_s in enumerate((0.1, 0.1, 0.1)):
        tasks.ordered(float(at))
        held = Held(task(at, version(1)), version(1), at + 0.25)
        tasks.arrived(held)
        tasks.give(held, "me", at + 0.25)
        tasks.drop(held.lease, at + 0.25 + service_s)
    assert tasks.ahead == 3  # two are done while one is on its way
    tasks.ordered(10.0)
    tasks.arrived(Held(task(9, version(1)), version(1), 10.01))
    assert tasks.ahead == 1  # it waited for work before, not for the way


def test_busy_time_is_when_somebody_had_work() -> None:
    tasks = Tasks()
    first, second = (Held(task(at, version(1)), version(1), 0.0) for at in range(2))
    for one in (first, second):
        tasks.arrived(one)
    tasks.give(first, "a", 1.0)
    tasks.give(second, "b", 2.0)
    assert tasks.take_busy_s(3.0) == 2.0
    tasks.drop(first.lease, 3.0)
    tasks.drop(second.lease, 5.0)
    assert tasks.take_busy_s(9.0) == 2.0
    assert tasks.take_busy_s(9.0) == 0.0


def test_a_result_is_sent_again_on_every_connection_until_it_is_judged() -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has()
        assert member.session.complete("me", held.lease, None, 5, b"answer").taken
        assert len(member.link.of(Result)) == 1
        member.session.on_event(WorkGone(cast("WorkLink", member.link), "Lost", ""))
        member.connect()
        assert member.link.sent[0] == Holding(leases=[held.lease])
        assert len(member.link.of(Result)) == 1
        member.hear(Verdict(lease=held.lease, reason="Counted", message="", retry=False))
        member.connect()
        assert member.link.of(Result) == []

    asyncio.run(run())


def test_a_verdict_that_asks_for_it_brings_the_result_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.work.worker.RESEND_S", 0.01)

    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has()
        member.session.complete("me", held.lease, None, 5, b"answer")
        member.hear(Verdict(lease=held.lease, reason="NoRoom", message="", retry=True))
        await asyncio.sleep(0.05)
        assert len(member.link.of(Result)) == 2

    asyncio.run(run())


def test_a_task_ahead_goes_back_when_other_weights_are_live() -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        await member.has(0)
        member.hear(task(1, version(1)))
        member.live = version(2)
        member.session.changed()
        (back,) = member.link.of(Return)
        assert (back.lease, back.failed) == ("1-1-1", False)
        assert member.link.of(Take)[-1].seq == 2

    asyncio.run(run())


def test_groups_are_taken_for_the_version_that_comes_and_kept_over_the_switch_and_its_scrub() -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has(0)
        member.coming = version(2)  # staged
        member.session.changed()
        assert (member.link.of(Take)[-1].seq, member.link.of(Take)[-1].want) == (2, 1)
        member.hear(task(1, version(2)))
        assert member.session.complete("me", held.lease, None, 5, b"answer").taken
        member.live = None  # switched, the scrub is under way
        member.session.changed()
        assert member.link.of(Return) == []
        member.live, member.coming = version(2), None
        member.session.changed()
        found = await member.session.take("me", version(2), 0.0, lambda: False)
        assert found is not None
        assert found.lease == "1-1-1"

    asyncio.run(run())


def test_an_engine_that_stays_with_its_version_gets_groups_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.work.worker._SWITCH_S", 0.0)

    async def run() -> None:
        member = Member()
        member.connect()
        await member.has(0)
        member.coming = version(2)
        member.session.changed()
        member.hear(task(1, version(2)))
        await asyncio.sleep(0.01)
        assert await member.session.take("other", version(1), 0.0, lambda: False) is None
        assert [one.lease for one in member.link.of(Return)] == ["1-1-1"]
        assert member.link.of(Take)[-1].seq == 1

    asyncio.run(run())


def test_an_engine_that_is_not_scrubbed_after_its_switch_gets_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.work.worker._SCRUB_S", 0.0)

    async def run() -> None:
        member = Member()
        member.live, member.coming = None, version(1)
        member.connect()
        await asyncio.sleep(0.01)
        assert await member.take() is None
        assert member.link.of(Take)[-1].want == 0

    asyncio.run(run())


def test_a_group_that_waits_is_still_there_when_a_long_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.work.worker.KEEP_S", 0.05)

    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has(0)
        member.hear(task(1, version(1)))
        await asyncio.sleep(0.1)  # nobody asks for longer than groups are kept for
        assert member.session.complete("me", held.lease, None, 5, b"answer").taken
        assert member.link.of(Return) == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("live", "reason"), [(version(2), "WrongVersion"), (None, "NotScrubbed"), (version(1), "NotLive")]
)
def test_a_result_that_cannot_count_is_refused_here_already(live: WorkVersion | None, reason: str) -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has()
        member.live = live
        if reason == "NotLive":
            member.hear(Revoke(lease=held.lease, reason="Expired"))
        answer = member.session.complete("me", held.lease, None, 5, b"answer")
        assert (answer.taken, answer.reason) == (False, reason)
        assert member.link.of(Result) == []
        assert len(member.link.of(Return)) == (0 if reason == "NotLive" else 1)
        assert not member.session.complete("me", held.lease, None, 5, b"answer").taken

    asyncio.run(run())


def test_a_result_too_large_keeps_its_lease() -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has()
        with pytest.raises(WorkError, match="maxPayloadBytes"):
            member.session.complete("me", held.lease, None, 5, b"x" * 101)
        assert member.session.complete("me", held.lease, None, 5, b"x" * 100).taken

    asyncio.run(run())


def test_nobody_completes_what_another_worker_of_the_member_has() -> None:
    async def run() -> None:
        member = Member()
        member.connect()
        held = await member.has()
        assert member.session.complete("other", held.lease, None, 5, b"answer").reason == "NotLive"
        member.session.release("other", held.lease, "mine", failed=True)
        assert member.link.of(Return) == []
        member.session.left("me")
        assert [one.failed for one in member.link.of(Return)] == [True]

    asyncio.run(run())


def test_without_a_scrubbed_version_nothing_is_wanted() -> None:
    async def run() -> None:
        member = Member()
        member.live = None
        member.connect()
        assert await member.take() is None
        assert [one.want for one in member.link.of(Take)] == [0]
        member.live = version(3)
        assert await member.take() is None
        assert (member.link.of(Take)[-1].seq, member.link.of(Take)[-1].want) == (3, 1)

    asyncio.run(run())
