"""A trainer's ranks in front of its session: they open together, publish together, and answer for their own blocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field, replace

from sync_runtime.codec.frame import END_RECORD, pack_header
from sync_runtime.errors import ChainError, LibraryLostError, LocalError, LocalProtocolError, SyncError
from sync_runtime.local.faults import to_error, to_message
from sync_runtime.local.messages import (
    Anchor,
    Blocks,
    Cancel,
    Close,
    Closed,
    End,
    Error,
    Histograms,
    Message,
    Note,
    Open,
    Opened,
    Part,
    Publish,
    Published,
    Recode,
    Share,
    Tables,
)
from sync_runtime.local.ranges import Ranges, from_ranges
from sync_runtime.offline.anchors import raw_anchor_bytes
from sync_runtime.session.publish import PublisherSession
from sync_runtime.session.ranks.counting import Counting
from sync_runtime.session.ranks.door import Rank, RanksDoor
from sync_runtime.session.ranks.joining import RecordFeed, header_of, next_records
from sync_runtime.session.ranks.link import RanksLink
from sync_runtime.session.ranks.parts import Owners
from sync_runtime.session.ranks.rounds import RANKS_TIMEOUT_S, Round


@dataclass
class _Fetch:
    """Anchor blocks that several ranks were asked for."""

    ranges: Ranges
    parts: dict[int, Ranges]
    feeds: dict[int, RecordFeed]
    limit_bytes: int
    versions: set[tuple[str, int]] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    is_over: bool = False


class PublisherRanks(RanksDoor):
    """Handles one publisher, or the ranks of one."""

    def __init__(self, session: PublisherSession) -> None:
        super().__init__(session)
        self._round: Round | None = None
        self._running: asyncio.Task[None] | None = None
        self._owed: dict[int, SyncError] = {}
        """Ranks that have yet to ask for a version that failed, and why: they hear it when they do."""
        self._counting: Counting | None = None
        """What ranks send for the tables of a version that is durable already."""
        self._tables: bytes | None = None
        """What their counts made: the next objects are coded under them."""
        self._patience: asyncio.TimerHandle | None = None
        self._asked: dict[int, deque[_Fetch]] = {}
        """By rank: requests for blocks that it has not answered, the oldest first."""

    def make_link(self, rank: Rank) -> RanksLink:
        """The ranks as one library."""
        spoken = set.intersection(*(set(one.link.hello.protocols) for one in self.ranks.values()))
        hello = replace(rank.link.hello, protocols=tuple(sorted(spoken)) or (1,))
        return RanksLink(hello, self._say, self.hang_up)

    # --- what ranks say ----------------------------------------------------------------------------------------------

    async def came(self, rank: Rank, data: memoryview) -> None:
        """Bytes of one rank's stream."""
        if rank.stream == "OPEN":
            rank.take_document(data)
        elif rank.stream == "ANCHOR":
            await self._blocks_came(rank, data)
        elif rank.stream == "HISTOGRAMS" and self._counting is not None:
            try:
                self._counting.feed(rank.number, data)
            except SyncError as error:
                await self._no_tables(error)
        elif rank.stream == "PUBLISH" and self._round is not None:
            try:
                await self._round.take(rank.number, data, lambda: rank.link.is_lost)
            except SyncError as error:
                self._round.fail(error)

    async def heard(self, rank: Rank, message: Message) -> None:
        """A message of one rank."""
        match message:
            case Part():
                rank.part = message
            case Open():
                self.begin_open(rank, message)
                rank.stream = "OPEN"
            case Publish():
                self._begin(rank, message)
            case Histograms():
                if self._counting is None:
                    raise LocalProtocolError("no counts were asked for, or they are not wanted any more")
                self._counting.begin(rank.number)
                rank.stream = "HISTOGRAMS"
            case Anchor():
                self._anchor_begins(rank, message)
            case End() | Cancel():
                await self._ended(rank, message)
            case Error(request="BLOCKS"):
                await self._no_blocks(rank, to_error(message))
            case Close():
                rank.is_closing = True
                if self.joined is not None and all(one.is_closing for one in self.ranks.values()):
                    await self.session.message(self.joined, message)
            case Note():
                return
            case _:
                raise LocalProtocolError(f"a publisher does not send {type(message).__name__}")

    async def _ended(self, rank: Rank, message: End | Cancel) -> None:
        stream, rank.stream = rank.stream, None
        if stream == "OPEN":
            if isinstance(message, End):
                await self.end_open(rank)
        elif stream == "ANCHOR":
            await self._blocks_ended(rank, message)
        elif stream == "HISTOGRAMS" and self._counting is not None:
            await self._counted(rank, self._counting, message)
        elif stream == "PUBLISH" and self._round is not None:
            try:
                if isinstance(message, Cancel):
                    raise LocalProtocolError(f"rank {rank.number} gave up: {message.reason}")
                self._round.end(rank.number, message)
            except SyncError as error:
                self._round.fail(error)

    async def lost(self, rank: Rank, error: LibraryLostError) -> None:
        """What is being made durable becomes so; anything else leaves nothing."""
        if self._round is not None and self._running is not None:
            self._round.fail(error)
            await asyncio.gather(asyncio.shield(self._running), return_exceptions=True)
        self._owed.clear()
        self._forget_tables()
        for fetch in {id(one): one for asked in self._asked.values() for one in asked}.values():
            fetch.is_over = True  # the session's end tells whoever waits
        self._asked.clear()

    # --- publishing --------------------------------------------------------------------------------------------------

    def _begin(self, rank: Rank, message: Publish) -> None:
        joined, owners = self.joined, self.owners
        if joined is None or owners is None:
            raise LocalProtocolError("PUBLISH came before all ranks were open")
        owed = self._owed.pop(rank.number, None)
        if owed is not None:
            raise owed
        tables = self._tables if message.codec == "tight" else b""
        if tables is None:
            raise LocalProtocolError("nobody asked for this version in another codec, or it failed meanwhile")
        if self._round is None:
            size = rank.link.hello.world_size
            self._round = Round(
                owners, size, lambda said: self.session.message(joined, said),
                lambda data: self.session.data(joined, data), tables,
            )  # fmt: skip
            self._running = asyncio.create_task(self._run(self._round, joined), name="ranks-publish")
        try:
            self._round.begin(rank.number, message)
        except SyncError as error:
            self._round.fail(error)
            raise
        rank.stream = "PUBLISH"

    async def _run(self, round_: Round, joined: RanksLink) -> None:
        failure: SyncError | None = None
        try:
            await round_.run()
        except SyncError as error:
            failure = error
        self._round = self._running = None
        is_tight = self._tables is not None  # fast objects have none
        if is_tight:
            self._forget_tables()
        if failure is None:
            return
        if is_tight:
            await self.session.message(joined, to_message("RECODE", failure))
        for rank in list(self.ranks.values()):
            if rank.number in round_.begun:
                rank.stream = None if rank.stream == "PUBLISH" else rank.stream
                await rank.link.send_quietly(to_message("PUBLISH", failure))
            elif not joined.is_lost and not is_tight:
                self._owed[rank.number] = failure

    async def _say(self, message: Message) -> None:
        """What the session tells its library."""
        match message:
            case Opened():
                await self.say_opened(message)
            case Published():
                shares = {} if self._round is None else self._round.shares
                for rank in list(self.ranks.values()):
                    if rank.number in shares:
                        await rank.link.send_quietly(Share(shares[rank.number]))
                    await rank.link.send_quietly(message)
            case Recode():
                await self._ask_counts(message)
            case Blocks(blocks=ranges):
                await self._ask(ranges)
            case Closed():
                for rank in list(self.ranks.values()):
                    await rank.link.send_quietly(message)
            case _:
                raise LocalProtocolError(f"a publisher's ranks are not told {type(message).__name__}")

    # --- another codec -----------------------------------------------------------------------------------------------

    async def _ask_counts(self, message: Recode) -> None:
        self._counting = Counting(self._known_owners().blocks, len(self.ranks))
        late = LocalError(f"not all ranks sent what they count for {RANKS_TIMEOUT_S:.3g} s")
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(RANKS_TIMEOUT_S, lambda: loop.create_task(self._no_tables(late)))
        for rank in list(self.ranks.values()):
            await rank.link.send_quietly(message)

    async def _counted(self, rank: Rank, counting: Counting, message: End | Cancel) -> None:
        """A rank's counts are in; the last one makes the tables."""
        try:
            if isinstance(message, Cancel):
                raise LocalProtocolError(f"rank {rank.number} gave up: {message.reason}")
            counting.end(rank.number)
            if not counting.is_complete:
                return
            tables = await asyncio.to_thread(counting.tables)
        except SyncError as error:
            await self._no_tables(error)
            return
        if self._counting is not counting:  # a rank went away meanwhile
            return
        self._forget_tables()
        self._tables = tables
        for one in list(self.ranks.values()):
            await one.link.send_quietly(Tables(tables.hex()))

    async def _no_tables(self, error: SyncError) -> None:
        """The version goes out as `fast` alone."""
        joined = self.joined
        if self._counting is None or joined is None:
            return
        self._forget_tables()
        await self.session.message(joined, to_message("RECODE", error))
        for rank in list(self.ranks.values()):
            await rank.link.send_quietly(to_message("HISTOGRAMS", error))

    def _forget_tables(self) -> None:
        self._counting = self._tables = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # --- anchor blocks -----------------------------------------------------------------------------------------------

    async def _ask(self, ranges: Ranges) -> None:
        owners = self._known_owners()
        numbers = from_ranges(ranges, len(owners.blocks))
        parts = owners.split(numbers)
        header = header_of(owners, "anchor")
        feeds = {rank: RecordFeed(rank, header, owners) for rank in parts}
        fetch = _Fetch(ranges, parts, feeds, raw_anchor_bytes(owners.blocks, numbers))
        for number, part in parts.items():
            self._asked.setdefault(number, deque()).append(fetch)
            rank = self.ranks.get(number)
            if rank is None:
                raise LibraryLostError(f"rank {number} went away before it could be asked for blocks")
            await rank.link.send(Blocks(part))

    def _anchor_begins(self, rank: Rank, message: Anchor) -> None:
        asked = self._asked.get(rank.number)
        if not asked or message.blocks != asked[0].parts[rank.number]:
            raise LocalProtocolError(f"rank {rank.number} sent other blocks than it was asked for")
        asked[0].versions.add((message.lineage, message.seq))
        rank.stream = "ANCHOR"

    async def _blocks_came(self, rank: Rank, data: memoryview) -> None:
        asked = self._asked.get(rank.number)
        if not asked or asked[0].is_over:  # another rank went away, and whoever wanted them with it
            return
        fetch = asked[0]
        try:
            fetch.feeds[rank.number].feed(data)
            if sum(feed.waiting_bytes for feed in fetch.feeds.values()) > fetch.limit_bytes:
                raise LocalProtocolError("the blocks that came are longer than they are in the layout")
        except SyncError as error:
            await self._fail(fetch, error)

    async def _blocks_ended(self, rank: Rank, message: End | Cancel) -> None:
        asked = self._asked.get(rank.number)
        if not asked:
            return
        fetch = asked.popleft()
        fetch.ended.add(rank.number)
        if fetch.is_over:
            return
        try:
            if isinstance(message, Cancel):
                raise LocalProtocolError(f"rank {rank.number} gave up: {message.reason}")
            fetch.feeds[rank.number].finish()
            if len(fetch.versions) > 1:
                raise ChainError("a version was published while ranks were sending blocks: they are asked for again")
        except SyncError as error:
            await self._fail(fetch, error)
            return
        joined = self.joined
        if joined is None or fetch.ended != set(fetch.parts):
            return
        fetch.is_over = True
        owners, feeds = self._known_owners(), list(fetch.feeds.values())
        records = next_records(feeds, fetch.limit_bytes + 1)
        whole = pack_header(header_of(owners, "anchor")) + records + END_RECORD
        # The session waits for nothing in these three: bytes of a publish cannot come in between.
        lineage, seq = next(iter(fetch.versions))
        await self.session.message(joined, Anchor(lineage, seq, fetch.ranges))
        await self.session.data(joined, memoryview(whole))
        await self.session.message(joined, End())

    async def _no_blocks(self, rank: Rank, error: SyncError) -> None:
        asked = self._asked.get(rank.number)
        if asked:
            await self._fail(asked.popleft(), error)

    async def _fail(self, fetch: _Fetch, error: SyncError) -> None:
        joined = self.joined
        if not fetch.is_over and joined is not None:
            fetch.is_over = True
            with contextlib.suppress(SyncError):
                await self.session.message(joined, to_message("BLOCKS", error))

    def _known_owners(self) -> Owners:
        if self.owners is None:
            raise LibraryLostError("the ranks are not open")
        return self.owners
