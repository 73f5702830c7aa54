"""BLOCKS and its answer: anchor blocks of the snapshot that a library with coder `library` holds (PROTOCOL.md, 6).

One request at a time; a publish goes first, since the library answers between two of them. What comes is checked
against what was asked for. Knows nothing of anchors as objects, nor of who wants them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import ChainError, LibraryLostError, LocalProtocolError, SyncError
from sync_runtime.local.faults import to_error
from sync_runtime.local.link import Library
from sync_runtime.local.messages import Anchor, Blocks, Cancel, End, Error, Message
from sync_runtime.local.ranges import Ranges, to_ranges
from sync_runtime.offline.anchors import AnchorBlock, raw_anchor_bytes, read_anchor
from sync_runtime.session.mirror import Mirror
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.blocks import BlockMap


@dataclass(frozen=True)
class Answer:
    """Blocks of one version."""

    version: VersionRef
    blocks: tuple[AnchorBlock, ...]


@dataclass
class _Request:
    ranges: Ranges
    size_bytes: int
    answer: asyncio.Future[Anchor]
    begun: Anchor | None = None
    data: bytearray = field(default_factory=bytearray)


class Asking:
    """Asks one publisher after the other for blocks."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._request: _Request | None = None

    @property
    def is_arriving(self) -> bool:
        """Whether the stream that is coming in is an answer's."""
        return self._request is not None and self._request.begun is not None

    async def fetch(self, library: Library, blocks: BlockMap, numbers: Sequence[int]) -> Answer:
        """Blocks of these ascending numbers; raises SyncError where the library is lost or sends something else."""
        async with self._turn:
            future: asyncio.Future[Anchor] = asyncio.get_running_loop().create_future()
            request = _Request(to_ranges(list(numbers)), raw_anchor_bytes(blocks, numbers), future)
            self._request = request
            try:
                if library.is_lost:  # and `fail` was called already
                    raise LibraryLostError("the user's process went away before it could be asked for blocks")
                await library.send(Blocks(request.ranges))
                begun = await future
            finally:
                self._request = None
        return await asyncio.to_thread(_checked, begun, request.data, blocks, numbers)

    def handles(self, message: Message) -> bool:
        """Whether a message of the library is about blocks: then it was dealt with; raises LocalProtocolError."""
        match message:
            case Anchor():
                self.begin(message)
            case End() if self.is_arriving:
                self.end()
            case Cancel(reason=reason) if self.is_arriving:
                self.fail(LocalProtocolError(f"the library gave up: {reason}"))
            case Error(request="BLOCKS"):
                self.fail(to_error(message))
            case _:
                return False
        return True

    def begin(self, message: Anchor) -> None:
        """ANCHOR came; raises LocalProtocolError where it answers nothing, or something else."""
        request = self._request
        if request is None or request.begun is not None:
            raise LocalProtocolError("ANCHOR came where no blocks were asked for")
        if message.blocks != request.ranges:
            raise self._failed(LocalProtocolError("the library sent other blocks than it was asked for"))
        request.begun = message

    def take(self, data: memoryview) -> None:
        """The next bytes."""
        request = self._request
        if request is None:
            return
        if len(request.data) + len(data) > request.size_bytes:
            raise self._failed(LocalProtocolError("the blocks that came are longer than they are in the layout"))
        request.data += data

    def end(self) -> None:
        """All of it has come."""
        request = self._request
        if request is not None and request.begun is not None and not request.answer.done():
            request.answer.set_result(request.begun)

    def fail(self, error: SyncError) -> None:
        """The library could not, gave up, or is gone."""
        request = self._request
        if request is not None and not request.answer.done():
            request.begun = None
            request.answer.set_exception(error)

    def _failed(self, error: SyncError) -> SyncError:
        self.fail(error)
        return error


def _checked(begun: Anchor, data: bytearray, blocks: BlockMap, numbers: Sequence[int]) -> Answer:
    found = tuple(read_anchor(memoryview(data), blocks, threads=1))
    if [one.block.number for one in found] != list(numbers):
        raise LocalProtocolError("the library sent other blocks than it announced")
    if any(one.seq != begun.seq for one in found):
        raise ChainError(f"the library sent blocks of other versions than {begun.seq}")
    return Answer(VersionRef(begun.lineage, begun.seq), found)


def blocks_of_mirror(version: VersionRef, mirror: Mirror, blocks: BlockMap, numbers: Sequence[int]) -> Answer:
    """The same from a mirror of that version, which does not change any more."""
    state = mirror.bound()
    found = (AnchorBlock(block, version.seq, gather(block, state)) for block in map(blocks.block, numbers))
    return Answer(version, tuple(found))
