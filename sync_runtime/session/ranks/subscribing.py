"""An engine's ranks in front of its session: each gets the blocks it holds, and all switch to a version or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial

from sync_runtime.errors import DigestError, LibraryLostError, LocalProtocolError, SyncError, WrongBaseError
from sync_runtime.local.faults import to_message
from sync_runtime.local.messages import (
    Activate,
    Activated,
    Cancel,
    End,
    Error,
    Go,
    Known,
    Message,
    Note,
    Open,
    Opened,
    Part,
    Scrub,
    Share,
    Stage,
    Staged,
    Unstage,
    VersionRef,
    name_of,
)
from sync_runtime.local.ranges import to_ranges
from sync_runtime.session.members import EngineSession
from sync_runtime.session.ranks.door import Rank, RanksDoor
from sync_runtime.session.ranks.joining import RecordSplitter
from sync_runtime.session.ranks.link import Chunks, RanksLink
from sync_runtime.session.ranks.parts import (
    NOTHING,
    earliest,
    holds,
    joined_timings,
    numbers_of,
    opened_digest,
    summed,
)

_AHEAD = 4
"""Pieces of a stream that one rank may be ahead of another."""


class EngineRanks(RanksDoor):
    """Handles one subscriber, or the ranks of one."""

    def __init__(self, session: EngineSession) -> None:
        super().__init__(session)
        self._chain: list[VersionRef] = []
        """What all ranks have: the live version, then those staged over it."""
        self._stage: Stage | None = None
        self._shares: dict[int, str] = {}
        self._staged: dict[int, Staged] = {}
        self._waiting: dict[type[Message], dict[int, Message]] = {}
        """What ranks have said that counts once all have said it."""

    def make_link(self, rank: Rank) -> RanksLink:
        """The ranks as one library."""
        self._chain, self._stage = [], None
        self._waiting.clear()
        return RanksLink(rank.link.hello, self._say, self.hang_up, self._send_stream)

    def offered(self, ordered: list[Rank]) -> tuple[str, ...]:
        """The digest of the live weights; copies that are not alike make it one that nobody knows."""
        super().offered(ordered)
        return (opened_digest({one.number: one.part for one in ordered if one.part is not None}),)

    async def lost(self, rank: Rank, error: LibraryLostError) -> None:
        """Whoever waits for this rank is hung up on with the others."""
        self._stage = None
        self._waiting.clear()

    # --- what ranks say ----------------------------------------------------------------------------------------------

    async def heard(self, rank: Rank, message: Message) -> None:
        """A message of one rank."""
        if isinstance(message, Open):
            self.begin_open(rank, message)
            rank.stream = "OPEN"
        elif isinstance(message, End | Cancel):
            rank.stream = None
            if isinstance(message, End):
                await self.end_open(rank)
        elif isinstance(message, Part):
            rank.part = message
        elif self.joined is None:
            raise LocalProtocolError(f"{name_of(message)} came before all ranks were open")
        else:
            await self._said(rank, self.joined, message)

    async def came(self, rank: Rank, data: memoryview) -> None:
        """Bytes of one rank's layout."""
        rank.take_document(data)

    async def _said(self, rank: Rank, joined: RanksLink, message: Message) -> None:
        match message:
            case Share(digest=digest):
                self._shares[rank.number] = digest
            case Staged():
                await self._one_staged(rank, joined, message)
            case Error(request="STAGE"):
                if self._stage is not None:
                    self._stage = None
                    await self.session.message(joined, message)
            case Activate() | Activated() | Scrub(state=False):
                asked = self._waiting.setdefault(type(message), {})
                asked[rank.number] = message
                if len(asked) == rank.link.hello.world_size:
                    del self._waiting[type(message)]
                    await self._all_said(joined, type(message), asked)
            case Note():
                if rank.number == 0:
                    await self.session.message(joined, message)
            case _:
                raise LocalProtocolError(f"one of several subscribers does not send {name_of(message)}")

    # --- staging -----------------------------------------------------------------------------------------------------

    async def _send_stream(self, begin: Message, chunks: Chunks, end: End) -> None:
        """A staged stream to all ranks, to each what it holds."""
        if not isinstance(begin, Stage):
            raise LocalProtocolError(f"ranks are not sent {name_of(begin)}")
        self._stage, self._staged, self._shares = begin, {}, {}
        ranks = dict(self.ranks)
        splitter = RecordSplitter({number: partial(_wants, rank) for number, rank in ranks.items()})
        queues: dict[int, asyncio.Queue[bytes | None]] = {number: asyncio.Queue(_AHEAD) for number in ranks}

        async def split() -> None:
            async for chunk in _each(chunks):
                for number, part in splitter.feed(chunk).items():
                    await queues[number].put(part)
            for queue in queues.values():
                await queue.put(None)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(split())
                for number, rank in ranks.items():
                    tasks.create_task(rank.link.stream(begin, _taken(queues[number]), end))
        except BaseExceptionGroup as group:
            ours, others = group.split(SyncError)
            if ours is None or others is not None:
                raise
            raise _first(ours) from group  # not `except*`, which would hand the session a group

    async def _one_staged(self, rank: Rank, joined: RanksLink, message: Staged) -> None:
        stage = self._stage
        if stage is None or (stage.lineage, stage.seq) != (message.lineage, message.seq):
            return  # another rank refused it meanwhile
        self._staged[rank.number] = message
        if len(self._staged) < rank.link.hello.world_size:
            return
        self._stage = None
        ref = VersionRef(stage.lineage, stage.seq)
        is_repair = stage.base == ref
        shares = [self._shares[number] for number in sorted(self._staged) if number in self._shares]
        if not is_repair and (len(shares) < len(self._staged) or summed(shares) != stage.digest):
            error = DigestError("what the ranks staged does not add up to the version's digest")
            await self.session.message(joined, to_message("STAGE", error))
            joined.hang_up()
            return
        if not is_repair:
            self._chain = [ref] if stage.base is None else [*self._chain, ref]
        timings = joined_timings(one.timings_us for one in self._staged.values())
        await self.session.message(joined, Staged(stage.lineage, stage.seq, timings))

    # --- what all ranks say together ---------------------------------------------------------------------------------

    async def _all_said(self, joined: RanksLink, kind: type[Message], said: dict[int, Message]) -> None:
        try:
            if kind is Activate:
                await self._activate(joined, [one for one in said.values() if isinstance(one, Activate)])
            elif kind is Activated:
                await self._activated(joined, [one for one in said.values() if isinstance(one, Activated)])
            else:
                await self._scrub(joined, [one for one in said.values() if isinstance(one, Scrub)])
        except LibraryLostError:
            raise
        except SyncError as error:
            await self._tell(to_message(name_of(kind), error))

    async def _activate(self, joined: RanksLink, asked: list[Activate]) -> None:
        """Leave for the newest version that all ranks have, once all have asked."""
        chosen = earliest((VersionRef(one.lineage, one.seq) for one in asked), self._chain)
        if chosen is None:
            await self._tell(Go(NOTHING.lineage, NOTHING.seq, 0))
        else:
            await self.session.message(joined, Activate(chosen.lineage, chosen.seq))

    async def _activated(self, joined: RanksLink, done: list[Activated]) -> None:
        refs = {VersionRef(one.lineage, one.seq) for one in done}
        ref = next(iter(refs))
        if len(refs) > 1 or ref not in self._chain:
            joined.hang_up()
            raise LocalProtocolError("ranks activated different versions: their full digest decides")
        self._chain = self._chain[self._chain.index(ref) :]
        await self.session.message(joined, Activated(ref.lineage, ref.seq, max(one.pause_us for one in done)))

    async def _scrub(self, joined: RanksLink, asked: list[Scrub]) -> None:
        refs = {VersionRef(one.lineage, one.seq) for one in asked}
        if len(refs) > 1 or any(one.digest is None for one in asked):
            raise WrongBaseError("ranks scrub different versions: every rank calls scrub between the same activations")
        wrong = sorted({number for one in asked for number in numbers_of(one.blocks)})
        # A copy that is wrong is in nobody's sum: where blocks are named, the scrub has not passed.
        digest = None if wrong else summed(one.digest for one in asked if one.digest is not None)
        ref = next(iter(refs))
        await self.session.message(joined, Scrub(ref.lineage, ref.seq, digest, to_ranges(wrong), False))

    # --- what the session tells --------------------------------------------------------------------------------------

    async def _say(self, message: Message) -> None:
        match message:
            case Opened(lineage=lineage, seq=seq):
                self._chain = [] if lineage is None or seq is None else [VersionRef(lineage, seq)]
                await self.say_opened(message)
            case Known(lineage=lineage, seq=seq):
                self._chain = [VersionRef(lineage, seq)]
                await self._tell(message)
            case Unstage(version=version):
                kept = self._chain.index(version) + 1 if version in self._chain else 1
                self._chain = self._chain[:kept]
                await self._tell(message)
            case _:
                await self._tell(message)

    async def _tell(self, message: Message) -> None:
        for rank in list(self.ranks.values()):
            await rank.link.send_quietly(message)


def _wants(rank: Rank, number: int) -> bool:
    part = rank.part
    return part is not None and (holds(part.blocks, number) or holds(part.copies, number))


async def _each(chunks: Chunks) -> AsyncIterator[bytes | memoryview]:
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk


async def _taken(queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (part := await queue.get()) is not None:
        yield part


def _first(group: BaseExceptionGroup[SyncError]) -> SyncError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
