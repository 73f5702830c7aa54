"""A publisher that comes while the last one's end is awaited: it gets in, or its own end is heeded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from sync_runtime.local.link import LibraryLink
from sync_runtime.session.publish import PublisherSession, TrainerContext


def library() -> LibraryLink:
    """One whose process is dead."""
    return cast(LibraryLink, SimpleNamespace(is_lost=True))


async def waiting() -> tuple[PublisherSession, LibraryLink, asyncio.Task[None]]:
    """A session with a dead library, and another one that waits for it to be gone."""
    session = PublisherSession(cast(TrainerContext, SimpleNamespace()))
    dead = library()
    await session.attached(dead)
    task = asyncio.create_task(session.attached(library()))
    await asyncio.sleep(0)
    assert not task.done()
    return session, dead, task


def test_a_publisher_gets_in_once_the_dead_one_is_gone() -> None:
    async def run() -> None:
        session, dead, task = await waiting()
        await session.detached(dead, "it died")
        await asyncio.wait_for(task, 5)

    asyncio.run(run())


def test_a_cancellation_that_comes_with_the_end_of_the_wait_is_not_lost() -> None:
    async def run() -> None:
        session, dead, task = await waiting()
        await session.detached(dead, "it died")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
