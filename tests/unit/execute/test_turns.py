"""Few passes work side by side, in order; one that waits holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from syncgroup_operator.execute.turns import Turns


async def one(turns: Turns, name: str, log: list[str], work: asyncio.Event, *, urgent: bool = False) -> None:
    async with turns.taken(urgent=urgent):
        log.append(f"{name} begins")
        await work.wait()
        log.append(f"{name} ends")


def test_passes_begin_in_order_and_no_more_than_allowed() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        turns, work = Turns(at_once=2, longest_s=60.0), asyncio.Event()
        log: list[str] = []
        passes = [asyncio.create_task(one(turns, name, log, work)) for name in "abc"]
        await asyncio.sleep(0.01)
        before = list(log)
        work.set()
        await asyncio.gather(*passes)
        return before, log

    before, log = asyncio.run(scenario())
    assert before == ["a begins", "b begins"]
    assert [line for line in log if "begins" in line] == ["a begins", "b begins", "c begins"]


def test_a_pass_that_waits_long_loses_its_turn_and_goes_on() -> None:
    async def scenario() -> list[str]:
        turns, work = Turns(at_once=1, longest_s=0.02), asyncio.Event()
        log: list[str] = []
        stuck = asyncio.create_task(one(turns, "stuck", log, work))
        await asyncio.sleep(0)
        done = asyncio.Event()
        done.set()
        await asyncio.wait_for(one(turns, "next", log, done), 5.0)
        work.set()
        await stuck
        return log

    assert asyncio.run(scenario()) == ["stuck begins", "next begins", "next ends", "stuck ends"]


def test_a_turn_that_was_ended_early_is_given_back_once() -> None:
    async def scenario() -> list[str]:
        turns = Turns(at_once=1, longest_s=0.01)
        log: list[str] = []
        async with turns.taken() as end:
            end()
            end()
            await asyncio.sleep(0.03)  # its time is over, too
        work = asyncio.Event()
        passes = [asyncio.create_task(one(turns, name, log, work)) for name in "ab"]
        await asyncio.sleep(0)
        before = list(log)
        work.set()
        await asyncio.gather(*passes)
        return before

    assert asyncio.run(scenario()) == ["a begins"]


def test_a_pass_that_fails_gives_its_turn_back() -> None:
    async def scenario() -> bool:
        turns = Turns(at_once=1, longest_s=60.0)
        with pytest.raises(ValueError, match="a pass died"):
            async with turns.taken():
                raise ValueError("a pass died")
        async with asyncio.timeout(10.0), turns.taken():
            return True

    assert asyncio.run(scenario())


def test_an_urgent_pass_goes_before_those_that_came_earlier() -> None:
    async def scenario() -> list[str]:
        turns, work = Turns(at_once=1, longest_s=60.0), asyncio.Event()
        log: list[str] = []
        passes = [asyncio.create_task(one(turns, name, log, work)) for name in "ab"]
        await asyncio.sleep(0)
        passes.append(asyncio.create_task(one(turns, "urgent", log, work, urgent=True)))
        await asyncio.sleep(0)
        work.set()
        await asyncio.gather(*passes)
        return [line for line in log if "begins" in line]

    assert asyncio.run(scenario()) == ["a begins", "urgent begins", "b begins"]


def test_a_turn_that_nobody_wants_any_more_goes_to_the_next() -> None:
    async def scenario() -> list[str]:
        turns, work = Turns(at_once=1, longest_s=60.0), asyncio.Event()
        log: list[str] = []
        async with turns.taken() as end:
            waiting, handed = (asyncio.create_task(one(turns, name, log, work)) for name in "ab")
            await asyncio.sleep(0)
            waiting.cancel()  # while it waits
            await asyncio.sleep(0)
            end()
            handed.cancel()  # in the moment that it was handed the turn
        work.set()
        await asyncio.gather(waiting, handed, return_exceptions=True)
        await asyncio.wait_for(one(turns, "c", log, work), 10.0)
        return [line for line in log if "begins" in line]

    assert asyncio.run(scenario()) == ["c begins"]


def test_while_something_urgent_waits_turns_are_short() -> None:
    async def scenario() -> list[str]:
        turns, work = Turns(at_once=1, longest_s=60.0, short_s=0.1), asyncio.Event()
        log: list[str] = []
        slow = [asyncio.create_task(one(turns, name, log, work)) for name in "ab"]
        await asyncio.sleep(0.15)  # "a" had its time, and only "b" waits
        before = list(log)
        urgent = [asyncio.create_task(one(turns, name, log, work, urgent=True)) for name in ("first", "second")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [*before, "first begins"] == log == ["a begins", "first begins"]
        await asyncio.wait_for(until(lambda: "second begins" in log), 5.0)
        assert "b begins" not in log
        work.set()
        await asyncio.gather(*slow, *urgent)
        return [line for line in log if "begins" in line]

    assert asyncio.run(scenario()) == ["a begins", "first begins", "second begins", "b begins"]


async def until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110 a log has no event
        await asyncio.sleep(0.001)
