"""A member's session towards its engine: opens with a full digest, stages what arrived, gives leave, keeps the mirror.

Lives on the brain's loop; decoding runs in threads while the engine generates. With coder `sidecar` deltas are decoded
against the mirror and lists of absolute bits go to the library; with coder `library` the object's bytes do, and the
library decodes. Knows nothing of links: objects come from the spool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.errors import (
    DigestError,
    FormatError,
    LayoutError,
    LibraryLostError,
    LocalProtocolError,
    OldTermError,
    SequenceError,
    SyncError,
    WrongBaseError,
)
from sync_runtime.local import messages as local
from sync_runtime.local.link import LibraryLink
from sync_runtime.offline.deltafile import Delta
from sync_runtime.session.lists import ListStream, whole_blocks
from sync_runtime.session.machine import ServiceEvent, ServiceState, service_machine
from sync_runtime.session.mirror import Mirror, Stages
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.digest import parse_digest
from sync_runtime.tensors.layout import Layout, parse_layout

_log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class EngineContext:
    """What the session works with."""

    spool: Spool
    versions: Versions
    follow: Callable[[], None]
    """What is held changed otherwise than by a transfer."""
    changed: Callable[[], None]
    """Something worth a report."""
    timed: Callable[[str, VersionRef, int], None]
    """A stage of a version took so many microseconds."""


class EngineSession:
    """One engine's library at a time."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._machine = service_machine()
        self._library: LibraryLink | None = None
        self._document = bytearray()
        self._document_bytes = 0
        self._layout: Layout | None = None
        self._intake: Mirror | None = None
        """A state that is arriving: of OPEN, or of a scrub."""
        self._mirror: Mirror | None = None
        self._stages: Stages | None = None
        self._live: VersionRef | None = None
        self._digest: str | None = None
        self._staged: list[VersionRef] = []
        """What the library has staged, oldest first (coder `library` keeps no stages here)."""
        self._opening = False
        self._scrubbing: local.Scrub | None = None
        self._staging: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[None] | None = None
        self._handing: VersionRef | None = None
        """The version whose stream the library is taking."""
        self.trusted: VersionRef | None = None
        """The last version whose scrub passed."""
        self.scrub_passed: bool | None = None
        self.trouble: tuple[str, str] | None = None
        self.tokens_per_second: int | None = None
        self.pause_us: int | None = None

    # --- what others want to know ------------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """What it is doing."""
        return self._machine.state

    @property
    def live(self) -> VersionRef | None:
        """The version that the engine runs."""
        return self._live

    @property
    def staged(self) -> VersionRef | None:
        """The newest version that waits for activation."""
        return self._staged[-1] if self._staged else None

    def holds(self) -> VersionRef | None:
        """What it will hold once all that is staged is activated."""
        return self.staged or self._live

    def digest(self) -> str | None:
        """The full digest of weights that are no known version."""
        return self._digest if self._live is None else None

    def out_of_service(self) -> bool:
        """Whether it may be given an anchor."""
        return self._machine.state is ServiceState.JOINING

    def learned(self) -> None:
        """Versions became known: the digest may be one of them, and the library is told of the newest."""
        if self._machine.state is ServiceState.JOINING and self._live is None and self._digest is not None:
            found = self._context.versions.find(self._digest)
            if found is not None and self._staging is None and self._library is not None:
                self._become(found)
                self._spawn(self._library.send(local.Known(found.lineage, found.seq, self._digest, None)))
        self._tell_head()
        self._advance()

    def arrived(self, stored: StoredObject) -> None:
        """An object is in the spool."""
        self._advance()

    # --- what the library says ---------------------------------------------------------------------------------------

    async def attached(self, library: LibraryLink) -> None:
        """A library is in."""
        if self._library is not None:
            raise LocalProtocolError("another subscriber is connected: a member has one engine")
        self._library = library

    async def message(self, library: LibraryLink, message: local.Message) -> None:
        """A message of the library."""
        match message:
            case local.Open(layout_bytes=layout_bytes):
                self._opening, self._document, self._layout = True, bytearray(), None
                self._document_bytes = layout_bytes
                self._open_digests = message.digests
            case local.Scrub():
                self._begin_scrub(message)
                if not message.state:
                    await self._scrubbed(library)
            case local.End():
                await self._end(library)
            case local.Cancel():
                self._drop_intake()
            case local.Staged(lineage=lineage, seq=seq):
                self._context.timed("stage", VersionRef(lineage, seq), message.timings_us.get("stage", 0))
                if self._handing == VersionRef(lineage, seq):
                    self._staged.append(self._handing)  # before an ACTIVATE for it can be read
                self._answered(None)
            case local.Error(request=request):
                self._answered(WrongBaseError(f"{request}: {message.message}"))
            case local.Activate(lineage=lineage, seq=seq):
                await self._activate(library, VersionRef(lineage, seq))
            case local.Activated(lineage=lineage, seq=seq):
                await self._activated(VersionRef(lineage, seq), message.pause_us)
            case local.Note(tokens_per_second=tokens):
                self.tokens_per_second = tokens
            case _:
                raise LocalProtocolError(f"a subscriber does not send {type(message).__name__}")

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Bytes of the layout or of a state."""
        rest = self._take_document(library, data) if self._opening else data
        if len(rest):
            if self._intake is None:
                raise LocalProtocolError("bytes of a state came where none was announced")
            self._intake.append(rest)

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """The library is gone, and what was staged in it."""
        if library is not self._library:
            return
        self._library = None
        if self._machine.allows(ServiceEvent.LIBRARY_GONE):
            self._machine.feed(ServiceEvent.LIBRARY_GONE)
        self._answered(LibraryLostError(reason))
        if self._staging is not None:
            await asyncio.gather(self._staging, return_exceptions=True)
        self._drop_intake()
        for mirror in {self._mirror, self._intake} - {None}:
            if mirror is not None:
                mirror.remove()
        self._mirror = self._stages = self._live = self._digest = None
        self._staged, self._opening = [], False
        self._context.changed()

    # --- opening -----------------------------------------------------------------------------------------------------

    def _take_document(self, library: LibraryLink, data: memoryview) -> memoryview:
        missing = self._document_bytes - len(self._document)
        self._document += data[:missing]
        if self._layout is None and len(self._document) == self._document_bytes:
            self._layout = parse_layout(bytes(self._document))
            if library.hello.coder == "sidecar":
                self._intake = Mirror.create(self._context.spool.path / "mirror", self._layout)
        return data[missing:] if missing < len(data) else data[len(data) :]

    async def _end(self, library: LibraryLink) -> None:
        if self._scrubbing is not None:
            await self._scrubbed(library)
        elif self._opening:
            await self._opened(library)

    async def _opened(self, library: LibraryLink) -> None:
        if self._layout is None:
            raise LocalProtocolError("OPEN ended before the layout was complete")
        if self._intake is not None:
            self._digest = str(await asyncio.to_thread(self._intake.digest))
            self._mirror, self._intake = self._intake, None
        elif len(self._open_digests) == 1:
            self._digest = str(parse_digest(self._open_digests[0]))
        else:
            raise LocalProtocolError("OPEN without a state must carry the digest of the live weights")
        self._opening = False
        found = self._context.versions.find(self._digest)
        opened = local.Opened(
            None if found is None else found.lineage, None if found is None else found.seq, self._digest, None,
            found is not None,
        )  # fmt: skip
        await library.send(opened)
        if found is not None:
            self._become(found)
        else:
            self._machine.feed(ServiceEvent.UNKNOWN_DIGEST)
            self._context.follow()
        self._tell_head()
        self._context.changed()
        self._advance()

    def _become(self, version: VersionRef) -> None:
        """A full digest proved which version the live weights are."""
        self._machine.feed(ServiceEvent.KNOWN_DIGEST)
        self._live = version
        self.scrub_passed, self.trusted = True, version
        if self._mirror is not None and self._digest is not None:
            self._stages = Stages(self._mirror, version, parse_digest(self._digest))
        self._context.follow()
        self._context.changed()

    def _tell_head(self) -> None:
        head, library = self._context.versions.head, self._library
        digest = self._context.versions.digest(head)
        if library is not None and head is not None and digest is not None and not self._opening:
            self._spawn(library.send(local.Head(head.lineage, head.seq, digest, None)))

    # --- staging -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Stages the next object that leads on from here, one at a time."""
        if self._library is None or self._opening or self._staging is not None:
            return
        found = self._next_object()
        if found is not None:
            self._staging = asyncio.create_task(self._stage(self._library, found))
            self._staging.add_done_callback(self._staged_one)

    def _staged_one(self, task: asyncio.Task[None]) -> None:
        self._staging = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._advance()
        elif not isinstance(error, SyncError):
            raise error

    def _next_object(self) -> StoredObject | None:
        head, holds = self._context.versions.head, self.holds()
        if head is None:
            return None
        objects = [one for one in self._context.spool.objects() if one.key.lineage == head.lineage]
        if holds is None:
            if self._machine.state is not ServiceState.JOINING:
                return None
            anchors = [one for one in objects if one.key.is_anchor and one.key.part is None]
            return max(anchors, key=lambda one: one.key.target_seq, default=None)
        onward = [one for one in objects if one.key.base == holds and one.key.target != holds]
        return max(onward, key=lambda one: one.key.target_seq, default=None)

    async def _stage(self, library: LibraryLink, stored: StoredObject) -> None:
        try:
            if stored.key.is_anchor:
                await self._stage_anchor(library, stored)
            elif library.hello.coder == "library":
                await self._stage_object(library, stored)
            else:
                await self._stage_list(library, stored)
        except LibraryLostError:
            return
        except SequenceError as error:
            self._note_trouble("WrongBase", error)
            self._context.spool.remove(stored.key)
            self._context.follow()
            raise
        except (DigestError, FormatError, LayoutError) as error:
            self._note_trouble(type(error).__name__.removesuffix("Error"), error)
            self._context.spool.remove(stored.key)
            raise
        self.trouble = None
        self._context.changed()

    async def _stage_list(self, library: LibraryLink, stored: StoredObject) -> None:
        """Decodes against the mirror under what is staged, and hands the list to the library."""
        stages = self._stages
        if stages is None:
            return
        layout = self._adopted(stored)
        manifest = stored.manifest
        delta = Delta(layout, manifest, await asyncio.to_thread(stored.view))
        layer = await asyncio.to_thread(stages.stage, delta, stored.key.target)
        stream = ListStream(stages.mirror.blocks, layer.staged)
        base = stored.key.base
        if base is None:
            return
        message = self._stage_message(stored, base, "list", stream.size_bytes)
        try:
            await self._hand_over(library, message, stream.chunks(), stored.key.target)
        except SyncError:
            stages.unstage(stages.active if not self._staged else self._staged[-1])
            raise

    async def _stage_object(self, library: LibraryLink, stored: StoredObject) -> None:
        base = stored.key.base
        if base is None:
            return
        view = await asyncio.to_thread(stored.view)
        message = self._stage_message(stored, base, "object", len(view))
        await self._hand_over(library, message, _cut(view), stored.key.target)

    async def _stage_anchor(self, library: LibraryLink, stored: StoredObject) -> None:
        """Whole weights for a member out of service; nothing is a version before the full digest is."""
        target = stored.key.target
        digest = self._context.versions.digest(target)
        if digest is None:
            return
        if library.hello.coder == "library":
            view = await asyncio.to_thread(stored.view)
            await self._hand_over(library, self._stage_message(stored, None, "object", len(view)), _cut(view))
        else:
            mirror = await self._mirror_of(stored, digest)
            message = self._stage_message(stored, None, "state", mirror.size_bytes)
            await self._hand_over(library, message, _state_chunks(mirror))
            old, self._mirror = self._mirror, mirror
            if old is not None:
                old.remove()
            self._stages = Stages(mirror, target, parse_digest(digest))
        self._machine.feed(ServiceEvent.LEVEL)
        self._live, self._digest = target, digest
        self.scrub_passed, self.trusted = True, target
        self._context.follow()

    async def _mirror_of(self, stored: StoredObject, digest: str) -> Mirror:
        mirror = await asyncio.to_thread(Mirror.create, self._context.spool.path / "mirror", self._adopted(stored))
        try:
            view = await asyncio.to_thread(stored.view)
            await asyncio.to_thread(mirror.load_anchor, view, stored.key.target_seq)
            if str(await asyncio.to_thread(mirror.digest)) != digest:
                raise DigestError(f"the anchor of version {stored.key.target_seq} does not have its digest")
        except SyncError:
            mirror.remove()
            raise
        return mirror

    def _adopted(self, stored: StoredObject) -> Layout:
        """The trainer's layout; it may cut tensors otherwise than ours, but they must be the same tensors."""
        document = self._context.spool.layout(stored.facts.layout_hash)
        own = self._layout
        if document is None or own is None:
            raise LayoutError(f"the layout of {stored.key} is not known here")
        layout = parse_layout(document)
        if layout.hash == own.hash:
            return own
        if [(one.name, one.dtype, one.shape) for one in layout.tensors] != [
            (one.name, one.dtype, one.shape) for one in own.tensors
        ]:
            raise LayoutError("the trainer's tensors are not this engine's: names, dtypes or shapes differ")
        if self._stages is not None and not self._stages.layers and self._mirror is not None:
            self._mirror = Mirror.reopen(self._mirror.path, layout)
            self._stages = Stages(self._mirror, self._stages.active, self._stages.active_digest)
        self._layout = layout
        return layout

    def _stage_message(
        self, stored: StoredObject, base: VersionRef | None, form: local.Form, size_bytes: int
    ) -> local.Stage:
        ref = None if base is None else local.VersionRef(base.lineage, base.seq)
        key = stored.key
        return local.Stage(
            key.lineage, key.target_seq, str(stored.facts.target.digest), _step_of(stored), ref, form, size_bytes
        )

    async def _hand_over(
        self,
        library: LibraryLink,
        message: local.Stage,
        chunks: Iterable[memoryview],
        version: VersionRef | None = None,
    ) -> None:
        """Sends a stream and waits for STAGED, which makes the version one that can be activated.

        Raises what the library answered otherwise.
        """
        self._answer, self._handing = asyncio.get_running_loop().create_future(), version
        try:
            await library.stream(message, chunks, local.End())
            await self._answer
        finally:
            self._answer = self._handing = None

    def _answered(self, error: SyncError | None) -> None:
        if self._answer is not None and not self._answer.done():
            if error is None:
                self._answer.set_result(None)
            else:
                self._answer.set_exception(error)

    # --- activating --------------------------------------------------------------------------------------------------

    async def _activate(self, library: LibraryLink, version: VersionRef) -> None:
        """Leave at a safe point: staged, of the lineage that is followed, under the current term."""
        head = self._context.versions.head
        if version not in self._staged:
            if version == self._live:  # a repair of what is live
                await library.send(local.Go(version.lineage, version.seq, self._context.versions.fence.term))
                return
            raise WrongBaseError(f"version {version.seq} is not staged")
        if head is not None and version.lineage != head.lineage:
            await self._unstage(library)
            raise OldTermError("the trainer went another way meanwhile: this version is of a lineage that ended")
        self._machine.feed(ServiceEvent.ACTIVATE)
        await library.send(local.Go(version.lineage, version.seq, self._context.versions.fence.term))

    async def _activated(self, version: VersionRef, pause_us: int) -> None:
        if version == self._live and version not in self._staged:
            return
        if version not in self._staged:
            raise LocalProtocolError(f"version {version.seq} was activated without leave")
        self._machine.feed(ServiceEvent.APPLIED)
        self._staged = self._staged[self._staged.index(version) + 1 :]
        self._live, self.pause_us, self.scrub_passed = version, pause_us, None
        self._digest = self._context.versions.digest(version)
        self._context.timed("activate", version, pause_us)
        if self._stages is not None:
            await asyncio.to_thread(self._stages.commit, version)
        self._context.changed()
        self._advance()

    async def _unstage(self, library: LibraryLink) -> None:
        self._staged = []
        if self._stages is not None:
            self._stages.unstage(self._stages.active)
        await library.send(local.Unstage(None))
        self._context.follow()

    # --- scrubbing ---------------------------------------------------------------------------------------------------

    def _begin_scrub(self, message: local.Scrub) -> None:
        if VersionRef(message.lineage, message.seq) != self._live:
            raise WrongBaseError("another version is live than the one to be scrubbed")
        if self._machine.state is ServiceState.POISONED:
            self._machine.feed(ServiceEvent.REPAIRED)
        else:
            self._machine.feed(ServiceEvent.SCRUB)
        self._scrubbing = message
        if message.state and self._mirror is not None:
            self._intake = Mirror.create(self._context.spool.path / "mirror", self._mirror.layout)

    async def _scrubbed(self, library: LibraryLink) -> None:
        """Compares the live weights with what they should be, and sends right bits for what differs."""
        message, self._scrubbing = self._scrubbing, None
        intake, self._intake = self._intake, None
        if message is None:
            return
        if intake is not None and self._mirror is not None:
            blocks = await asyncio.to_thread(self._mirror.differing_blocks, intake)
            intake.remove()
        else:
            digest = self._context.versions.digest(self._live)
            blocks = [] if message.digest == digest else [-1]
        passed = not blocks
        if self._machine.state is ServiceState.SCRUBBING:
            self._machine.feed(ServiceEvent.SCRUB_PASSED if passed else ServiceEvent.SCRUB_FAILED)
        self.scrub_passed = passed
        if passed:
            self.trusted = self._live
        else:
            self.trouble = ("ScrubFailed", f"{len(blocks)} blocks of the live weights are not the version's")
        numbers = [number for number in blocks if number >= 0]
        await library.send(local.Scrubbed(passed, _ranges(numbers)))
        if numbers and self._stages is not None and self._live is not None:
            self._spawn(self._repair(library, numbers))
        self._context.changed()

    async def _repair(self, library: LibraryLink, numbers: list[int]) -> None:
        """The mirror's bits for the blocks that differ, as a list from the live version to itself."""
        stages, live = self._stages, self._live
        if stages is None or live is None:
            return
        stream = ListStream(stages.mirror.blocks, whole_blocks(stages.mirror.blocks, stages.mirror.bound(), numbers))
        message = local.Stage(
            live.lineage, live.seq, str(stages.active_digest), None, local.VersionRef(live.lineage, live.seq), "list",
            stream.size_bytes,
        )  # fmt: skip
        await self._hand_over(library, message, stream.chunks())

    def _drop_intake(self) -> None:
        if self._intake is not None:
            self._intake.remove()
        self._intake, self._scrubbing = None, None

    def _note_trouble(self, reason: str, error: SyncError) -> None:
        self.trouble = (reason, str(error))
        _log.warning("%s: %s", reason, error)
        self._context.changed()

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        task.add_done_callback(_seen)


def _seen(task: asyncio.Future[object]) -> None:
    """A library that went away meanwhile hears of it elsewhere."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, SyncError):
        raise error


def _cut(view: memoryview) -> Iterable[memoryview]:
    return (view[at : at + _CHUNK_BYTES] for at in range(0, len(view), _CHUNK_BYTES))


def _state_chunks(mirror: Mirror) -> Iterable[memoryview]:
    for tensor in mirror.bound().values():
        yield from _cut(tensor.matrix.data.cast("B"))


def _ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)


def _step_of(stored: StoredObject) -> int | None:
    label = stored.facts.label
    return int(label) if label.isdecimal() and len(label) < 16 else None
