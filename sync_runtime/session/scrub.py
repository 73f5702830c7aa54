"""Scrubs of a member's live weights: what they should be, which blocks differ, and the right bits for those.

Lives on the brain's loop. With a mirror (coder `sidecar`) blocks are compared and mended one by one. With coder
`library` the full digest decides; weights that fail it are of no known version, and whole ones follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.objects import ranges_of
from sync_runtime.errors import DigestError, SyncError, WrongBaseError
from sync_runtime.local import messages as local
from sync_runtime.local.link import LibraryLink
from sync_runtime.session.lists import ListStream, whole_blocks
from sync_runtime.session.machine import Machine, ServiceEffect, ServiceEvent, ServiceState
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.stager import Stager
from sync_runtime.session.weights import EngineWeights


@dataclass(frozen=True)
class ScrubContext:
    """What scrubs work with."""

    machine: Machine[ServiceState, ServiceEvent, ServiceEffect]
    weights: EngineWeights
    stager: Stager
    spawn: Callable[[object], None]
    """Runs a coroutine beside the rest; its failure is logged."""
    note: Callable[[str, str], None]
    """Trouble: a reason and a sentence."""


class Scrubber:
    """One engine's scrubs, one at a time."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.passed: bool | None = None
        """How the last scrub of the live version ended; None: none did since it is live."""
        self.trusted: VersionRef | None = None
        """The last version that a full digest proved in the engine."""
        self._asked: local.Scrub | None = None
        self._intake: Mirror | None = None
        self._wrong: list[int] = []
        """Blocks of the live version that differ, until a scrub passes."""
        self._mended = False
        """Whether the library has the right bits for them staged, or written."""

    @property
    def is_running(self) -> bool:
        """Whether a state for a scrub is on its way."""
        return self._asked is not None

    def prove(self, version: VersionRef) -> None:
        """A full digest showed which version the live weights are."""
        self.passed, self.trusted, self._wrong = True, version, []

    def switched(self) -> None:
        """Another version is live; what a scrub found out about the last one does not count for it."""
        self.passed = None

    def forget(self) -> None:
        """The library is gone, or gave up its stream."""
        if self._intake is not None:
            self._intake.remove()
        self._intake, self._asked = None, None

    def check_leave(self) -> None:
        """Raises DigestError while wrong weights have no repair: what is staged is cut from right ones."""
        if self._context.machine.state is ServiceState.POISONED and not self._mended:
            raise DigestError("a scrub found wrong weights, and their repair is not staged yet: try again")

    def unstaged(self, library: LibraryLink) -> None:
        """The library forgot what was staged, a repair among it."""
        if self._wrong and self._mended:
            self._mended = False
            self._context.spawn(self._repair(library))

    async def begin(self, library: LibraryLink, message: local.Scrub) -> None:
        """SCRUB came; with `state` the weights follow."""
        weights, machine = self._context.weights, self._context.machine
        if VersionRef(message.lineage, message.seq) != weights.live:
            raise WrongBaseError("another version is live than the one to be scrubbed")
        poisoned = machine.state is ServiceState.POISONED
        machine.feed(ServiceEvent.REPAIRED if poisoned else ServiceEvent.SCRUB)
        self._asked = message
        if not message.state:
            await self.end(library)
        elif weights.mirror is not None:
            self._intake = Mirror.create(weights.folder, weights.mirror.layout)

    def append(self, data: memoryview) -> bool:
        """Bytes of the state; False: none is expected."""
        if self._intake is None:
            return False
        self._intake.append(data)
        return True

    async def end(self, library: LibraryLink) -> None:
        """Compares the live weights with what they should be, and sends right bits for what differs."""
        message, self._asked = self._asked, None
        intake, self._intake = self._intake, None
        mirror, live = self._context.weights.mirror, self._context.weights.live
        if message is None or live is None:
            return
        blocks: list[int] = []
        if intake is not None and mirror is not None:
            blocks = await asyncio.to_thread(mirror.differing_blocks, intake)
            intake.remove()
            passed = not blocks
        else:
            passed = message.digest == self._context.weights.digest
        self._judge(live, blocks, passed=passed)
        await library.send(local.Scrubbed(passed, tuple(ranges_of(blocks))))
        if blocks:
            self._context.spawn(self._repair(library))
        elif not passed:
            library.hang_up()  # it opens again: its weights are no known version, and whole ones follow

    def _judge(self, live: VersionRef, blocks: list[int], *, passed: bool) -> None:
        machine = self._context.machine
        if machine.state is ServiceState.SCRUBBING:
            machine.feed(ServiceEvent.SCRUB_PASSED if passed else ServiceEvent.SCRUB_FAILED)
        self.passed, self._wrong, self._mended = passed, blocks, False
        if passed:
            self.trusted = live
        else:
            self._context.note("ScrubFailed", f"live weights are not version {live.seq}: {len(blocks)} blocks differ")

    async def _repair(self, library: LibraryLink) -> None:
        """The mirror's bits for the blocks that differ, as a list from the live version to itself."""
        weights, blocks = self._context.weights, self._wrong
        mirror, live = weights.mirror, weights.live
        if mirror is None or live is None or not blocks:
            return
        ref = local.VersionRef(live.lineage, live.seq)
        stream = ListStream(mirror.blocks, whole_blocks(mirror.blocks, mirror.bound(), blocks))
        message = local.Stage(live.lineage, live.seq, weights.digest or "", None, ref, "list", stream.size_bytes)
        try:
            await self._context.stager.hand_over(library, message, stream.chunks(), self._taken)
        except SyncError:
            library.hang_up()  # both ends disagree on what is live: a full digest decides

    def _taken(self) -> None:
        self._mended = True
