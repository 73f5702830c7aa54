"""Scrubs of a member's live weights: what they should be, which blocks differ, and the right bits for those.

Lives on the brain's loop. With a mirror (coder `sidecar`) blocks are compared and mended one by one, from here. With
coder `library` the full digest decides, and the library's own books name the blocks: these alone are asked for. Weights
of which nobody can say what is wrong are of no known version, and whole ones follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sync_runtime.bucket.keys import ObjectKey, VersionRef, repair_key
from sync_runtime.bucket.objects import ranges_of
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.errors import DigestError, SyncError, WrongBaseError
from sync_runtime.local import messages as local
from sync_runtime.local.link import Library
from sync_runtime.local.ranges import from_ranges
from sync_runtime.session.lists import ListStream, whole_blocks
from sync_runtime.session.machine import Machine, ServiceEffect, ServiceEvent, ServiceState
from sync_runtime.session.mirror import Mirror
from sync_runtime.session.stager import Stager, off_the_loop
from sync_runtime.session.weights import EngineWeights
from sync_runtime.tensors.blocks import BlockMap

MAX_REPAIR_BLOCKS = 1024
"""Above this, or above half of all, whole weights are the simpler way."""
REPAIR_TRIES = 5
"""How often nobody may have the blocks, a second apart: a trainer's process that was restarted is back by then."""


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
    follow: Callable[[], None]
    """What is wanted changed: the parent is asked."""
    mended: Callable[[], None]
    """A repair is staged: what follows may be staged over it."""
    tell: Callable[[local.Message], None]
    """News for the library; lost where none is there."""


class Scrubber:
    """One engine's scrubs, one at a time."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.passed: bool | None = None
        """How the last scrub of the live version ended; None: none did since it is live."""
        self.results = {"Passed": 0, "Failed": 0}
        """How scrubs ended, since the start."""
        self.trusted: VersionRef | None = None
        """The last version that a full digest proved in the engine."""
        self._asked: local.Scrub | None = None
        self._intake: Mirror | None = None
        self._wrong: list[int] = []
        """Blocks of the live version that differ, until a scrub passes."""
        self._mended = False
        """Whether the library has the right bits for them staged, or written."""
        self._handing = False
        self._misses = 0
        """How often nobody had the blocks that were asked for."""
        self._request = 0
        """Number of the latest scrub that the plan asks for; 0: it never did."""
        self._begun_for = 0
        """The request that was known when the scrub under way began."""
        self.answer: tuple[int, bool] | None = None
        """The latest request that a full look at the live weights answered, and how it ended."""

    def request(self, number: int) -> None:
        """The plan asks for a scrub. Weights that nobody has proved yet answer it when they are proved."""
        if number <= self._request:
            return
        self._request = number
        if self._context.weights.live is not None:
            self._context.tell(local.Recheck())

    @property
    def is_running(self) -> bool:
        """Whether a state for a scrub is on its way."""
        return self._asked is not None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing may be staged: a library that codes would build on wrong weights."""
        return bool(self._wrong) and not self._mended and self._context.weights.mirror is None

    def repairs(self) -> dict[ObjectKey, list[list[int]]]:
        """The anchor of some blocks that is to be asked for, with the blocks' ranges; none where there is a mirror."""
        live = self._context.weights.live
        if live is None or not self.is_waiting:
            return {}
        ranges = [list(run) for run in ranges_of(self._wrong)]
        return {repair_key(live, ranges): ranges}

    def prove(self, version: VersionRef) -> None:
        """A full digest showed which version the live weights are."""
        self.passed, self.trusted, self._wrong = True, version, []
        self._answered(self._request, passed=True)

    def switched(self) -> None:
        """Another version is live; what a scrub found out about the last one does not count for it."""
        self.passed = None

    def forget(self) -> None:
        """The library is gone, or gave up its stream."""
        if self._intake is not None:
            self._intake.remove()
        self._intake, self._asked = None, None

    def lost(self) -> None:
        """The library is gone: its weights are looked at anew when it is back."""
        self.forget()
        self._wrong, self._mended = [], False

    def check_leave(self) -> None:
        """Raises DigestError while wrong weights have no repair: what is staged is cut from right ones."""
        if self._context.machine.state is ServiceState.POISONED and not self._mended:
            raise DigestError("a scrub found wrong weights, and their repair is not staged yet: try again")

    def unstaged(self, library: Library) -> None:
        """The library forgot what was staged, a repair among it."""
        if self._wrong and self._mended:
            self._mended = False
            self._context.spawn(self._repair(library))

    def arrived(self, library: Library, stored: StoredObject) -> None:
        """An object is in the spool; it may be the one that live weights are to be mended with."""
        if stored.key in self.repairs():
            self._context.spawn(self._repair(library))

    def missing(self, library: Library, key: ObjectKey) -> None:
        """Nobody has an object now. It is asked for again for a while; then whole weights follow."""
        if key in self.repairs():
            self._misses += 1
            if self._misses >= REPAIR_TRIES:
                self._context.note("NoRepair", f"nobody has the right blocks of version {key.target_seq}")
                library.hang_up()  # it opens again: its weights are no known version

    async def begin(self, library: Library, message: local.Scrub) -> None:
        """SCRUB came; with `state` the weights follow."""
        weights, machine = self._context.weights, self._context.machine
        if VersionRef(message.lineage, message.seq) != weights.live:
            raise WrongBaseError("another version is live than the one to be scrubbed")
        poisoned = machine.state is ServiceState.POISONED
        machine.feed(ServiceEvent.REPAIRED if poisoned else ServiceEvent.SCRUB)
        self._asked, self._begun_for = message, self._request
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

    async def end(self, library: Library) -> None:
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
            blocks = [] if passed else self._named(message)
        self._judge(live, blocks, passed=passed)
        await library.send(local.Scrubbed(passed, tuple(ranges_of(blocks))))
        if blocks:
            self._context.spawn(self._repair(library))
        elif not passed:
            library.hang_up()  # it opens again: its weights are no known version, and whole ones follow

    def _named(self, message: local.Scrub) -> list[int]:
        """The blocks that differ by the library's own books; none where whole weights are the better way."""
        layout = self._context.weights.layout
        if layout is None:
            return []
        num_blocks = BlockMap(layout).num_blocks
        blocks = from_ranges(message.blocks, num_blocks)
        return blocks if len(blocks) <= min(MAX_REPAIR_BLOCKS, max(1, num_blocks // 2)) else []

    def _judge(self, live: VersionRef, blocks: list[int], *, passed: bool) -> None:
        machine = self._context.machine
        if machine.state is ServiceState.SCRUBBING:
            machine.feed(ServiceEvent.SCRUB_PASSED if passed else ServiceEvent.SCRUB_FAILED)
        self.passed, self._wrong, self._mended, self._misses = passed, blocks, False, 0
        self.results["Passed" if passed else "Failed"] += 1
        self._answered(self._begun_for, passed=passed)
        if passed:
            self.trusted = live
        else:
            self._context.note("ScrubFailed", f"live weights are not version {live.seq}: {len(blocks)} blocks differ")

    def _answered(self, number: int, *, passed: bool) -> None:
        """The first look after a request is its answer: that a repair succeeded is another matter."""
        if number > (0 if self.answer is None else self.answer[0]):
            self.answer = (number, passed)

    async def _repair(self, library: Library) -> None:
        """Right bits for the blocks that differ, from the live version to itself; what is not here is asked for."""
        if self._handing or self._mended or not self._wrong:
            return
        self._handing = True
        try:
            await (self._repair_list(library) if self._context.weights.mirror is not None else self._mend(library))
        except SyncError:
            library.hang_up()  # both ends disagree on what is live: a full digest decides
        finally:
            self._handing = False
        if self._mended:
            self._context.mended()

    async def _repair_list(self, library: Library) -> None:
        """The mirror's bits."""
        weights, blocks = self._context.weights, self._wrong
        mirror, live = weights.mirror, weights.live
        if mirror is None or live is None:
            return
        ref = local.VersionRef(live.lineage, live.seq)
        stream = ListStream(mirror.blocks, whole_blocks(mirror.blocks, mirror.bound(), blocks))
        message = local.Stage(live.lineage, live.seq, weights.digest or "", None, ref, "list", stream.size_bytes)
        await self._context.stager.hand_over(library, message, off_the_loop(stream.chunks()), self._taken)

    async def _mend(self, library: Library) -> None:
        """The trainer's bits, which a signed anchor of these blocks brings."""
        for key in self.repairs():
            stored = self._context.weights.stored(key)
            if stored is None:
                self._context.follow()
            else:
                await self._context.stager.mend(library, stored, list(self._wrong), self._taken)

    def _taken(self) -> None:
        self._mended = True
