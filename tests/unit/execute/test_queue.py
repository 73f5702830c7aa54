"""The work queue: deduplicated, one pass per key at a time, delays and back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncgroup_operator.execute.queue import FIRST_BACK_OFF_S, MAX_BACK_OFF_S, WorkQueue


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def queue_at(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock, jitter=lambda: 0.5)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def taken(queue: WorkQueue[str]) -> str | None:
    """What is due now; None where nothing is."""
    task = asyncio.create_task(queue.take())
    for _ in range(3):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


def test_ten_wake_ups_are_one_pass() -> None:
    async def work() -> None:
        queue = queue_at(Clock())
        for _ in range(10):
            queue.wake("a")
        assert await taken(queue) == "a"
        queue.done("a")
        assert await taken(queue) is None

    run(work())


def test_a_key_in_work_is_not_given_out_again_but_looked_at_once_more_afterwards() -> None:
    async def work() -> None:
        queue = queue_at(Clock())
        queue.wake("a")
        assert await taken(queue) == "a"
        queue.wake("a")
        queue.wake("a")
        assert await taken(queue) is None
        queue.done("a")
        assert await taken(queue) == "a"
        queue.done("a")
        assert await taken(queue) is None

    run(work())


def test_an_earlier_appointment_wins_over_a_later_one() -> None:
    async def work() -> None:
        clock = Clock()
        queue = queue_at(clock)
        queue.wake("a", 60.0)
        queue.wake("a", 5.0)
        queue.wake("a", 30.0)
        clock.now_s += 4.9
        assert await taken(queue) is None
        clock.now_s += 0.2
        assert await taken(queue) == "a"
        queue.done("a")
        clock.now_s += 100
        assert await taken(queue) is None

    run(work())


def test_a_key_that_is_done_comes_back_when_it_asked_to() -> None:
    async def work() -> None:
        clock = Clock()
        queue = queue_at(clock)
        queue.wake("a")
        await taken(queue)
        queue.done("a", again_after_s=10.0)
        assert await taken(queue) is None
        clock.now_s += 10.0
        assert await taken(queue) == "a"

    run(work())


def test_failures_back_off_further_and_further_up_to_a_limit_and_success_ends_that() -> None:
    async def work() -> None:
        clock = Clock()
        queue = queue_at(clock)
        queue.wake("a")
        pauses = []
        for _ in range(12):
            assert await taken(queue) == "a"
            pauses.append(queue.failed("a"))
            assert await taken(queue) is None
            clock.now_s += pauses[-1]
        assert pauses[0] == FIRST_BACK_OFF_S
        assert pauses == sorted(pauses)
        assert pauses[-1] == MAX_BACK_OFF_S
        assert await taken(queue) == "a"
        queue.done("a")
        queue.wake("a")
        assert await taken(queue) == "a"
        assert queue.failed("a") == FIRST_BACK_OFF_S

    run(work())


def test_wake_ups_during_a_failing_pass_do_not_undo_its_back_off_but_later_ones_do() -> None:
    async def work() -> None:
        queue = queue_at(Clock())
        queue.wake("a")
        assert await taken(queue) == "a"
        queue.wake("a")
        queue.failed("a")
        assert await taken(queue) is None
        queue.wake("a")
        assert await taken(queue) == "a"

    run(work())


def test_a_forgotten_key_is_not_looked_at_again() -> None:
    async def work() -> None:
        queue = queue_at(Clock())
        queue.wake("a")
        queue.wake("b")
        queue.forget("a")
        assert await taken(queue) == "b"
        queue.wake("b")
        queue.forget("b")
        queue.done("b")
        assert await taken(queue) is None

    run(work())


def test_depth_and_age_count_what_is_due_and_nothing_else() -> None:
    async def work() -> None:
        clock = Clock()
        queue = queue_at(clock)
        queue.wake("a")
        queue.wake("b")
        queue.wake("later", 60.0)
        clock.now_s += 7.0
        assert (queue.depth, queue.oldest_s) == (2, 7.0)
        await taken(queue)
        await taken(queue)
        assert (queue.depth, queue.oldest_s) == (0, 0.0)

    run(work())


def test_whoever_waits_is_let_go_when_the_queue_closes() -> None:
    async def work() -> None:
        queue = queue_at(Clock())
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.close()
        assert await asyncio.wait_for(waiting, 10) is None

    run(work())


STEPS = st.lists(
    st.tuples(st.sampled_from(["wake", "later", "take", "done", "fail", "forget", "time"]), st.sampled_from("abc")),
    max_size=60,
)


@given(STEPS)
def test_no_wake_up_is_lost_and_no_key_is_in_work_twice(steps: list[tuple[str, str]]) -> None:
    async def work() -> None:
        clock = Clock()
        queue = queue_at(clock)
        working: set[str] = set()
        owed: set[str] = set()
        for step, key in steps:
            if step in ("wake", "later"):
                queue.wake(key, 0.0 if step == "wake" else 3.0)
                owed.add(key)
            elif step == "take":
                found = await taken(queue)
                if found is not None:
                    assert found not in working
                    working.add(found)
                    owed.discard(found)
            elif step == "done" and key in working:
                queue.done(key)
                working.discard(key)
            elif step == "fail" and key in working:
                queue.failed(key)
                working.discard(key)
                owed.add(key)
            elif step == "forget":
                queue.forget(key)
                owed.discard(key)
            elif step == "time":
                clock.now_s += 5.0
        for key in tuple(working):
            queue.done(key)
        clock.now_s += 2 * MAX_BACK_OFF_S
        found_later = set()
        while (found := await taken(queue)) is not None:
            found_later.add(found)
        assert owed <= found_later

    run(work())


def test_what_is_urgent_is_taken_before_what_was_due_earlier() -> None:
    async def scenario() -> list[str | None]:
        queue = queue_at(Clock())
        for key in ("a", "b", "c"):
            queue.wake(key)
        queue.wake("b", urgent=True)
        queue.wake("later", 60.0)
        queue.wake("later", 60.0, urgent=True)
        return [await taken(queue) for _ in range(5)]

    assert run(scenario()) == ["b", "later", "a", "c", None]


def test_an_urgent_wake_up_during_a_pass_leads_to_one_more_pass_and_to_no_second() -> None:
    async def scenario() -> list[str | None]:
        queue = queue_at(Clock())
        queue.wake("a")
        found = [await taken(queue)]
        queue.wake("b")
        queue.wake("a", urgent=True)
        found.append(await taken(queue))
        queue.done("a")
        found.append(await taken(queue))
        queue.done("a")
        queue.done("b")
        return [*found, await taken(queue)]

    assert run(scenario()) == ["a", "b", "a", None]


def test_after_a_failure_an_urgent_wake_up_does_not_undo_the_pause() -> None:
    async def scenario() -> list[str | None]:
        queue = queue_at(Clock())
        queue.wake("a")
        found = [await taken(queue)]
        queue.wake("a", urgent=True)
        queue.failed("a")
        return [*found, await taken(queue)]

    assert run(scenario()) == ["a", None]
