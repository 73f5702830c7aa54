"""An object that could not be staged: whose fault that was decides whether it is ever tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sync_runtime.bucket.keys import delta_key
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.errors import LayoutError
from sync_runtime.local import messages as local
from sync_runtime.local.link import LibraryLink
from sync_runtime.session.machine import ServiceEvent
from sync_runtime.session.members import EngineSession
from sync_runtime.session.versions import Versions
from sync_runtime.session.weights import EngineContext

KEY = delta_key("a" * 32, 0, 1)
STORED = cast(StoredObject, SimpleNamespace(key=KEY))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineSession]:
    """One whose objects all fail, as if the engine's layout were not known."""

    async def fail(*_: object) -> bool:
        raise LayoutError("the layout is not known here")

    monkeypatch.setattr("sync_runtime.session.stager.Stager.stage", fail)
    with Spool.open(tmp_path, max_bytes=1 << 20, max_versions=10) as spool:
        yield EngineSession(
            EngineContext(
                spool=spool,
                versions=Versions(),
                follow=lambda: None,
                moved=lambda: None,
                changed=lambda: None,
                timed=lambda *_: None,
                spawn=lambda _: None,
            )
        )


def library() -> LibraryLink:
    return cast(LibraryLink, SimpleNamespace(hang_up=lambda: None))


def test_an_object_that_cannot_be_read_is_not_tried_again(session: EngineSession) -> None:
    async def run() -> None:
        engine = library()
        await session.attached(engine)
        await session._stage(engine, STORED)

    asyncio.run(run())
    assert session.refused == {KEY}


def test_an_object_whose_engine_went_away_meanwhile_is_tried_with_the_next_one(session: EngineSession) -> None:
    async def run() -> None:
        await session.attached(library())
        await session._stage(library(), STORED)  # begun for the one before

    asyncio.run(run())
    assert session.refused == set()


def test_a_version_that_went_live_though_it_is_not_staged_any_more_makes_the_library_open_again(
    session: EngineSession,
) -> None:
    """An interrupted scatter, ended after its lineage had ended: only a full digest can say what is live."""
    ended: list[bool] = []

    async def run() -> None:
        engine = cast(LibraryLink, SimpleNamespace(hang_up=lambda: ended.append(True)))
        await session.attached(engine)
        await session.message(engine, local.Activated("b" * 32, 7, 100))

    asyncio.run(run())
    assert ended == [True]
    assert session.trouble is not None


def test_what_is_wrong_with_live_weights_is_still_told_when_a_fresh_delta_is_staged(
    session: EngineSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report would not be one without a reason, and a lease that is not renewed looks like a dead member's."""

    async def stage(*_: object) -> bool:
        return False

    monkeypatch.setattr("sync_runtime.session.stager.Stager.stage", stage)
    for event in (ServiceEvent.KNOWN_DIGEST, ServiceEvent.SCRUB, ServiceEvent.SCRUB_FAILED):
        session._machine.feed(event)
    session._note_trouble("ScrubFailed", "one block differs")
    asyncio.run(session._stage(library(), STORED))
    assert session.trouble == ("ScrubFailed", "one block differs")
