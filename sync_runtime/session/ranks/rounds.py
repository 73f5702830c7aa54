"""One PUBLISH of all ranks: waits for all to begin, joins their objects as they come, ends for all or for none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from sync_runtime.codec.frame import END_RECORD, pack_header
from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.local.messages import Cancel, End, Message, Publish, Totals
from sync_runtime.session.ranks.joining import RecordFeed, all_taken, header_of, next_records
from sync_runtime.session.ranks.parts import Owners, agreed, joined_timings, joined_totals

RANKS_TIMEOUT_S = 120.0
"""How long ranks wait for one that has not begun, or sends nothing."""
FEED_BYTES = 4 << 20
"""Whole records of one rank that may wait for those of others; one at least."""
_PIECE_BYTES = 1 << 20
LOOK_S = 0.1

Say = Callable[[Message], Awaitable[None]]
Put = Callable[[memoryview], Awaitable[None]]


class Round:
    """One version of several ranks. `run` ends with the answer out, or raises what all ranks are to be told."""

    def __init__(self, owners: Owners, size: int, say: Say, put: Put, tables: bytes = b"") -> None:
        self._owners, self._size, self._say, self._put, self._tables = owners, size, say, put, tables
        self._requests: dict[int, Publish] = {}
        self._feeds: dict[int, RecordFeed] = {}
        self._ends: dict[int, End] = {}
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._error: SyncError | None = None

    @property
    def begun(self) -> frozenset[int]:
        """Ranks that asked for this version."""
        return frozenset(self._requests)

    @property
    def shares(self) -> dict[int, str]:
        """What each rank adds to the version's digest."""
        return {rank: end.totals.digest for rank, end in self._ends.items() if end.totals is not None}

    def begin(self, rank: int, message: Publish) -> None:
        """PUBLISH of a rank; raises LocalProtocolError for a second one before the first was answered."""
        if rank in self._requests:
            raise LocalProtocolError(f"rank {rank} publishes again before the version under way is durable")
        self._requests[rank] = message
        header = header_of(self._owners, message.codec, self._tables)
        self._feeds[rank] = RecordFeed(rank, header, self._owners, self._tables)
        self._news.set()

    async def take(self, rank: int, data: memoryview, is_lost: Callable[[], bool]) -> None:
        """Bytes of a rank's object; returns when there is room for more."""
        feed = self._feeds[rank]
        feed.feed(data)
        self._news.set()
        while feed.waiting_bytes > FEED_BYTES and self._error is None and not is_lost():
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):  # the end of a process shows in its connection alone
                    await self._room.wait()

    def end(self, rank: int, message: End) -> None:
        """All of a rank's object has come."""
        if message.totals is None:
            raise LocalProtocolError(f"END of rank {rank} must carry its totals")
        self._feeds[rank].finish()
        self._ends[rank] = message
        self._news.set()

    def fail(self, error: SyncError) -> None:
        """It cannot become a version any more; `run` raises this, unless it is being made durable already."""
        self._error = self._error or error
        self._news.set()
        self._room.set()

    async def run(self) -> None:
        """From the first PUBLISH to the answer."""
        await self._until(lambda: len(self._requests) == self._size)
        request = agreed(self._requests)
        await self._say(request)
        try:
            front = pack_header(header_of(self._owners, request.codec, self._tables)) + self._tables
            await self._put(memoryview(front))
            feeds = list(self._feeds.values())
            while not all_taken(feeds):
                piece = next_records(feeds, _PIECE_BYTES)
                self._room.set()
                if piece:
                    self._check()
                    await self._put(memoryview(piece))
                else:
                    await self._until(lambda: all(feed.next_block is not None for feed in feeds))
            await self._put(memoryview(END_RECORD))
            await self._until(lambda: len(self._ends) == self._size)
            await self._say(End(self._totals(), joined_timings(one.timings_us or {} for one in self._ends.values())))
        except SyncError as error:
            await self._say(Cancel(str(error)[:1000]))  # where the session failed by itself it is over this already
            raise

    def _totals(self) -> Totals:
        return joined_totals([end.totals for end in self._ends.values() if end.totals is not None])

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _until(self, is_so: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(RANKS_TIMEOUT_S):
                while not is_so():
                    self._check()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            missing = sorted(set(range(self._size)) - set(self._ends))
            raise LocalError(
                f"ranks {missing} did not publish, or sent nothing, for {RANKS_TIMEOUT_S:.3g} s: every rank must call "
                "publish; nothing of this version stays"
            ) from error
        self._check()
