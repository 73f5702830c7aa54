"""The rate limit, on a clock of its own."""

from __future__ import annotations

import asyncio

import pytest

from syncgroup_operator.kube.limits import MAX_PAUSE_S, TokenBucket
from syncgroup_operator.kube.watch import WatchTimes, pause_s


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        real = asyncio.sleep

        async def sleep(delay: float) -> None:
            self.now_s += delay
            await real(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    def __call__(self) -> float:
        return self.now_s


def test_a_burst_passes_at_once_and_the_rest_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def scenario() -> list[float]:
        bucket = TokenBucket(10.0, 5, clock)
        taken = []
        for _ in range(25):
            await bucket.take()
            taken.append(clock.now_s - 100.0)
        return taken

    taken = asyncio.run(scenario())
    assert taken[4] == 0.0
    assert taken[24] == pytest.approx(2.0)


def test_an_idle_bucket_never_holds_more_than_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def scenario() -> float:
        bucket = TokenBucket(10.0, 5, clock)
        clock.now_s += 1000
        for _ in range(15):
            await bucket.take()
        return clock.now_s - 1100.0

    assert asyncio.run(scenario()) == pytest.approx(1.0)


def test_news_leave_most_of_a_burst_to_what_is_done_and_still_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def scenario() -> tuple[float, float, float]:
        bucket = TokenBucket(10.0, 8, clock)
        for _ in range(2):
            await bucket.take(news=True)
        told_s = clock.now_s - 100.0
        for _ in range(6):
            await bucket.take()
        done_s = clock.now_s - 100.0
        await bucket.take(news=True)
        return told_s, done_s, clock.now_s - 100.0

    told_s, done_s, later_s = asyncio.run(scenario())
    assert (told_s, done_s) == (0.0, 0.0)
    assert later_s == pytest.approx(0.7)


def test_what_is_done_does_not_queue_behind_news(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    order: list[str] = []

    async def scenario() -> None:
        bucket = TokenBucket(10.0, 4, clock)
        for _ in range(4):
            await bucket.take()

        async def one(name: str, *, news: bool) -> None:
            await bucket.take(news=news)
            order.append(name)

        await asyncio.gather(one("told", news=True), one("done", news=False), one("done", news=False))

    asyncio.run(scenario())
    assert order == ["done", "done", "told"]


def test_a_server_that_asks_for_a_pause_gets_it_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def waited(seconds: float) -> float:
        bucket, before_s = TokenBucket(10.0, 5, clock), clock.now_s
        bucket.pause(seconds)
        await bucket.take()
        return clock.now_s - before_s

    assert asyncio.run(waited(3.0)) == pytest.approx(3.0)
    assert asyncio.run(waited(1e9)) == pytest.approx(MAX_PAUSE_S)
    assert asyncio.run(waited(-5.0)) == 0.0


def test_pauses_of_a_watch_grow_to_a_bound_and_are_apart() -> None:
    times = WatchTimes(first_pause_s=0.5, longest_pause_s=30.0)
    assert pause_s(0, times, 30.0, 0.9) == 0.0
    assert [pause_s(n, times, 30.0, 1.0) for n in (1, 2, 3, 7, 1000)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    assert pause_s(3, times, 30.0, 0.0) == 1.0
