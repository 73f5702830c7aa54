"""Ranks in front of a session, over links that write down what they are told: one goes away in the middle of things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sync_runtime.errors import LibraryLostError, LocalProtocolError
from sync_runtime.local.link import LibraryLink
from sync_runtime.local.messages import (
    Anchor,
    Blocks,
    Close,
    Closed,
    End,
    Error,
    Hello,
    Message,
    Open,
    Opened,
    Part,
    Publish,
)
from sync_runtime.session.publish import PublisherSession
from sync_runtime.session.ranks.parts import Owners
from sync_runtime.session.ranks.publishing import PublisherRanks
from sync_runtime.session.ranks.rounds import Round
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import Shards, make_layout

LAYOUT = make_layout([("w", "BF16", (512, 256))], shards={"w": Shards(64, None)})
PARTS = {0: ((0, 4),), 1: ((4, 8),)}
A = "a" * 32


@dataclass
class Link:
    """A rank's connection."""

    hello: Hello
    said: list[Message] = field(default_factory=list)
    is_lost: bool = False
    hung_up: bool = False
    before_send: Callable[[], Awaitable[None]] | None = None
    """Something that happens while a message is on its way."""

    async def send(self, message: Message) -> None:
        if self.before_send is not None:
            happens, self.before_send = self.before_send, None
            await happens()
        self.said.append(message)

    async def send_quietly(self, message: Message) -> None:
        await self.send(message)

    def hang_up(self) -> None:
        self.hung_up = True


class Session:
    """Opens whoever asks, and writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.gone: list[str] = []
        self.library: Any = None

    async def attached(self, library: Any) -> None:
        self.library = library

    async def message(self, library: Any, message: Message) -> None:
        self.heard.append(message)
        if isinstance(message, End) and len(self.heard) == 2:
            await library.send(Opened(A, 0, "0" * 32, None, True))

    async def data(self, library: Any, data: memoryview) -> None:
        """Nothing to do."""

    async def detached(self, library: Any, reason: str) -> None:
        self.gone.append(reason)


class House:
    """Two ranks of a publisher."""

    def __init__(self) -> None:
        self.session = Session()
        self.door = PublisherRanks(cast(PublisherSession, self.session))
        self.links = [self.link(rank) for rank in (0, 1)]

    def link(self, rank: int) -> LibraryLink:
        return cast(LibraryLink, Link(Hello((1,), "publisher", rank, 2, 1, "library", "0")))

    def told(self, rank: int) -> list[Message]:
        return cast(Link, self.links[rank]).said

    async def open(self) -> None:
        for rank, link in enumerate(self.links):
            await self.door.attached(link)
            await self.door.message(link, Part(PARTS[rank], (), ""))
            await self.door.message(link, Open(len(LAYOUT.document), False, (str(Digest(0, 0)),), False))
            await self.door.data(link, memoryview(LAYOUT.document))
            await self.door.message(link, End())


def test_blocks_are_not_asked_of_a_rank_that_has_just_gone() -> None:
    async def run() -> None:
        house = House()
        await house.open()
        del house.door.ranks[1]  # as `leave` does first
        with pytest.raises(LibraryLostError, match="rank 1 went away"):
            await house.session.library.send(Blocks(((0, 8),)))

    asyncio.run(run())


def test_blocks_that_nobody_wants_any_more_go_nowhere() -> None:
    async def run() -> None:
        house = House()
        await house.open()
        await house.session.library.send(Blocks(((0, 8),)))
        await house.door.message(house.links[0], Anchor(A, 0, PARTS[0]))
        rank = house.door.ranks[0]
        await house.door.lost(house.door.ranks[1], LibraryLostError("rank 1 of 2 went away"))
        await house.door.data(house.links[0], memoryview(b"the rest of its blocks"))
        await house.door.message(house.links[0], End())
        assert rank.stream is None

    asyncio.run(run())


def test_ranks_that_go_away_at_once_leave_nobody_behind() -> None:
    async def run() -> None:
        house = House()
        third = cast(LibraryLink, Link(Hello((1,), "publisher", 2, 3, 1, "library", "0")))
        await house.open()
        house.door.ranks[2] = type(house.door.ranks[0])(third)

        async def second_goes() -> None:
            del house.door.ranks[2]

        cast(Link, house.links[1]).before_send = second_goes
        await house.door.detached(house.links[0], "killed")
        assert house.session.gone == ["rank 0 of 2 went away: killed"]
        assert isinstance(house.told(1)[-1], Error)
        assert cast(Link, house.links[1]).hung_up

    asyncio.run(run())


def test_a_rank_that_goes_away_while_all_are_told_that_they_are_open_stops_nobody() -> None:
    async def run() -> None:
        house = House()

        async def second_goes() -> None:
            del house.door.ranks[1]

        cast(Link, house.links[0]).before_send = second_goes
        await house.open()
        assert any(isinstance(message, Opened) for message in house.told(0))

    asyncio.run(run())


def test_what_a_rank_says_that_was_not_let_in_reaches_no_session() -> None:
    async def run() -> None:
        house = House()
        await house.open()
        heard = len(house.session.heard)
        await house.door.message(house.link(1), Publish(1, "", "fast"))
        await house.door.data(house.link(1), memoryview(b"bytes"))
        assert len(house.session.heard) == heard

    asyncio.run(run())


def test_a_rank_publishes_once_in_a_version() -> None:
    async def nothing(_: object) -> None:
        """Nobody listens."""

    async def run() -> None:
        made = Round(Owners(BlockMap(LAYOUT), PARTS), 2, nothing, nothing)
        made.begin(0, Publish(1, "", "fast"))
        with pytest.raises(LocalProtocolError, match="rank 0 publishes again"):
            made.begin(0, Publish(1, "", "fast"))

    asyncio.run(run())


def test_a_rank_may_go_on_before_the_last_one_has_heard_that_all_are_open() -> None:
    async def run() -> None:
        house = House()

        async def first_publishes() -> None:
            await house.door.message(house.links[0], Publish(1, "", "fast"))

        cast(Link, house.links[1]).before_send = first_publishes
        await house.open()
        assert house.door.ranks[0].stream == "PUBLISH"
        await house.door.detached(house.links[0], "the test is over")

    asyncio.run(run())


def test_a_rank_that_closes_does_not_wait_for_one_that_died() -> None:
    async def run() -> None:
        house = House()
        await house.open()
        await house.door.message(house.links[0], Close(30_000))
        await house.door.detached(house.links[1], "killed")
        assert house.told(0)[-1] == Closed(drained=False)
        assert not cast(Link, house.links[0]).hung_up  # it hangs up by itself

    asyncio.run(run())
