"""Worker: a rollout's end of work leases. Tasks come in under the version that is live, results go out.

A client of its own sidecar, beside the subscriber; what it needs of that is a version, a scrub and a switch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from sync_runtime.errors import LocalError, SidecarLostError, SyncError, WorkError, WorkRefusedError
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.library.version import Version
from sync_runtime.library.work_client import FOREVER_S, WorkClient
from sync_runtime.local import work_messages as local

PATIENCE_S: Final = 60.0
_POLL_S: Final = 1.0
_EAGER_S: Final = 0.05
"""How long a wait for work may keep a switch to a new version waiting."""
_SCRUB_AGAIN_S: Final = 1.0
NO_VERSION: Final = local.VersionName("0" * 32, 0, "0" * 32, None)


class Engine(Protocol):
    """What a worker needs of its subscriber."""

    @property
    def version(self) -> Version | None:
        """What the weights are."""

    def activate(self) -> Version | None:
        """Switches to the newest version."""

    def scrub(self) -> bool:
        """Compares the weights with what they should be."""


@dataclass(frozen=True)
class Task:
    """A prompt group to be done, under the version that was live when it was handed out."""

    id: str
    payload: bytes
    samples: int
    version: Version
    lease: str
    worker: Worker
    connection: int

    def complete(self, payload: bytes, *, tokens: int = 0) -> None:
        """Hands the result over; the sidecar brings it to the trainer. Call it before the weights change.

        Raises `WorkRefusedError` where it cannot count any more: its lease ended, or other weights are live. The work
        is somebody's again then, and nothing is to be done about it here.

        Args:
            payload: whatever the trainer understands.
            tokens: how many were generated; work is split by tokens a second.
        """
        self.worker.complete(self, payload, tokens)

    def release(self, reason: str = "", *, failed: bool = False) -> None:
        """Gives it back, for another worker; `failed`: as one of its attempts."""
        self.worker.release(self, reason, failed=failed)


class Worker:
    """Takes prompt groups for a rollout worker.

        with Subscriber(model) as subscriber, Worker(subscriber) as worker:
            for task in worker.tasks(activate=True):
                text, tokens = generate(model, task.payload, task.samples)
                task.complete(text, tokens=tokens)

    Args:
        subscriber: whose version the work is done under.
        socket: the sidecar's socket; by default what `SYNCGROUP_SOCKET` says, else its place in every pod.
        scrub: whether every new version is scrubbed before the first task under it; results count only after one
            passed. False: you do that yourself (an engine of several ranks).
        timeout: seconds to wait for a sidecar when opening.
    """

    def __init__(
        self, subscriber: Engine, *, socket: str | None = None, scrub: bool = True, timeout: float = 60.0
    ) -> None:
        self._engine, self._scrubs = subscriber, scrub
        self._client = WorkClient(LibrarySettings.read(socket), "worker")
        self._scrubbed: Version | None = None
        self._scrub_from_s = 0.0
        """Not before: a scrub that failed is not repeated over and over while its repair is on the way."""
        self._open: dict[str, Task] = {}
        self._client.open(timeout)

    def tasks(self, timeout: float | None = None, *, activate: bool = False) -> Iterator[Task]:
        """Tasks, one after the other; waits for them, without end or until none came for `timeout` seconds.

        With `activate` it switches to the newest version between two tasks, and while it waits. Otherwise that is yours
        to do: between tasks, never in one.
        """
        while (task := self.take(timeout, activate=activate)) is not None:
            yield task

    def take(self, timeout: float | None = None, *, activate: bool = False) -> Task | None:
        """The next task; None: none came for `timeout` seconds."""
        end_s = time.monotonic() + (FOREVER_S if timeout is None else timeout)
        poll_s = _EAGER_S if activate else _POLL_S
        while True:
            rest_s = end_s - time.monotonic()
            version = self._ready(activate)
            if version is None:
                time.sleep(max(0.0, min(_EAGER_S, rest_s)))
            else:
                task = self._ask(version, max(0.0, min(poll_s, rest_s)))
                if task is not None:
                    return task
            if time.monotonic() >= end_s:
                return None

    def complete(self, task: Task, payload: bytes, tokens: int) -> None:
        """See `Task.complete`."""
        if not isinstance(payload, bytes):
            raise WorkError("a result's payload is no bytes: encode it, as JSON for instance")
        self._check(task)
        version = self._engine.version
        named = NO_VERSION if version is None else _named(version)
        request = local.Complete(task.lease, named, tokens, payload)
        try:
            answer = self._client.ask(request, local.Completed, PATIENCE_S, again=False)
        except SidecarLostError as error:
            self._open.pop(task.lease, None)
            raise WorkRefusedError(f"the sidecar went away, and task {task.id} with it: {error}") from error
        self._open.pop(task.lease, None)
        if not answer.taken:
            raise WorkRefusedError(f"the result of {task.id} does not count: {answer.reason}: {answer.message}")

    def release(self, task: Task, reason: str, *, failed: bool) -> None:
        """See `Task.release`."""
        if self._open.pop(task.lease, None) is None or task.connection != self._client.connections:
            return  # it is not ours any more
        with suppress(SidecarLostError):  # then it goes back by itself
            self._client.ask(local.Release(task.lease, reason[:256], failed), local.Released, PATIENCE_S, again=False)

    def close(self) -> None:
        """Gives back what is not complete, and hangs up."""
        with suppress(SyncError):
            for task in list(self._open.values()):
                self.release(task, "its worker was closed", failed=False)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self, activate: bool) -> Version | None:
        """The version that work can be done under; None: not now."""
        try:
            if activate:
                self._engine.activate()
            version = self._engine.version
            if version is not None and self._scrubs and version != self._scrubbed:
                self._scrub(version)
        except SyncError as error:
            # The sidecar is away, a repair is not staged yet, or whole weights are on their way: all of that passes.
            if error.retry_helps or self._engine.version is None:
                return None
            raise
        return version if version == self._scrubbed or not self._scrubs else None

    def _scrub(self, version: Version) -> None:
        if time.monotonic() < self._scrub_from_s:
            return
        self._scrubbed = version if self._engine.scrub() else None
        if self._scrubbed is None:
            self._scrub_from_s = time.monotonic() + _SCRUB_AGAIN_S

    def _ask(self, version: Version, wait_s: float) -> Task | None:
        request = local.Take(_named(version), int(wait_s * 1000))
        try:
            found = self._client.ask(request, local.Task, 0.0, wait_s=wait_s)
        except SidecarLostError:
            time.sleep(_EAGER_S)
            return None
        named = found.version
        if found.lease is None or named is None:
            return None
        made = Version(named.lineage, named.seq, named.digest, named.step)
        task = Task(found.id, found.payload, found.samples, made, found.lease, self, self._client.connections)
        self._open[task.lease] = task
        return task

    def _check(self, task: Task) -> None:
        if task.lease not in self._open:
            raise LocalError(f"task {task.id} was completed or released before")
        if task.connection != self._client.connections:
            del self._open[task.lease]
            raise WorkRefusedError(f"the sidecar was restarted, and task {task.id} is somebody else's now")


def _named(version: Version) -> local.VersionName:
    return local.VersionName(version.lineage, version.seq, version.digest, version.step)
