"""A member's session towards its engine: opens with a full digest, stages what arrived, gives leave, judges scrubs.

Lives on the brain's loop. Knows nothing of links: objects come from the spool, what is held is told to whoever asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from sync_runtime.bucket.keys import FAST, ObjectKey, VersionRef
from sync_runtime.bucket.spool import StoredObject
from sync_runtime.errors import (
    LibraryLostError,
    LocalProtocolError,
    OldTermError,
    SequenceError,
    SyncError,
    WrongBaseError,
)
from sync_runtime.local import messages as local
from sync_runtime.local.link import Library
from sync_runtime.session.fitting import Gate
from sync_runtime.session.machine import ServiceEvent, ServiceState, service_machine
from sync_runtime.session.position import newest_whole, next_step
from sync_runtime.session.scrub import Scrubber, ScrubContext
from sync_runtime.session.stager import Stager, StagerOf
from sync_runtime.session.weights import EngineContext, EngineWeights, OpenIntake

_log = logging.getLogger(__name__)
HANDOVER_S, LOST_HANDOVER_S, HANDOVER_POLL_S = 1.0, 10.0, 0.01
"""An engine that was restarted may dial before the end of the old one was seen, or while its last word is heeded."""


class EngineSession:
    """One engine's library at a time."""

    def __init__(self, context: EngineContext, stager: StagerOf = Stager) -> None:
        self._context = context
        self._machine = service_machine()
        self._weights = EngineWeights(context.spool)
        self._stager = stager(self._weights, context.versions)
        parts = (self._machine, self._weights, self._stager, context.spawn, self._note_trouble, context.follow)
        self._scrubber = Scrubber(ScrubContext(*parts, mended=self._advance, tell=self._tell))
        self._library: Library | None = None
        self._opening: OpenIntake | None = None
        self.gate = Gate(self._stager.check_fit, context.spawn, context.changed)
        self._staging = False
        self.refused: set[ObjectKey] = set()
        """Objects that decoded to something else than their signed manifest promises; never tried again."""
        self._no_way = False
        """Nobody can make a way from the live version: only whole weights help."""
        self._stranded: str | None = None
        """The digest of weights that no way leads on from, where an engine that codes is out of service for it."""
        self._void = False
        """The library has forgotten what was staged, or is about to."""
        self.trouble: tuple[str, str] | None = None
        self.tokens_per_second: int | None = None
        self.pause_us: int | None = None
        self._since: dict[str, float] = {}  # when stages began that are not over

    # --- what others want to know ------------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """What it is doing."""
        return self._machine.state

    @property
    def scrubs(self) -> Scrubber:
        """What is asked of scrubs, and what they found."""
        return self._scrubber

    @property
    def trusted(self) -> VersionRef | None:
        """The last version that a full digest proved in the engine."""
        return self._scrubber.trusted

    @property
    def live(self) -> VersionRef | None:
        """The version that the engine runs."""
        return self._weights.live

    @property
    def staged(self) -> VersionRef | None:
        """The newest version that waits for activation."""
        return self._weights.staged[-1] if self._weights.staged else None

    def holds(self) -> VersionRef | None:
        """From where deltas help; None: from nowhere."""
        return None if self._no_way else self._weights.newest

    def digest(self) -> str | None:
        """The full digest of weights that are no known version."""
        digest = self._weights.digest
        return digest if self._weights.live is None and digest != self._stranded else None

    def out_of_service(self) -> bool:
        """Whether it may be given whole weights."""
        return self._no_way or self._machine.state is ServiceState.JOINING

    def learned(self) -> None:
        """Versions became known: the digest may be one of them, and the library is told of the newest."""
        digest, library = self.digest(), self._library
        if self._machine.state is ServiceState.JOINING and digest is not None and library is not None:
            found = self._known(digest)
            if found is not None and not self._staging:
                self._become(found)
                self._tell(local.Known(found.lineage, found.seq, digest, self._context.step_of(found)))
        if library is not None and self._weights.is_contradicted(self._context.versions):
            library.hang_up()  # it opens with its full digest, and that is looked up again
        self._tell_head()
        self._advance()

    def arrived(self, stored: StoredObject) -> None:
        """An object is in the spool."""
        if self._library is not None:
            self._scrubber.arrived(self._library, stored)
        self._advance()

    def no_way(self, key: ObjectKey) -> None:
        """Nobody can make the object that leads on from here."""
        if self._library is not None:
            self._scrubber.missing(self._library, key)
        holds, head = self.holds(), self._context.versions.head
        if holds is not None and key.base == holds and key.codec == FAST and key.target == head:
            self._no_way = True
            self._note_trouble("TooFarBehind", f"no delta leads on from version {holds.seq}: whole weights follow")
            if self._library is not None and self._library.hello.coder == "library":
                self._stranded = self._weights.digest
                self._library.hang_up()  # it opens again, out of service: whole weights are written over what it has

    def repairs(self) -> dict[ObjectKey, list[list[int]]]:
        """Anchors of some blocks that live weights are to be mended with, and the ranges of these blocks."""
        return self._scrubber.repairs()

    # --- what the library says ---------------------------------------------------------------------------------------

    async def attached(self, library: Library) -> None:
        """A library is in. One that comes right after the last one's end waits until that is over."""
        began_s = time.monotonic()
        while (last := self._library) is not None:
            if time.monotonic() - began_s >= (LOST_HANDOVER_S if last.is_lost else HANDOVER_S):
                raise LocalProtocolError("another subscriber is connected: a member has one engine")
            await asyncio.sleep(HANDOVER_POLL_S)
        self._library = library

    async def message(self, library: Library, message: local.Message) -> None:
        """A message of the library."""
        match message:
            case local.Open():
                self._opening = OpenIntake(message, self._weights.folder, partial(self.gate.check, library))
            case local.Scrub():
                self._since["scrub"] = time.monotonic()
                await self._scrubber.begin(library, message)
                if not message.state:
                    self._timed_since("scrub")
                self._context.changed()
            case local.End():
                await self._end(library)
            case local.Cancel():
                self._drop_intake()
            case local.Staged(lineage=lineage, seq=seq):
                self._context.timed("stage", VersionRef(lineage, seq), message.timings_us.get("stage", 0))
                self._stager.answered(VersionRef(lineage, seq), None)
            case local.Error(request=request):
                self._stager.answered(None, WrongBaseError(f"{request}: {message.message}"))
            case local.Activate(lineage=lineage, seq=seq):
                await self._activate(library, VersionRef(lineage, seq))
            case local.Activated(lineage=lineage, seq=seq):
                await self._activated(library, VersionRef(lineage, seq), message.pause_us)
            case local.Note(tokens_per_second=tokens):
                self.tokens_per_second = tokens
            case _:
                raise LocalProtocolError(f"a subscriber does not send {type(message).__name__}")

    async def data(self, library: Library, data: memoryview) -> None:
        """Bytes of the layout or of a state."""
        if self._opening is not None:
            self._opening.take(data)
        elif not self._scrubber.append(data):
            raise LocalProtocolError("bytes of a state came where none was announced")

    async def detached(self, library: Library, reason: str) -> None:
        """The library is gone, and what was staged in it."""
        if library is not self._library:
            return
        self._library = None
        if self._machine.allows(ServiceEvent.LIBRARY_GONE):
            self._machine.feed(ServiceEvent.LIBRARY_GONE)
        self._stager.answered(None, LibraryLostError(reason))
        self._drop_intake()
        self._scrubber.lost()
        self._weights.forget()
        self._no_way, self._void = False, False
        self._context.changed()

    # --- opening -----------------------------------------------------------------------------------------------------

    async def _end(self, library: Library) -> None:
        if self._scrubber.is_running:
            await self._scrubber.end(library)
            self._timed_since("scrub")
            self.trouble = None if self._scrubber.passed else self.trouble
            self._context.changed()
        elif self._opening is not None:
            opening, self._opening = self._opening, None
            await self._opened(library, opening)

    async def _opened(self, library: Library, opening: OpenIntake) -> None:
        layout, mirror, digest = await opening.finish()
        self._weights.opened(layout, mirror, digest)
        found = self._known(digest)
        if found is None:
            await library.send(local.Opened(None, None, digest, None, continued=False))
        else:
            await library.send(
                local.Opened(found.lineage, found.seq, digest, self._context.step_of(found), continued=True)
            )
        if found is not None:
            self._become(found)
        else:
            self._machine.feed(ServiceEvent.UNKNOWN_DIGEST)
            self._context.follow()
        self._tell_head()
        self._context.changed()
        self._advance()

    def _known(self, digest: str) -> VersionRef | None:
        """The version that weights are, if it is one from which something leads on."""
        return None if digest == self._stranded else self._context.versions.find(digest)

    def _become(self, version: VersionRef) -> None:
        """A full digest proved which version the live weights are."""
        self._machine.feed(ServiceEvent.KNOWN_DIGEST)
        self._weights.become(version)
        self._scrubber.prove(version)
        self._context.follow()
        self._context.changed()

    def _tell_head(self) -> None:
        head, library = self._context.versions.head, self._library
        digest = self._context.versions.digest(head)
        if library is not None and head is not None and digest is not None and self._weights.digest is not None:
            self._tell(local.Head(head.lineage, head.seq, digest, self._context.step_of(head)))

    def _tell(self, message: local.Message) -> None:
        """News for the library; one that is gone opens again and hears them then."""
        library = self._library
        if library is not None:
            self._context.spawn(library.send_quietly(message))

    # --- staging -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Stages the next object that leads on from here, one at a time."""
        library, layout = self._library, self._weights.layout
        if library is None or layout is None or self._staging or self._scrubber.is_waiting:
            return
        if not self.gate.admits(library, layout):
            return
        self._leave_lineage(library)
        found = self._next_object()
        if found is not None:
            self._staging = True
            self._context.spawn(self._stage(library, found))

    def _leave_lineage(self, library: Library) -> None:
        """The trainer went another way: what is staged of the lineage that ended is void, at both ends."""
        staged, head = self._weights.staged, self._context.versions.head
        if self._void or (head is not None and any(one.lineage != head.lineage for one in staged)):
            self._void = False
            self._weights.unstage()
            self._tell(local.Unstage(None))
            self._scrubber.unstaged(library)
            self._context.follow()

    def _next_object(self) -> StoredObject | None:
        head, holds = self._context.versions.head, self.holds()
        if head is None:
            return None
        usable = [one.key for one in self._context.spool.objects() if one.key not in self.refused]
        if holds is not None:
            key = next_step(holds, usable, head)
        else:
            key = newest_whole(self._weights.live, usable, head) if self.out_of_service() else None
        return None if key is None else self._context.spool.stored(key)

    async def _stage(self, library: Library, stored: StoredObject) -> None:
        try:
            is_whole = await self._stager.stage(library, stored)
        except SyncError as error:
            if library is self._library and not isinstance(error, LibraryLostError):
                await self._stage_failed(library, stored, error)
            else:  # what it was decoded against went with the engine: that says nothing of the object
                self._staging = False
                self._advance()  # the next one may be there already
            return
        self._staging = False
        if self._machine.state is not ServiceState.POISONED:  # a fresh delta mends nothing: only a passed scrub does
            self.trouble = None
        self._context.timed("decode", stored.key.target, self._stager.decode_us)
        if stored.key.is_anchor:
            self._no_way = False
        if is_whole:
            self._stranded = None
            self._machine.feed(ServiceEvent.LEVEL)
            self._scrubber.prove(stored.key.target)
            self._context.follow()
        self._context.moved()
        self._context.changed()
        self._advance()

    async def _stage_failed(self, library: Library, stored: StoredObject, error: SyncError) -> None:
        """A sequence fault: both ends disagree on where they are, and a full digest decides. Otherwise: our bug.

        The library opens again with its state when it is hung up on; what it proves to be is where all goes on.
        """
        trouble = type(error).__name__.removesuffix("Error"), str(error)
        self._note_trouble(*trouble)
        self._context.timed("decode", stored.key.target, 0, *trouble)
        stages = self._weights.stages
        if isinstance(error, SequenceError):
            if not self._void:
                library.hang_up()
        elif stages is not None and not await asyncio.to_thread(stages.is_sound):
            library.hang_up()  # the mirror is wrong, not the object
        else:
            self.refused.add(stored.key)
            self._context.follow()
        self._staging = False
        self._advance()  # a new library may be there already

    # --- activating --------------------------------------------------------------------------------------------------

    async def _activate(self, library: Library, version: VersionRef) -> None:
        """Leave at a safe point: staged, of the lineage that is followed, under the current term."""
        versions, head = self._context.versions, self._context.versions.head
        if version == self._weights.live and version not in self._weights.staged:  # a repair of what is live
            await library.send(local.Go(version.lineage, version.seq, versions.fence.term))
            return
        if head is not None and version.lineage != head.lineage:
            self._void = True  # the library forgets what is staged when it hears this
            self._advance()
            raise OldTermError("the trainer went another way meanwhile: this version is of a lineage that ended")
        if version not in self._weights.staged:
            raise WrongBaseError(f"version {version.seq} is not staged")
        self._scrubber.check_leave()
        self._since["activate"] = time.monotonic()
        if self._machine.state is ServiceState.ACTIVATING:  # the last leave led to nothing
            self._machine.feed(ServiceEvent.INTERRUPTED)
        if self._machine.state is not ServiceState.POISONED:  # that stays until a scrub passes
            self._machine.feed(ServiceEvent.ACTIVATE)
        await library.send(local.Go(version.lineage, version.seq, versions.fence.term))

    async def _activated(self, library: Library, version: VersionRef, pause_us: int) -> None:
        if version == self._weights.live and version not in self._weights.staged:
            return
        if version not in self._weights.staged:
            # An interrupted scatter that was ended later, of a lineage that has ended: a full digest says what is live.
            self._note_trouble("ActivatedLate", f"version {version.seq} went live though it is not staged any more")
            library.hang_up()
            return
        if self._machine.state is not ServiceState.POISONED:
            self._machine.feed(ServiceEvent.APPLIED)
        self.pause_us = pause_us
        self._scrubber.switched()
        self._context.timed("apply", version, pause_us)
        await asyncio.to_thread(self._weights.commit, version)
        self._weights.activated(version)
        self._timed_since("activate")
        self._context.changed()
        self._advance()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _drop_intake(self) -> None:
        if self._opening is not None:
            self._opening.drop()
            self._opening = None
        self._scrubber.forget()

    def _timed_since(self, stage: str) -> None:
        """A stage of the live version that began a while ago is over."""
        began, live = self._since.pop(stage, None), self._weights.live
        if began is not None and live is not None:
            failed = self.trouble if stage == "scrub" and self._scrubber.passed is False else None
            self._context.timed(stage, live, int((time.monotonic() - began) * 1e6), *(failed or ()))

    def _note_trouble(self, reason: str, sentence: str) -> None:
        self.trouble = (reason, sentence)
        _log.warning("%s: %s", reason, sentence)
        self._context.changed()
