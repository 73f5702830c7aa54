"""The conversation with the trainer's library: opens, publishes, drains, and survives the loss of either end.

Lives on the brain's loop. Buckets leave as they are written; the version exists when its manifest is durable, and only
then does the base advance. What fails leaves nothing behind: the next version is cut from the last durable one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.manifest import Manifest
from sync_runtime.errors import LibraryLostError, LocalProtocolError, OldTermError, SyncError
from sync_runtime.local.link import Library
from sync_runtime.local.messages import (
    Cancel,
    Close,
    Closed,
    End,
    Error,
    Message,
    Note,
    Open,
    Opened,
    Publish,
    Published,
    Recode,
)
from sync_runtime.session.machine import PublishEvent, PublishState, publisher_machine
from sync_runtime.session.mirror import sweep
from sync_runtime.session.publish.anchors import AnchorMaker, ordered
from sync_runtime.session.publish.asking import Answer, Asking, blocks_of_mirror
from sync_runtime.session.publish.context import Snapshot, Standing, TrainerContext
from sync_runtime.session.publish.opening import Opening
from sync_runtime.session.publish.recoding import Recoding, can_recode
from sync_runtime.session.publish.telling import tell_head, tell_index
from sync_runtime.session.publish.tight import TightCoder
from sync_runtime.session.publish.writing import Writing
from sync_runtime.tensors.blocks import BlockMap

DRAIN_POLL_S = 0.05
HANDOVER_S = 10.0
"""How long a new library waits for the sidecar to be done with one that died."""


class PublisherSession:
    """One trainer's library at a time."""

    def __init__(self, context: TrainerContext) -> None:
        self._context = context
        self._machine = publisher_machine()
        self._library: Library | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._opening: Opening | None = None
        self._standing: Standing | None = None
        self._writing: Writing | None = None
        self._committing: asyncio.Task[Published] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._tight = TightCoder(context)
        self._recoding: Recoding | None = None
        self._asking = Asking()
        self._anchors = AnchorMaker(context, self._blocks)
        self.appointed_term = 0
        """The plan's term: above the own one it says that another trainer was appointed."""

    @property
    def state(self) -> PublishState:
        """What it is doing."""
        return self._machine.state

    @property
    def version(self) -> VersionRef | None:
        """The newest durable version of this opening."""
        return None if self._standing is None else self._standing.version

    @property
    def step(self) -> int | None:
        """The user's number of it."""
        return None if self._standing is None else self._standing.step

    def snapshot(self) -> Snapshot | None:
        """The last durable version and its weights, which do not change any more; None with coder `library`."""
        standing = self._standing
        if standing is None or standing.mirror is None:
            return None
        return Snapshot(standing.version, standing.position.digest, standing.mirror)

    async def make_anchor(self, key: ObjectKey, ranges: Sequence[Sequence[int]] | None) -> None:
        """Puts all blocks of a version into the spool, or those of these ranges; raises SyncError."""
        standing = self._standing
        if standing is None:
            raise LibraryLostError("no publisher has opened yet: there are no weights to make an anchor of")
        await self._anchors.make(ordered(self._context, standing, key, ranges))

    # --- what the library says ---------------------------------------------------------------------------------------

    async def attached(self, library: Library) -> None:
        """A library is in; one whose process died may still have a version on its way to the disk."""
        if self._library is not None and self._library.is_lost:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: it may swallow a cancellation that comes together with the event.
                async with asyncio.timeout(HANDOVER_S):
                    await self._free.wait()
        if self._library is not None:
            raise LocalProtocolError("another publisher is connected: a trainer has one, of one rank or of several")
        self._library = library
        self._free.clear()

    async def message(self, library: Library, message: Message) -> None:
        """A message of the library."""
        if self._asking.handles(message) or await self._is_of_recoding(library, message):
            return
        match message:
            case Open():
                self._machine.feed(PublishEvent.LIBRARY_OPENS)
                self._opening = Opening(self._context, message, sidecar_codes=library.hello.coder == "sidecar")
            case Publish():
                await self._begin_publish(library, message)
            case End():
                await self._end(library, message)
            case Cancel(reason=reason):
                await self._failed(LocalProtocolError(f"the library gave up: {reason}"))
            case Close(drain_ms=drain_ms):
                # Beside what follows: whoever waits for whole weights needs the library meanwhile.
                self._draining = asyncio.create_task(self._drain_out(library, drain_ms / 1000))
            case Note():
                return
            case _:
                raise LocalProtocolError(f"a publisher does not send {type(message).__name__}")

    async def data(self, library: Library, data: memoryview) -> None:
        """Bytes of the layout, of a state, or of an object."""
        del library
        if self._asking.is_arriving:
            self._asking.take(data)
            return
        try:
            if self._recoding is not None and self._recoding.is_arriving:
                await self._recoding.take(data)
            elif self._opening is not None:
                self._opening.take(data)
            elif self._writing is not None:
                await self._writing.take(data)
            else:
                raise LocalProtocolError("bytes came where none were announced")
        except SyncError as error:
            await self._drop_recoding(str(error))
            await self._failed(error)
            raise

    async def detached(self, library: Library, reason: str) -> None:
        """The library is gone."""
        if library is not self._library:
            return
        self._asking.fail(LibraryLostError(f"the user's process went away: {reason}"))
        self._drop_opening()
        if self._committing is not None:
            # What is being made durable becomes so: the next opening's digest tells which of the two versions it is.
            await asyncio.gather(asyncio.shield(self._committing), return_exceptions=True)
        if self._machine.allows(PublishEvent.LIBRARY_GONE):
            self._machine.feed(PublishEvent.LIBRARY_GONE)
        await self._abort(f"the user's process went away: {reason}")
        await self._drop_recoding(f"the user's process went away: {reason}")
        self._library = None
        self._free.set()

    async def close(self) -> None:
        """Lets a version that is being made durable become so; nothing else waits."""
        if self._committing is not None:
            await asyncio.gather(self._committing, return_exceptions=True)
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.gather(self._draining, return_exceptions=True)
        await self._drop_recoding("the sidecar ends")
        await self._tight.close()

    # --- anchors ------------------------------------------------------------------------------------------------------

    async def _blocks(self, blocks: BlockMap, numbers: Sequence[int]) -> Answer:
        """Blocks of the last durable version: from the mirror, or from the library that keeps the snapshot."""
        standing, library = self._standing, self._library
        if standing is not None and standing.mirror is not None:
            return await asyncio.to_thread(blocks_of_mirror, standing.version, standing.mirror, blocks, numbers)
        if library is None or self.state in (PublishState.WAITING, PublishState.OPENING):
            raise LibraryLostError("the user's process is away, and the weights with it")
        return await self._asking.fetch(library, blocks, numbers)

    # --- opening -----------------------------------------------------------------------------------------------------

    async def _opened(self, library: Library, opening: Opening) -> None:
        """The state is here, or its digest: which version is it?"""
        before = self._standing
        try:
            standing = await opening.finish(before)
        except SyncError:
            self._machine.feed(PublishEvent.FAILED)
            opening.drop()
            raise
        self._machine.feed(PublishEvent.DIGEST_KNOWN)
        self._standing = standing
        if before is not None and before.mirror is not None and before.mirror is not standing.mirror:
            before.mirror.remove()
        if not self._tight.is_busy:  # it has mirrors of its own here
            sweep(self._context.mirrors, keep=None if standing.mirror is None else standing.mirror.path)
        tell_index(self._context, standing)
        position = standing.position
        digest, continued = str(position.digest), position.is_continued
        await library.send(Opened(position.lineage, position.seq, digest, standing.step, continued))

    # --- publishing --------------------------------------------------------------------------------------------------

    async def _begin_publish(self, library: Library, message: Publish) -> None:
        standing = self._standing
        if standing is None:
            raise LocalProtocolError("PUBLISH came before OPEN")
        term = self._context.versions.fence.term
        if self.appointed_term > term:
            raise OldTermError(
                f"term {term} was replaced by term {self.appointed_term}: another trainer leads the group, and nobody "
                "follows this one any more"
            )
        self._machine.feed(PublishEvent.PUBLISH)
        await self._drop_recoding("the library went on without it")
        tight = (standing.mirror is not None or can_recode(library)) and self._tight.would_help()
        try:
            self._writing = await Writing.begin(self._context, standing, message, tight=tight)
        except SyncError:
            self._machine.feed(PublishEvent.FAILED)
            raise

    async def _end(self, library: Library, message: End) -> None:
        """The end of a stream: of OPEN, or of PUBLISH."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await self._opened(library, opening)
            return
        writing, standing = self._writing, self._standing
        if writing is None or standing is None:
            return  # it failed before; the library was told
        try:
            manifest = await writing.manifest(message.totals)
            self._machine.feed(PublishEvent.OBJECT_COMPLETE)
            writing.timings_us |= message.timings_us or {}
            self._committing = asyncio.create_task(self._commit(writing, standing, manifest))
            answer = await asyncio.shield(self._committing)
        except LibraryLostError:
            raise
        except SyncError as error:
            await self._failed(error)
            raise
        if self._recoding is not None:
            await library.send(Recode("tight"))
        await library.send(answer)

    async def _is_of_recoding(self, library: Library, message: Message) -> bool:
        """Whether a message is about a version that is durable already: then it was dealt with; raises SyncError."""
        recoding = self._recoding
        match message:
            case Publish(codec="tight"):
                if recoding is None:
                    raise LocalProtocolError("nobody asked for this version in another codec, or it failed meanwhile")
                recoding.is_arriving = True
            case End() if recoding is not None and recoding.is_arriving:
                await self._recoded(library, recoding, message)
            case Cancel(reason=reason) if recoding is not None and recoding.is_arriving:
                await self._drop_recoding(f"the library gave up: {reason}")
            case Error(request="RECODE"):
                await self._drop_recoding(message.message)
            case _:
                return False
        return True

    async def _recoded(self, library: Library, recoding: Recoding, message: End) -> None:
        try:
            answer = await recoding.finish(message.totals)
        except SyncError as error:
            await self._drop_recoding(str(error))
            raise
        self._recoding = None
        await library.send(answer)

    async def _drop_recoding(self, reason: str) -> None:
        recoding, self._recoding = self._recoding, None
        if recoding is not None:
            await recoding.abort(reason)

    async def _commit(self, writing: Writing, standing: Standing, manifest: Manifest) -> Published:
        context = self._context
        try:
            envelope = await writing.commit(manifest)
        finally:
            self._committing = None
        self._machine.feed(PublishEvent.DURABLE)
        self._writing = None
        self._standing = standing.advanced(manifest.target, writing.incoming or standing.mirror, writing.step)
        context.distributor.completed(writing.key, envelope)
        tell_head(context, self._standing, writing.trace)
        context.distributor.stored(writing.key)
        if writing.tight and writing.incoming is not None:
            self._tight.start(writing.key, standing, writing.incoming, writing.label, writing.trace)
        elif writing.tight:
            self._recoding = await Recoding.begin(context, standing, writing.key, manifest, writing.trace)
        elif standing.mirror is not None:
            standing.mirror.remove()
        context.published(writing.key.target, writing.timings_us)
        target = manifest.target
        return Published(
            manifest.lineage, target.seq, str(target.digest), manifest.num_changed, manifest.size_bytes,
            writing.timings_us,
        )  # fmt: skip

    async def _failed(self, error: SyncError) -> None:
        self._drop_opening()
        if self._machine.allows(PublishEvent.FAILED):
            self._machine.feed(PublishEvent.FAILED)
        await self._abort(str(error))

    async def _abort(self, reason: str) -> None:
        """Nothing of a version that failed stays, here or anywhere."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing.abort(reason)

    def _drop_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.drop()

    async def _drain_out(self, library: Library, timeout_s: float) -> None:
        await library.send_quietly(Closed(await self._drain(library, timeout_s)))

    async def _drain(self, library: Library, timeout_s: float) -> bool:
        """Whether everyone below has the newest version, after so long at most."""
        end = time.monotonic() + timeout_s
        while True:
            is_coding = self._tight.is_busy or self._recoding is not None
            if not is_coding and self._context.distributor.is_level and self._context.is_put():
                return True
            if time.monotonic() >= end or library.is_lost:
                return False
            await asyncio.sleep(DRAIN_POLL_S)
