"""A publisher's conversation with its sidecar: opening, publishing, going on after either end was lost.

States: not connected; connected; open. Live weights are read by the thread that publishes alone, at moments when they
stand still; what the background thread does needs none of them. Knows nothing of how weights are coded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from sync_runtime.errors import LocalError, LocalProtocolError, SidecarLostError, SyncError, WrongBaseError
from sync_runtime.library.coders import Encoded, PublishCoder
from sync_runtime.library.connection import Connection
from sync_runtime.library.shards import part_of
from sync_runtime.library.version import Version
from sync_runtime.library.weights import Weights
from sync_runtime.local.channel import Channel
from sync_runtime.local.faults import to_message
from sync_runtime.local.messages import (
    Anchor,
    Blocks,
    Close,
    Closed,
    End,
    Hello,
    Histograms,
    Message,
    Open,
    Opened,
    Part,
    Publish,
    Published,
    Tables,
)
from sync_runtime.local.ranges import from_ranges
from sync_runtime.tensors.layout import Layout

_log = logging.getLogger(__name__)
ANSWER_TIMEOUT_S = 600.0
"""The longest that one version may take to become durable; a sidecar that died is noticed at once."""
CLOSE_SLACK_S = 5.0
FAREWELL_S = 0.5
"""How long one of several ranks waits to hear why its sidecar hung up."""
MIN_RANKS_WAIT_S = 0.5
"""The shortest that a rank waits for the others when it opens."""


class PublishSession:
    """One publisher. `version` is the last that is durable."""

    def __init__(self, weights: Weights, coder: PublishCoder, socket: str, hello: Hello) -> None:
        self._weights, self._coder = weights, coder
        self.version: Version | None = None
        self._needs_opening = True
        self._closed = False
        self._ranks = hello.world_size
        self._part: Part | None = part_of(weights.holding) if self._ranks > 1 else None
        self._publishing = threading.Lock()
        self._connection = Connection(socket, hello, self)

    @property
    def layout(self) -> Layout:
        """What both ends agree on."""
        return self._weights.layout

    def open(self, timeout_s: float) -> None:
        """Waits for a sidecar and opens; the background thread ends where that fails."""
        self._connection.start()
        deadline, was_there = time.monotonic() + timeout_s, False
        try:
            while not self._connection.is_open:
                rest_s = deadline - time.monotonic()
                self._check_alone(timeout_s, is_alone=was_there and rest_s <= 0)
                self._connection.wait_connected(max(0.0, rest_s))
                was_there = True
                with self._connection.streaming, suppress(SidecarLostError):  # it died again: wait for the next one
                    self._open_fully(rest_s)
        except BaseException:
            self._connection.close()
            raise

    def publish(self, step: int | None, label: str, patience_s: float) -> Version:
        """A version of the weights as they are."""
        connection = self._connection
        connection.check_process()
        if self._closed:
            raise LocalError("this publisher was closed: make a new one")
        with self._publishing, connection.streaming:
            request = Publish(step, label, "fast")
            channel = self._sent_channel(request, patience_s)
            try:
                done = connection.answer(channel, request, Published, ANSWER_TIMEOUT_S)
            except SidecarLostError as error:
                farewell = connection.farewell(channel, FAREWELL_S) if self._ranks > 1 else None
                raise _lost(error, farewell) from error
            share = self._share_of(done.digest)
            self.version = version = Version(done.lineage, done.seq, done.digest, step)
            try:
                if connection.replies.recode:
                    self._send_tight(channel, replace(request, codec="tight"))
            finally:
                self._coder.published(share)
            return version

    def _sent_channel(self, request: Publish, patience_s: float) -> Channel:
        """Sends the version, and once more to the next sidecar where the first was gone before it had all of it.

        A sidecar that dies is not noticed before the first word to it. A version without its end is no version, so
        sending it again is safe; after its end only opening anew can tell. Several ranks open again together.
        """
        deadline = time.monotonic() + patience_s
        while True:
            channel = self._opened_channel(max(0.0, deadline - time.monotonic()))
            self._connection.replies.recode = False
            try:
                self._send_version(channel, request, self._coder.encode)
            except SidecarLostError as error:
                farewell = self._connection.farewell(channel, FAREWELL_S)
                if self._ranks > 1:
                    raise _lost(error, farewell) from error
                if farewell is not None or time.monotonic() >= deadline:
                    raise
            else:
                return channel

    def _send_version(self, channel: Channel, request: Publish, encode: Callable[[], Encoded]) -> None:
        """One of several ranks begins before it encodes: where that fails, the others hear of it."""
        if self._ranks == 1:
            encoded = encode()
            self._connection.stream(channel, request, encoded.chunks, encoded.finish)
            return
        made: list[Encoded] = []

        def chunks() -> Iterator[memoryview]:
            made.append(encode())
            yield from made[0].chunks

        self._connection.stream(channel, request, chunks(), lambda: _finished(made))

    def _send_tight(self, channel: Channel, request: Publish) -> None:
        """The version once more, in fewer bytes. It is durable already: where this fails, links carry `fast`."""
        connection = self._connection
        try:
            tables = self._agreed_tables(channel) if self._ranks > 1 else None
            try:
                self._send_version(channel, request, lambda: self._coder.recode(tables))
            except SidecarLostError:
                raise
            except SyncError as error:
                if self._ranks == 1:
                    channel.send(to_message("RECODE", error))
                    return
                # It heard CANCEL. Its answer is waited for: what is sent next must not be taken for this version's.
            connection.answer(channel, request, Published, ANSWER_TIMEOUT_S)
        except SyncError as error:
            _log.info("version %s went out as fast alone: %s", request.step, error)

    def _agreed_tables(self, channel: Channel) -> bytes:
        """What all ranks' counts make, from the sidecar."""
        request = Histograms()

        def counts() -> Iterator[memoryview]:
            yield from self._coder.count()

        self._connection.stream(channel, request, counts())
        return bytes.fromhex(self._connection.answer(channel, request, Tables, ANSWER_TIMEOUT_S).tables)

    def close(self, drain_s: float) -> bool:
        """Hangs up after the last version is out, or after `drain_s`."""
        self._connection.check_process()
        with self._publishing:
            if self._closed:
                return False
            self._closed = True
            try:
                channel = self._connection.open_channel
                request = Close(int(drain_s * 1000))
                return self._connection.ask(channel, request, Closed, drain_s + CLOSE_SLACK_S).drained
            except SyncError:
                return False  # the versions are durable; the sidecar goes on delivering them if it lives
            finally:
                self._connection.close()

    def check(self) -> None:
        """Raises LocalError where the background thread has ended: nothing changes by itself any more."""
        self._connection.check_thread()

    def cut(self) -> None:
        """Hangs up at once: a publish that is under way, or waits for a sidecar, ends with an error."""
        self._connection.close()
        with self._connection.changed:
            self._connection.changed.notify_all()

    # --- the background thread -------------------------------------------------------------------------------------

    def connected(self) -> None:
        """The sidecar is back: goes on from the last version, without a look at weights that have gone on since."""
        with self._connection.streaming:
            if self._needs_opening:
                return
            try:
                channel, opened = self._resume()
            except WrongBaseError:
                self._needs_opening = True  # by the next publish, when weights stand still
                with self._connection.changed:
                    self._connection.changed.notify_all()
                return
            self._coder.resumed(replace(opened, digest=self._share_of(opened.digest)))
            self._go_on(channel, opened)

    def work(self, message: Message) -> bool:
        """Anchor blocks are all that a sidecar asks of a publisher."""
        if not isinstance(message, Blocks):
            raise LocalProtocolError(f"the sidecar sent {type(message).__name__} to a publisher")
        if not self._connection.streaming.acquire(blocking=False):
            return False  # a version is on its way
        try:
            self._send_anchor(message)
        finally:
            self._connection.streaming.release()
        return True

    def idle(self) -> None:
        """Nothing is due."""

    def lost(self) -> None:
        """Whoever waits was told already."""

    def _send_anchor(self, request: Blocks) -> None:
        channel, version = self._connection.channel, self.version
        try:
            if version is None:
                raise WrongBaseError("nothing has been published yet")
            blocks = from_ranges(request.blocks, self._weights.blocks.num_blocks)
            chunks = self._coder.anchor(version.seq, blocks)
        except SidecarLostError:
            raise
        except SyncError as error:
            channel.send(to_message("BLOCKS", error))
            return
        try:
            self._connection.stream(channel, Anchor(version.lineage, version.seq, request.blocks), chunks)
        except SidecarLostError:
            raise
        except SyncError:
            return  # the sidecar has no use for them any more and said so; it heard CANCEL

    # --- opening; callers hold `streaming` ---------------------------------------------------------------------------

    def _opened_channel(self, patience_s: float) -> Channel:
        """Waits for a sidecar, and opens anew where the last version cannot be continued."""
        deadline = time.monotonic() + patience_s
        while not self._connection.is_open:
            rest_s = max(0.0, deadline - time.monotonic())
            self._connection.streaming.release()  # the background thread opens too
            try:
                self._connection.wait_until(self._can_go_on, rest_s)
            except SidecarLostError:
                self._check_alone(patience_s, is_alone=self._connection.is_connected)
                raise
            finally:
                self._connection.streaming.acquire()
            if self._needs_opening and not self._connection.is_open:
                self._open_fully(deadline - time.monotonic())
        return self._connection.open_channel

    def _can_go_on(self) -> bool:
        return self._connection.is_open or (self._needs_opening and self._connection.is_connected)

    def _open_fully(self, rest_s: float) -> None:
        """With the weights; a rank waits for the others so long."""
        opening = self._coder.opening()
        timeout_s = ANSWER_TIMEOUT_S if self._ranks == 1 else max(MIN_RANKS_WAIT_S, rest_s)
        channel, request = self._send_open(opening.digests, resume=False, chunks=opening.chunks)
        try:
            opened = self._connection.answer(channel, request, Opened, timeout_s)
        except SidecarLostError as error:
            if self._ranks > 1:
                raise SidecarLostError(f"{error}; all {self._ranks} ranks must open") from error
            raise
        self._coder.opened(replace(opened, digest=self._share_of(opened.digest)))
        self._go_on(channel, opened)

    def _resume(self) -> tuple[Channel, Opened]:
        """Without weights. While other ranks are missing, whoever publishes is not kept waiting for the lock."""
        channel, request = self._send_open(self._coder.resuming(), resume=True)
        if self._ranks > 1:
            self._connection.streaming.release()
        try:
            return channel, self._connection.answer(channel, request, Opened, ANSWER_TIMEOUT_S)
        finally:
            if self._ranks > 1:
                self._connection.streaming.acquire()

    def _send_open(
        self, digests: tuple[str, ...], *, resume: bool, chunks: Iterable[memoryview] | None = None
    ) -> tuple[Channel, Open]:
        channel, document = self._connection.channel, self._weights.layout.document
        request = Open(len(document), chunks is not None, digests, resume)
        if self._part is not None:
            channel.send(self._part)

        def parts() -> Iterator[memoryview]:
            yield memoryview(document)
            yield from chunks or ()

        self._connection.stream(channel, request, parts())
        return channel, request

    def _share_of(self, digest: str | None) -> str:
        """What this rank's weights add to a version's digest: with one rank, all of it."""
        found = digest if self._ranks == 1 else self._connection.replies.share
        if found is None:
            raise LocalProtocolError("the sidecar did not say what this rank adds to the version's digest")
        return found

    def _check_alone(self, timeout_s: float, *, is_alone: bool) -> None:
        if is_alone and self._ranks > 1:
            raise SidecarLostError(
                f"not all of {self._ranks} ranks were there within {timeout_s:.3g} s: try again when they are back"
            )

    def _go_on(self, channel: Channel, opened: Opened) -> None:
        if opened.lineage is None or opened.seq is None or opened.digest is None:
            raise LocalProtocolError("the sidecar did not say which version the publisher goes on from")
        self.version = Version(opened.lineage, opened.seq, opened.digest, opened.step)
        self._needs_opening = False
        self._connection.set_open(channel)


def _lost(error: SidecarLostError, farewell: SyncError | None) -> SidecarLostError:
    """What one of several ranks is told."""
    return error if farewell is None else SidecarLostError(f"{farewell}; all ranks open again")


def _finished(made: list[Encoded]) -> End:
    return made[0].finish()
