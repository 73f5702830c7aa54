"""Events beside the passes: in order, without anybody waiting, and no failure is anybody's but their own."""

from __future__ import annotations

import asyncio
from typing import cast

from syncgroup_operator.errors import AccessError, UnreachableError
from syncgroup_operator.execute.news import News
from syncgroup_operator.kube.events import EventRecorder, Subject
from syncgroup_operator.planning.decision import Note

GROUP = Subject("syncgroup.dev/v1alpha1", "SyncGroup", "rl", "policy", "u1")


class Recorder:
    """A hub that takes Events while its gate is open, and never those whose reason is Broken."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.posted: list[str] = []

    async def post(self, subject: Subject, *, type: str, reason: str, note: str) -> None:
        await self.gate.wait()
        if reason == "Broken":
            raise UnreachableError("cluster local: no answer", cluster="local")
        if reason == "LockedOut":
            raise AccessError("the kubeconfig cannot be read")
        self.posted.append(note)


def note(text: str, reason: str = "Replaced") -> Note:
    return Note("Normal", reason, text)


def test_nobody_waits_and_the_order_stays_though_one_fails() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        recorder = Recorder()
        news = News(cast(EventRecorder, recorder))
        running = asyncio.create_task(news.run())
        for text, reason in (("one", "Replaced"), ("two", "Broken"), ("x", "LockedOut"), ("three", "Replaced")):
            news.say(GROUP, note(text, reason))
        await asyncio.sleep(0)
        before = list(recorder.posted)
        recorder.gate.set()
        await news.end(5.0)
        running.cancel()
        return before, recorder.posted

    assert asyncio.run(scenario()) == ([], ["one", "three"])


def test_a_hub_that_takes_none_does_not_hold_the_end_up() -> None:
    async def scenario() -> float:
        news = News(cast(EventRecorder, Recorder()))
        running = asyncio.create_task(news.run())
        news.say(GROUP, note("one"))
        started_s = asyncio.get_running_loop().time()
        await news.end(0.05)
        running.cancel()
        return asyncio.get_running_loop().time() - started_s

    assert asyncio.run(scenario()) >= 0.05


def test_where_too_many_wait_the_oldest_goes() -> None:
    async def scenario() -> list[str]:
        recorder = Recorder()
        news = News(cast(EventRecorder, recorder), max_waiting=2)
        for text in ("one", "two", "three"):
            news.say(GROUP, note(text))
        recorder.gate.set()
        running = asyncio.create_task(news.run())
        await news.end(5.0)
        running.cancel()
        return recorder.posted

    assert asyncio.run(scenario()) == ["two", "three"]
