"""A subscriber's conversation with its sidecar: opening, staging in the background, activating at a safe point.

The background thread receives and folds while the engine generates; live weights are written by the thread that
activates alone (but for whole weights that come to a member out of service). Knows nothing of how weights are coded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from sync_runtime.errors import FenceError, LocalError, LocalProtocolError, NothingWrittenError, SidecarLostError
from sync_runtime.library.coders import StageCoder
from sync_runtime.library.connection import Connection
from sync_runtime.library.intake import TURN_S, Intake
from sync_runtime.library.shards import part_of
from sync_runtime.library.staging import Staging
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.channel import Channel
from sync_runtime.local.messages import (
    Activate,
    Activated,
    Cancel,
    Data,
    End,
    Go,
    Head,
    Hello,
    Known,
    Message,
    Note,
    Open,
    Opened,
    Recheck,
    Scrub,
    Scrubbed,
    Stage,
    Unstage,
    VersionRef,
)

ANSWER_TIMEOUT_S = 600.0
_LOOK_S = 1.0
NOTHING = VersionRef("0" * 32, 0)
"""What one of several ranks asks leave for that has no version, nor anything staged."""


class SubscribeSession:
    """One subscriber."""

    def __init__(
        self, weights: Weights, coder: StageCoder, socket: str, hello: Hello, *, auto_scrub: bool = False
    ) -> None:
        self._weights, self._coder, self._auto_scrub = weights, coder, auto_scrub
        self._scrub_due = False
        self._scrubbing = threading.Lock()
        self.staging = Staging()
        self.newest: Version | None = None
        """The newest version that the sidecar has told of."""
        self._closed = False
        self._activating = False
        self._torn: tuple[Version, Any] | None = None
        """A version whose scatter began and did not end, with its list."""
        self._using = threading.Lock()
        """Held by whoever reads or writes live weights in a way that must not overlap."""
        self._ranks = hello.world_size
        self.connection = Connection(socket, hello, self)
        self._intake = Intake(self.connection, coder, self.staging, lambda: self._activating)

    def open(self, timeout_s: float) -> None:
        """Waits for a sidecar and opens; the background thread ends where that fails."""
        self.connection.start()
        try:
            self.connection.wait_until(lambda: self.connection.is_open, timeout_s)
        except BaseException as error:
            is_alone = self._ranks > 1 and self.connection.is_connected and isinstance(error, SidecarLostError)
            self.connection.close()
            if is_alone:
                raise SidecarLostError(f"not all of {self._ranks} ranks were there within {timeout_s:.3g} s") from error
            raise

    @property
    def version(self) -> Version | None:
        """What the live weights are; None: no version, or half of one and half of another."""
        return None if self._torn is not None else self.staging.live

    @property
    def is_stale(self) -> bool:
        """Whether live weights are known not to be the newest, or not to be right."""
        with self.connection.changed:
            live, staged, newest = self.version, self.staging.staged, self.newest
            if live is None or self.staging.is_poisoned or staged not in (None, live):
                return True
            return newest is not None and (newest.lineage != live.lineage or newest.seq > live.seq)

    def between(self) -> None:
        """In the middle of long work in the background: receives, so that whoever activates is not kept waiting."""
        if self.connection.in_background:
            self.connection.pump()

    def check(self) -> None:
        """Raises LocalError where this object cannot be used."""
        self.connection.check_process()
        if self._closed:
            raise LocalError("this subscriber was closed: make a new one")

    def wait(self, seq: int | None, timeout_s: float | None) -> Version | None:
        """Waits until a version is staged that is newer than the live one, or is at least `seq`."""
        self.check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.connection.changed:
            while (found := self._wanted(seq)) is None:
                self.connection.check_fit()
                rest_s = None if deadline is None else deadline - time.monotonic()
                if (rest_s is not None and rest_s <= 0) or self._closed:
                    return None
                self.connection.check_thread()
                self.connection.changed.wait(_LOOK_S if rest_s is None else min(rest_s, _LOOK_S))
            return found

    def activate(self, patience_s: float) -> Version | None:
        """One switch or none."""
        self.check()
        if self._torn is None:
            self.connection.check_fit()
        if self._torn is None and self.staging.staged is None and self._ranks == 1:
            return None
        with self._using:
            mended = self._mend()
            return self._activate(patience_s) or mended

    def scrub(self, timeout_s: float) -> bool:
        """Live weights against what they should be."""
        self.check()
        with self._scrubbing:
            with self._using:
                self._mend()
                self.connection.check_fit()
                channel, request = self._begin_scrub()
            return self._end_scrub(channel, request, timeout_s)

    def note(self, tokens_per_second: int | None) -> None:
        """Figures for the member's report; lost without a word where no sidecar is there."""
        self.check()
        with suppress(SidecarLostError):
            self.connection.open_channel.send(Note(tokens_per_second, {}))

    def close(self) -> None:
        """Hangs up."""
        self.connection.check_process()
        self._closed = True
        with self.connection.changed:
            self.connection.changed.notify_all()
        self.connection.close()

    def _wanted(self, seq: int | None) -> Version | None:
        staged, live = self.staging.staged, self.staging.live
        if seq is None:
            return None if staged == live else staged
        return next((found for found in (staged, live) if found is not None and found.seq >= seq), None)

    def _mend(self) -> Version | None:
        """Ends a scatter that was interrupted: its leave was given, and live weights are nothing until it is done."""
        if self._torn is None:
            return None
        version, layer = self._torn
        self._write(version, layer)
        return version

    def _activate(self, patience_s: float) -> Version | None:
        with self.connection.changed:
            self.connection.changed.wait_for(lambda: not self._intake.is_telling, patience_s)
            version, layer = self.staging.staged, self.staging.folded
            wanted = NOTHING if self.staging.top is None else self.staging.top.ref
            if version is None and self._ranks == 1:
                return None
            self._activating = version is not None  # else it only takes part: nothing is written
        try:
            channel = self.connection.open_channel
            leave = self.connection.ask(channel, Activate(wanted.lineage, wanted.seq), Go, patience_s)
            if self._ranks > 1 and version is not None:  # the newest that all ranks have
                version, layer = self.staging.upto(VersionRef(leave.lineage, leave.seq), self._coder.fold)
            if version is None:
                return None
            self._write(version, layer)
        except FenceError:
            with self.connection.changed:
                self.staging.forget()  # of a trainer that was replaced
            return None
        finally:
            with self.connection.changed:
                self._activating = False
                self.connection.changed.notify_all()
        return version

    def _write(self, version: Version, layer: Any) -> None:
        """The pause: from the first changed element to the last."""
        began_ns = time.perf_counter_ns()
        before, self._torn = self._torn, (version, layer)
        try:
            self._coder.apply(layer)
        except NothingWrittenError:
            self._torn = before  # what was whole still is
            raise
        pause_us = (time.perf_counter_ns() - began_ns) // 1000
        with self.connection.changed:
            self.staging.activated(version, self._coder.fold)
            self._torn = None
            self._scrub_due = self._auto_scrub
        with suppress(SidecarLostError):  # it is live all the same; opening again proves it
            self.connection.open_channel.send(Activated(version.lineage, version.seq, pause_us))

    def _begin_scrub(self) -> tuple[Channel, Scrub]:
        """Reads all weights, which must stand still."""
        version = self.staging.live
        if version is None:
            raise LocalError("there is no version yet: wait for one and activate it first")
        channel = self.connection.open_channel
        request, chunks = self._coder.scrub(version)
        if request.state:
            with self.connection.streaming:
                self.connection.stream(channel, request, chunks)
        else:
            self.connection.replies.expect(Scrub)
            channel.send(request)
        return channel, request

    def _end_scrub(self, channel: Channel, request: Scrub, timeout_s: float) -> bool:
        passed = self.connection.answer(channel, request, Scrubbed, timeout_s).passed
        with self.connection.changed:
            self.staging.is_poisoned = not passed
            self.connection.changed.notify_all()
        return passed

    # --- the background thread -------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Opens with the live weights: whatever they prove to be is where both go on."""
        while self._torn is not None:  # half written: wait until the user's thread has mended it
            self.connection.pump(TURN_S)
        with self._using, self.connection.streaming:
            channel, opening, document = self.connection.channel, self._coder.opening(), self._weights.layout.document
            request = Open(len(document), opening.chunks is not None, opening.digests, False)
            if self._ranks > 1:
                channel.send(part_of(self._weights.holding, opening.block_digests))
            self.connection.stream(channel, request, _parts(document, opening.chunks))
            if self._ranks == 1:
                self._opened(self.connection.answer(channel, request, Opened, ANSWER_TIMEOUT_S))
        if self._ranks > 1:  # other ranks may be long in coming: nobody waits for a lock meanwhile, or writes
            self._opened(self.connection.answer(channel, request, Opened, ANSWER_TIMEOUT_S))
        self.connection.set_open(channel)

    def _opened(self, opened: Opened) -> None:
        with self.connection.changed:
            self.staging.live = _version(opened)
            self.staging.is_poisoned = False

    def work(self, message: Message) -> bool:
        """Streams of staged versions, and news."""
        if isinstance(message, Stage | Data | End | Cancel):
            self._intake.take(message)
        elif isinstance(message, Unstage):
            if self._activating:
                return False
            with self.connection.changed:
                self.staging.unstage(message.version, self._coder.fold)
                self.connection.changed.notify_all()
        elif isinstance(message, Known):
            with self.connection.changed:
                self.staging.prove(Version(message.lineage, message.seq, message.digest, message.step))
                self.connection.changed.notify_all()
        elif isinstance(message, Head):
            with self.connection.changed:
                self.newest = Version(message.lineage, message.seq, message.digest, message.step)
                self.connection.changed.notify_all()
        elif isinstance(message, Recheck):
            self._scrub_due = self._ranks == 1  # several ranks scrub together, when their user says so
        else:
            raise LocalProtocolError(f"the sidecar sent {type(message).__name__} to a subscriber")
        return True

    def idle(self) -> None:
        """The scrub that follows an activation or was asked for, unless a thread of the user's is at the weights."""
        if not self._scrub_due or not self._scrubbing.acquire(blocking=False):
            return
        try:
            if not self._using.acquire(blocking=False):
                return
            try:
                if self._torn is not None or self.staging.live is None:
                    return
                self._scrub_due = False
                channel, request = self._begin_scrub()
            finally:
                self._using.release()
            self._end_scrub(channel, request, ANSWER_TIMEOUT_S)
        finally:
            self._scrubbing.release()

    def lost(self) -> None:
        """What was staged is void; what is live stays."""
        with self.connection.changed:
            self._intake.reset()
            self.staging.forget()
            self.connection.changed.notify_all()


def _parts(document: bytes, chunks: Iterable[memoryview] | None) -> Iterator[memoryview]:
    yield memoryview(document)
    yield from chunks or ()


def _version(opened: Opened) -> Version | None:
    if opened.lineage is None or opened.seq is None or opened.digest is None:
        return None
    return Version(opened.lineage, opened.seq, opened.digest, opened.step)
