"""Lets ranks in, one connection each, opens them together, and parts with all of them when one is lost.

A single rank goes straight to the session. Lives on the brain's loop. What ranks say is for the subclasses; `turn` is
held where the ranks as a whole change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from sync_runtime.errors import LibraryLostError, LocalProtocolError, SyncError, WrongBaseError
from sync_runtime.local.faults import to_message
from sync_runtime.local.link import LINK_REQUEST, Library, LibraryLink
from sync_runtime.local.messages import Closed, End, Message, Open, Opened, Part, Share
from sync_runtime.session.ranks.link import RanksLink
from sync_runtime.session.ranks.parts import Owners, summed
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import MAX_DOCUMENT_BYTES, parse_layout

MAX_RANKS = 128
HANDOVER_S = 1.0
"""A rank that was restarted may dial before the end of the old one was seen."""


@dataclass
class Rank:
    """One connection, and how far it is with opening."""

    link: LibraryLink
    part: Part | None = None
    request: Open | None = None
    document: bytearray = field(default_factory=bytearray)
    is_ready: bool = False
    """Whether its OPEN is complete and waits for those of the others."""
    stream: str | None = None
    """What it is sending, by the message that began it."""
    is_closing: bool = False

    @property
    def number(self) -> int:
        """Its own."""
        return self.link.hello.rank

    def take_document(self, data: memoryview) -> None:
        """Bytes of the layout's document."""
        self.document += data
        if self.request is None or len(self.document) > min(self.request.layout_bytes, MAX_DOCUMENT_BYTES):
            raise LocalProtocolError(f"rank {self.number} sent more than a layout; ranks open without a state")


class Session(Protocol):
    """What stands behind the ranks, and knows one library."""

    async def attached(self, library: Library) -> None:
        """It is about to open."""

    async def message(self, library: Library, message: Message) -> None:
        """It says something."""

    async def data(self, library: Library, data: memoryview) -> None:
        """Bytes of its stream."""

    async def detached(self, library: Library, reason: str) -> None:
        """It is gone."""


class RanksDoor(ABC):
    """Several ranks in front of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ranks: dict[int, Rank] = {}
        self.joined: RanksLink | None = None
        """All of them, since they opened."""
        self.owners: Owners | None = None
        self._joining: RanksLink | None = None
        """All of them, while they open."""
        self.turn = asyncio.Lock()
        self._left = asyncio.Event()
        self._offers: dict[str, dict[int, str]] = {}
        """By digest of all: what each rank adds to it."""

    @abstractmethod
    async def heard(self, rank: Rank, message: Message) -> None:
        """A message of one rank."""

    @abstractmethod
    async def came(self, rank: Rank, data: memoryview) -> None:
        """Bytes of one rank's stream."""

    @abstractmethod
    def make_link(self, rank: Rank) -> RanksLink:
        """The ranks as one library."""

    # --- coming and going --------------------------------------------------------------------------------------------

    async def attached(self, library: LibraryLink) -> None:
        """A library is in."""
        if library.hello.world_size > 1:
            await self.enter(library)
        else:
            await self.session.attached(library)

    async def message(self, library: LibraryLink, message: Message) -> None:
        """A message of a library."""
        rank = self.rank_of(library)
        if rank is not None:
            await self.heard(rank, message)
        elif library.hello.world_size == 1:
            await self.session.message(library, message)

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Bytes of a library's stream."""
        rank = self.rank_of(library)
        if rank is not None:
            await self.came(rank, data)
        elif library.hello.world_size == 1:
            await self.session.data(library, data)

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """A library is gone."""
        if library.hello.world_size > 1:
            await self.leave(library, reason)
        else:
            await self.session.detached(library, reason)

    def hang_up(self) -> None:
        """Ends the connections of all ranks."""
        for rank in self.ranks.values():
            rank.link.hang_up()

    async def enter(self, library: LibraryLink) -> None:
        """A rank is in; raises LocalProtocolError where it does not fit to the others."""
        hello = library.hello
        if hello.coder != "library":
            raise LocalProtocolError("several ranks need the coder `library`: with coder `sidecar` one process codes")
        if hello.world_size > MAX_RANKS:
            raise LocalProtocolError(f"there are {hello.world_size} ranks; a sidecar serves at most {MAX_RANKS}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDOVER_S):
                while hello.rank in self.ranks:
                    self._left.clear()
                    await self._left.wait()
        if hello.rank in self.ranks:
            other = self.ranks[hello.rank].link
            raise LocalProtocolError(
                f"rank {hello.rank} is connected already (process {other.pid}): every rank has a number of its own"
            )
        for other_rank in self.ranks.values():
            theirs = other_rank.link.hello.world_size
            if theirs != hello.world_size:
                raise LocalProtocolError(
                    f"rank {hello.rank} says that there are {hello.world_size} ranks, rank {other_rank.number} says "
                    f"{theirs}"
                )
        self.ranks[hello.rank] = Rank(library)

    def rank_of(self, library: LibraryLink) -> Rank | None:
        """The rank of a connection; None: it was not let in."""
        rank = self.ranks.get(library.hello.rank)
        return rank if rank is not None and rank.link is library else None

    async def leave(self, library: LibraryLink, reason: str) -> None:
        """A rank is gone: the others hear it, and open again together."""
        rank = self.rank_of(library)
        if rank is None:
            return
        del self.ranks[rank.number]
        self._left.set()
        size = library.hello.world_size
        error = LibraryLostError(f"rank {rank.number} of {size} went away: {reason}")
        await self.lost(rank, error)
        async with self.turn:
            joined, self.joined = self.joined, None
            if joined is None:
                return
            joined.lose()
            await self.session.detached(joined, str(error))
            for other in list(self.ranks.values()):  # another may go away meanwhile
                other.is_ready, other.stream = False, None
                if other.is_closing:  # it waits for all to close, and one never will
                    await other.link.send_quietly(Closed(drained=False))
                else:
                    await other.link.send_quietly(to_message(LINK_REQUEST, error))
                    other.link.hang_up()

    @abstractmethod
    async def lost(self, rank: Rank, error: LibraryLostError) -> None:
        """Ends what is under way with a rank that is gone."""

    # --- opening -----------------------------------------------------------------------------------------------------

    def begin_open(self, rank: Rank, message: Open) -> None:
        """OPEN of one rank."""
        if self.joined is not None:
            raise LocalProtocolError(f"rank {rank.number} opens again while all ranks are open: hang up first")
        if rank.part is None:
            raise LocalProtocolError(f"rank {rank.number} must say which blocks it has (PART) before OPEN")
        if message.state or not message.digests:
            raise LocalProtocolError("ranks open with a digest of their part and without a state")
        rank.request, rank.document, rank.is_ready = message, bytearray(), False

    async def end_open(self, rank: Rank) -> None:
        """All of one rank's OPEN has come; the last one opens for all."""
        async with self.turn:
            rank.is_ready = True
            size = rank.link.hello.world_size
            if len(self.ranks) < size or not all(one.is_ready for one in self.ranks.values()):
                return
            resuming = [one for one in self.ranks.values() if one.request is not None and one.request.resume]
            try:
                await self._open(rank, is_resumed=bool(resuming))
            except WrongBaseError as error:
                # Those that bring no weights open with them when theirs stand still; the others wait for that.
                await self._refuse(resuming or list(self.ranks.values()), error)
            except SyncError as error:
                await self._refuse(list(self.ranks.values()), error)

    async def _refuse(self, ranks: list[Rank], error: SyncError) -> None:
        for one in ranks:
            one.is_ready = False
            await one.link.send_quietly(to_message("OPEN", error))

    async def _open(self, last: Rank, *, is_resumed: bool) -> None:
        ordered = [self.ranks[number] for number in sorted(self.ranks)]
        document = self._agreed_document(ordered)
        blocks = await asyncio.to_thread(lambda: BlockMap(parse_layout(document)))
        self.owners = Owners(blocks, {one.number: one.part.blocks for one in ordered if one.part is not None})
        digests = self.offered(ordered)
        joined = self._joining = self.make_link(last)
        await self.session.attached(joined)
        opened = False
        try:
            offers = tuple(digests) if is_resumed else digests[:1]
            await self.session.message(joined, Open(len(document), False, offers, is_resumed))
            await self.session.data(joined, memoryview(document))
            await self.session.message(joined, End())
            opened = True
        finally:
            if not opened:
                self.joined = None
                joined.lose()
                await self.session.detached(joined, "the ranks could not open")

    def offered(self, ordered: list[Rank]) -> tuple[str, ...]:
        """Digests of what all ranks together can go on from, the best first.

        A rank that saw a version durable offers that; one that did not offers it first, and what it had before last.
        """
        requests = {one.number: one.request.digests for one in ordered if one.request is not None}
        self._offers = {}
        for place in (0, -1):
            shares = {number: digests[place] for number, digests in requests.items()}
            self._offers[summed(shares.values())] = shares
        return tuple(self._offers)

    def _agreed_document(self, ordered: list[Rank]) -> bytes:
        found = {hashlib.sha256(one.document).digest(): one for one in reversed(ordered)}
        if len(found) > 1:
            numbers = sorted(one.number for one in found.values())
            raise LocalProtocolError(
                f"ranks {numbers[0]} and {numbers[1]} disagree about the layout: all must name the same tensors, with "
                "the same dtypes, whole shapes and steps"
            )
        return bytes(ordered[0].document)

    async def say_opened(self, message: Opened) -> None:
        """OPENED to all, each with what it adds to the version's digest."""
        self.joined = self._joining  # a rank may go on as soon as it hears this, before the last one has
        shares = self._offers.get(message.digest or "", {})
        for rank in list(self.ranks.values()):  # one may go away meanwhile
            rank.is_ready = False
            rank.document = bytearray()
            if rank.number in shares:
                await rank.link.send_quietly(Share(shares[rank.number]))
            await rank.link.send_quietly(message)
