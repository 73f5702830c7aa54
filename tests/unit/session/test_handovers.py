"""A library that comes while the end of the last one of its kind is still being heeded: it waits, and gets in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sync_runtime.errors import LocalProtocolError
from sync_runtime.local.link import LibraryLink
from sync_runtime.session import members
from sync_runtime.session.members import EngineSession
from sync_runtime.session.weights import EngineContext
from sync_runtime.session.work import counter
from sync_runtime.session.work.counter import WorkCounter
from sync_runtime.session.work.desk import WorkDesk

MODULES: dict[str, Any] = {"an engine": members, "a trainer's work": counter}


def session_of(kind: str) -> EngineSession | WorkCounter:
    if kind == "an engine":
        context = SimpleNamespace(spool=SimpleNamespace(path="/nowhere"), versions=None, spawn=None, follow=None)
        context.changed = lambda: None
        return EngineSession(cast(EngineContext, context))
    return WorkCounter(cast(WorkDesk, SimpleNamespace(books=lambda: None)))


def library(*, is_lost: bool) -> LibraryLink:
    return cast(LibraryLink, SimpleNamespace(is_lost=is_lost))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES.values():
        monkeypatch.setattr(module, "HANDOVER_S", 0.05)


@pytest.mark.parametrize("kind", MODULES)
def test_who_comes_while_the_work_of_a_lost_one_ends_gets_in_however_long_that_takes(kind: str) -> None:
    async def run() -> None:
        session, lost = session_of(kind), library(is_lost=True)
        await session.attached(lost)
        task = asyncio.create_task(session.attached(library(is_lost=False)))
        await asyncio.sleep(0.2)  # a commit to a slow disk, for instance
        assert not task.done()
        await session.detached(lost, "it died")
        await asyncio.wait_for(task, 5)

    asyncio.run(run())


@pytest.mark.parametrize("kind", MODULES)
def test_who_comes_while_another_one_lives_is_refused(kind: str) -> None:
    async def run() -> None:
        session = session_of(kind)
        await session.attached(library(is_lost=False))
        with pytest.raises(LocalProtocolError, match="another"):
            await session.attached(library(is_lost=False))

    asyncio.run(run())
