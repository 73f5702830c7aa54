"""The library's two sessions as an owner's connection uses them: one shape for publisher and subscriber."""

from __future__ import annotations

import threading
from typing import Protocol

import torch

from sync_runtime.errors import LocalProtocolError
from sync_runtime.gpu_worker.guard import GuardedCoder
from sync_runtime.gpu_worker.tensors import OwnedTensors
from sync_runtime.library import publisher, subscriber
from sync_runtime.library.export_messages import (
    Activate,
    Activated,
    Close,
    Closed,
    Hello,
    Publish,
    Published,
    Scrub,
    Scrubbed,
    State,
)
from sync_runtime.library.settings import LibrarySettings, PublishOptions, SubscribeOptions

SCRUB_TIMEOUT_S = 600.0
WATCH_S = 0.1
"""How often a state is looked at that nobody tells of."""
Request = Publish | Activate | Scrub | Close
Answer = Published | Activated | Scrubbed | Closed


class Session(Protocol):
    """What an owner's connection needs."""

    def open(self) -> None:
        """Waits for a sidecar; raises SyncError."""

    def answer(self, request: Request) -> Answer:
        """Does what the owner asks; raises SyncError."""

    def state(self) -> State:
        """What is known now."""

    def watch(self) -> None:
        """Waits a moment, or until something may have changed; raises LocalError where nothing ever will."""

    def note(self, tokens_per_second: int | None) -> None:
        """Figures for the report."""

    def close(self) -> None:
        """Hangs up on the sidecar."""


class PublisherSession:
    """For an owner that publishes."""

    def __init__(self, tensors: OwnedTensors, hello: Hello, settings: LibrarySettings) -> None:
        cast = None if hello.wire_dtype is None else getattr(torch, hello.wire_dtype)
        options = PublishOptions(cast, hello.coder, hello.host_snapshot, hello.rank, hello.world_size)
        self._timeout_s, self._patience_s = hello.timeout_ms / 1000, hello.patience_ms / 1000
        self._session = publisher.make_session(tensors, options, settings)
        self._woken = threading.Event()

    def open(self) -> None:
        """Takes the full digest."""
        self._session.open(self._timeout_s)

    def answer(self, request: Request) -> Answer:
        """Publishes, or closes."""
        if isinstance(request, Publish):
            return Published(request.id, self._session.publish(request.step, request.label, self._patience_s))
        if isinstance(request, Close):
            return Closed(request.id, self._session.close(request.drain_ms / 1000))
        raise LocalProtocolError(f"a publisher's owner sent {type(request).__name__}")

    def state(self) -> State:
        """The last durable version."""
        return State(self._session.version, None, stale=False, poisoned=False)

    def watch(self) -> None:
        """Only a lost sidecar changes anything by itself; raises LocalError where the session's thread has ended."""
        self._woken.wait(WATCH_S)
        self._session.check()

    def note(self, tokens_per_second: int | None) -> None:
        """A trainer has none."""
        del tokens_per_second

    def close(self) -> None:
        """Waits neither for members nor for a publish under way: its connection is cut, which wakes it up."""
        self._woken.set()
        self._session.cut()
        self._session.close(0.0)


class SubscriberSession:
    """For an owner that follows."""

    def __init__(self, tensors: OwnedTensors, hello: Hello, settings: LibrarySettings) -> None:
        options = SubscribeOptions(hello.coder, hello.auto_scrub, hello.rank, hello.world_size)
        self._timeout_s, self._patience_s = hello.timeout_ms / 1000, hello.patience_ms / 1000
        self._session = subscriber.make_session(tensors, options, settings, lambda coder: GuardedCoder(coder, tensors))

    def open(self) -> None:
        """Takes the full digest."""
        self._session.open(self._timeout_s)

    def answer(self, request: Request) -> Answer:
        """Activates, scrubs, or closes."""
        if isinstance(request, Activate):
            return Activated(request.id, self._session.activate(self._patience_s))
        if isinstance(request, Scrub):
            return Scrubbed(request.id, self._session.scrub(SCRUB_TIMEOUT_S))
        if isinstance(request, Close):
            self._session.close()
            return Closed(request.id, drained=True)
        raise LocalProtocolError(f"a subscriber's owner sent {type(request).__name__}")

    def state(self) -> State:
        """What is live, what is staged, what was found."""
        session = self._session
        return State(session.version, session.staging.staged, session.is_stale, session.staging.is_poisoned)

    def watch(self) -> None:
        """The session tells of changes; raises LocalError where its thread has ended."""
        with self._session.connection.changed:
            self._session.connection.changed.wait(WATCH_S)
            self._session.connection.check_thread()

    def note(self, tokens_per_second: int | None) -> None:
        """Figures for the member's report."""
        self._session.note(tokens_per_second)

    def close(self) -> None:
        """The weights stay as they are."""
        self._session.close()


def make(tensors: OwnedTensors, hello: Hello, settings: LibrarySettings) -> Session:
    """The session that an owner asked for; tensors were handed over."""
    kind = PublisherSession if hello.kind == "publisher" else SubscriberSession
    return kind(tensors, hello, settings)
