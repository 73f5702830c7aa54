"""From a complete object to a staged version: decodes against the mirror, hands lists to the library, one at a time.

With coder `library` a delta's bytes go over as they are, and an anchor's blocks unpacked. Decoding runs in threads
while the engine generates; nothing live is touched, except where whole weights come to a member out of service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence

import numpy as np

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.spool import StoredObject
from sync_runtime.codec.frame import END_RECORD, pack_header
from sync_runtime.delta.apply import StagedBlock
from sync_runtime.errors import ChainError, DigestError, FormatError, LibraryLostError, SyncError
from sync_runtime.local import messages as local
from sync_runtime.local.link import Library
from sync_runtime.offline.anchors import anchor_header, raw_anchor_bytes, raw_record, read_anchor
from sync_runtime.offline.deltafile import Delta
from sync_runtime.session.fitting import Fitting
from sync_runtime.session.lists import ListStream
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.versions import Versions
from sync_runtime.session.weights import EngineWeights, is_step
from sync_runtime.tensors.bits import gather
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout

_CHUNK_BYTES = 1 << 20
StagerOf = Callable[[EngineWeights, Versions], "Stager"]
"""Makes what a session stages with."""


class Stager:
    """Stages objects in one library."""

    def __init__(self, weights: EngineWeights, versions: Versions) -> None:
        self._weights, self._versions = weights, versions
        self._fitting = Fitting(weights.spool, versions)
        self._handing_over = asyncio.Lock()
        self.decode_us = 0
        """How long the last object took to decode; 0: the library does it, in its time for staging."""
        self._answer: asyncio.Future[None] | None = None
        self._handing: VersionRef | None = None
        self._taken: Callable[[], None] | None = None

    def check_fit(self, library: Library, layout: Layout) -> None:
        """Raises LayoutError where an engine with this layout cannot use what the trainer publishes."""
        self._fitting.check(layout, same_blocks=library.hello.coder == "library")

    async def stage(self, library: Library, stored: StoredObject) -> bool:
        """Stages an object; True: whole weights were written, and the live version is its target now."""
        if not stored.key.is_anchor:
            if library.hello.coder == "library":
                await self._object(library, stored)
            else:
                await self._list(library, stored)
            return False
        return await self._anchor(library, stored)

    async def mend(
        self, library: Library, stored: StoredObject, numbers: Sequence[int], taken: Callable[[], None]
    ) -> None:
        """Stages right blocks of the live version over wrong ones (coder `library`); raises as `hand_over` does."""
        await self._unpack(library, stored, stored.key.target, numbers, taken)

    def answered(self, version: VersionRef | None, error: SyncError | None) -> None:
        """STAGED for a version, or an error instead of it."""
        if version is not None and version == self._handing and self._taken is not None:
            self._taken()  # before an ACTIVATE for it can be read
            self._taken = None
        if self._answer is not None and not self._answer.done():
            if error is None:
                self._answer.set_result(None)
            else:
                self._answer.set_exception(error)

    async def hand_over(
        self,
        library: Library,
        message: local.Stage,
        chunks: Iterable[memoryview] | AsyncIterable[bytes | memoryview],
        taken: Callable[[], None] | None = None,
    ) -> None:
        """Sends a stream and waits for STAGED, with which `taken` is called; raises what the library answered else."""
        async with self._handing_over:  # a repair may come between two versions
            self._answer, self._taken = asyncio.get_running_loop().create_future(), taken
            self._handing = VersionRef(message.lineage, message.seq)
            try:
                if library.is_lost:  # and `answered` was told so already
                    raise LibraryLostError("the user's process went away before this version could be staged")
                await library.stream(message, chunks, local.End())
                await self._answer
            finally:
                self._answer = self._handing = self._taken = None

    def _staged(self, stored: StoredObject) -> Callable[[], None]:
        return lambda: self._weights.stage(stored.key.target, str(stored.facts.target.digest))

    async def _list(self, library: Library, stored: StoredObject) -> None:
        layout, stages, base = self._weights.layout_of(stored), self._weights.stages, stored.key.base
        if stages is None or base is None:
            return
        delta = Delta(layout, stored.manifest, await asyncio.to_thread(stored.view))
        began = time.monotonic()
        layer = await asyncio.to_thread(stages.stage, delta, stored.key.target)
        self.decode_us = int((time.monotonic() - began) * 1e6)
        stream = ListStream(stages.mirror.blocks, layer.staged)
        message = self._message(stored, base, "list", stream.size_bytes)
        try:
            await self.hand_over(library, message, off_the_loop(stream.chunks()), self._staged(stored))
        except SyncError:
            stages.unstage(self._weights.newest or stages.active)
            raise

    async def _object(self, library: Library, stored: StoredObject) -> None:
        view = await asyncio.to_thread(stored.view)
        message = self._message(stored, stored.key.base, "object", len(view))
        await self.hand_over(library, message, _cut(view), self._staged(stored))

    async def _unpack(
        self,
        library: Library,
        stored: StoredObject,
        base: VersionRef | None,
        numbers: Sequence[int],
        taken: Callable[[], None],
    ) -> None:
        """Hands an anchor's blocks over as they are: the library has no entropy coder for whole weights."""
        blocks = BlockMap(self._weights.layout_of(stored))
        view = await asyncio.to_thread(stored.view)
        message = self._message(stored, base, "object", raw_anchor_bytes(blocks, numbers))
        await self.hand_over(library, message, _raw(view, blocks, stored.key.target_seq, numbers), taken)

    async def _anchor(self, library: Library, stored: StoredObject) -> bool:
        target, weights = stored.key.target, self._weights
        digest = self._versions.digest(target) or str(stored.facts.target.digest)
        if library.hello.coder == "library":
            every = range(BlockMap(weights.layout_of(stored)).num_blocks)
            await self._unpack(library, stored, None, every, lambda: weights.replaced(target, None, digest))
            return True
        mirror = await self._mirror_of(stored, digest)
        if weights.live is not None:
            await self._leap(library, stored, mirror)
            return False
        message = self._message(stored, None, "state", mirror.size_bytes)
        try:
            await self.hand_over(
                library, message, _state_chunks(mirror), lambda: weights.replaced(target, mirror, digest)
            )
        except SyncError:
            mirror.remove()
            raise
        return True

    async def _leap(self, library: Library, stored: StoredObject, mirror: Mirror) -> None:
        """Whole weights for an engine in service: it gets the difference to what it has, as any other version."""
        weights = self._weights
        live, old = weights.live, weights.mirror
        if live is None or old is None:
            return
        found = await asyncio.to_thread(_differences, old, mirror)
        stream = ListStream(mirror.blocks, found)
        message = self._message(stored, live, "list", stream.size_bytes)
        weights.replacement = (stored.key.target, mirror)
        try:
            await self.hand_over(library, message, off_the_loop(stream.chunks()), self._staged(stored))
        except SyncError:
            weights.replacement = None
            mirror.remove()
            raise

    def _message(self, stored: StoredObject, base: VersionRef | None, form: local.Form, size_bytes: int) -> local.Stage:
        key, label = stored.key, stored.facts.label
        return local.Stage(
            lineage=key.lineage,
            seq=key.target_seq,
            digest=str(stored.facts.target.digest),
            step=int(label) if is_step(label) else self._versions.step(key.target),
            base=None if base is None else local.VersionRef(base.lineage, base.seq),
            form=form,
            bytes=size_bytes,
        )

    async def _mirror_of(self, stored: StoredObject, digest: str) -> Mirror:
        layout = self._weights.layout_of(stored)
        mirror = await asyncio.to_thread(Mirror.create, self._weights.folder, layout)
        try:
            view = await asyncio.to_thread(stored.view)
            await asyncio.to_thread(mirror.load_anchor, view, stored.key.target_seq)
            if str(await asyncio.to_thread(mirror.digest)) != digest:
                raise DigestError(f"the anchor of version {stored.key.target_seq} does not have its digest")
        except SyncError:
            mirror.remove()
            raise
        return mirror


async def _raw(view: memoryview, blocks: BlockMap, seq: int, numbers: Sequence[int]) -> AsyncIterator[bytes]:
    """An anchor's blocks unpacked, in other threads and a few ahead; raises SyncError where they are others."""
    yield pack_header(anchor_header(blocks))
    found = read_anchor(view, blocks)
    for number in numbers:
        anchor = await asyncio.to_thread(next, found, None)
        if anchor is None or anchor.block.number != number:
            raise FormatError(f"the anchor does not bring block {number}")
        if anchor.seq != seq:
            raise ChainError(f"block {number} is of version {anchor.seq}, not {seq}")
        yield raw_record(anchor)
    if await asyncio.to_thread(next, found, None) is not None:
        raise FormatError("the anchor brings more blocks than were asked for")
    yield END_RECORD


def _differences(old: Mirror, new: Mirror) -> dict[int, StagedBlock]:
    """Where two states differ: positions and the new bits, by block."""
    found = {}
    for block in new.blocks:
        before, after = gather(block, old.bound()), gather(block, new.bound())
        positions = np.flatnonzero(before != after).astype(np.uint32)
        if positions.size:
            found[block.number] = StagedBlock(positions, after[positions])
    return found


async def off_the_loop(chunks: Iterator[memoryview]) -> AsyncIterator[memoryview]:
    """Each made in a thread: workers ask for tasks and bring results on the loop meanwhile."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _cut(view: memoryview) -> Iterable[memoryview]:
    return (view[at : at + _CHUNK_BYTES] for at in range(0, len(view), _CHUNK_BYTES))


def _state_chunks(mirror: Mirror) -> Iterable[memoryview]:
    for tensor in mirror.bound().values():
        yield from _cut(tensor.matrix.data.cast("B"))
