"""Staged versions on their way in: streams become layers, layers are folded under the lock of their owner.

Runs in the background thread, beside an engine that generates; live weights are only read, but for whole weights that
come to a member out of service. An activation that is under way is let past: folding never blocks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sync_runtime.errors import LocalProtocolError, SidecarLostError, SyncError
from sync_runtime.library.coders import Receiver, StageCoder
from sync_runtime.library.connection import Connection
from sync_runtime.library.staging import Staging
from sync_runtime.library.version import Version
from sync_runtime.local.faults import to_message
from sync_runtime.local.messages import Cancel, Data, End, Share, Stage, Staged

TURN_S = 0.005
"""Between two looks at whether an activation is over."""


class Intake:
    """One subscriber's streams, one after the other."""

    def __init__(
        self, connection: Connection, coder: StageCoder, staging: Staging, is_activating: Callable[[], bool]
    ) -> None:
        self._connection, self._coder, self._staging = connection, coder, staging
        self._is_activating = is_activating
        self.is_telling = False
        """A version is staged that the sidecar has not been told of: it would refuse to let it be activated."""
        self.reset()

    def reset(self) -> None:
        """Forgets a stream that its sidecar will not end."""
        self._stage: Stage | None = None
        self._receiver: Receiver | None = None
        self._began_ns = 0

    def take(self, message: Stage | Data | End | Cancel) -> None:
        """The next part of a stream."""
        if isinstance(message, Stage):
            self._begin(message)
        elif isinstance(message, Data):
            self._feed(message)
        else:
            self._end(complete=isinstance(message, End))

    def _begin(self, stage: Stage) -> None:
        if self._stage is not None:
            raise LocalProtocolError("the sidecar began a stream inside another one")
        self._stage, self._began_ns = stage, time.perf_counter_ns()
        try:
            with self._connection.changed:
                self._staging.check(stage)
                if stage.base is None:
                    self._staging.replace_live()
            self._receiver = self._coder.receive(stage)
        except SidecarLostError:
            raise
        except SyncError as error:
            self._refuse(error)

    def _feed(self, data: Data) -> None:
        if self._stage is None:
            raise LocalProtocolError("the sidecar sent DATA without a stream")
        channel = self._connection.channel
        with channel.take(data) as part:
            if self._receiver is not None:
                try:
                    self._receiver.feed(part)
                except SidecarLostError:
                    raise
                except SyncError as error:
                    self._refuse(error)
        channel.done(data.size)

    def _end(self, *, complete: bool) -> None:
        stage, receiver = self._stage, self._receiver
        if stage is None:
            raise LocalProtocolError("the sidecar ended a stream that it had not begun")
        self._stage = self._receiver = None
        if receiver is None or not complete:
            return
        try:
            with self._connection.changed:
                base, under = self._staging.top, self._staging.folded
            self._add(stage, receiver.finish(base, under))
        except SidecarLostError:
            raise
        except SyncError as error:
            self._refuse(error)
            return
        try:
            self._tell(stage)
        finally:
            with self._connection.changed:
                self.is_telling = False
                self._connection.changed.notify_all()

    def _tell(self, stage: Stage) -> None:
        share = self._coder.share()
        if share is not None and not self._staging.is_repair(stage):
            self._connection.channel.send(Share(share))
        spent_us = (time.perf_counter_ns() - self._began_ns) // 1000
        self._connection.channel.send(Staged(stage.lineage, stage.seq, {"stage": spent_us}))

    def _add(self, stage: Stage, layer: Any) -> None:
        """Folds a version in; folding goes on beside an activation, and its result is used if nothing moved."""
        version, repair = Version(stage.lineage, stage.seq, stage.digest, stage.step), self._staging.is_repair(stage)
        while True:
            turn, below = self._staging.turn, self._staging.folded
            folded = layer
            if below is not None:
                folded = self._coder.fold(layer, below) if repair else self._coder.fold(below, layer)
            while self._is_activating():
                self._connection.pump(TURN_S)
            with self._connection.changed:
                if self._is_activating() or self._staging.turn != turn:
                    continue
                self._staging.check(stage)
                if repair:
                    self._staging.add_repair(layer, folded)
                else:
                    self._staging.add(version, layer, folded)
                self.is_telling = True
                self._connection.changed.notify_all()
                return

    def _refuse(self, error: SyncError) -> None:
        """Tells the sidecar; the rest of the stream is thrown away."""
        self._receiver = None
        self._connection.channel.send(to_message("STAGE", error))
