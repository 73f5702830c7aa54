"""A sidecar's end of the local protocol in a thread of its own: a real server on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sync_runtime.local.link import LibraryLink
from sync_runtime.local.messages import Hello, Message
from sync_runtime.session.local_server import Admission, LocalLimits, LocalServer

T = TypeVar("T")
WAIT_S = 10.0


@dataclass
class RecordingHandler:
    """Keeps what libraries say, in order; data of one stream is joined."""

    said: list[Message | bytes] = field(default_factory=list)
    links: list[LibraryLink] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def admit(self, hello: Hello) -> Admission:
        """Lets everyone in."""
        return Admission("group", f"member-{hello.rank}", 7)

    async def attached(self, library: LibraryLink) -> None:
        """Notes it."""
        self._note(lambda: self.links.append(library))

    async def message(self, library: LibraryLink, message: Message) -> None:
        """Notes it."""
        self._note(lambda: self.said.append(message))

    async def data(self, library: LibraryLink, data: memoryview) -> None:
        """Joins it to what came before."""
        kept = bytes(data)
        with self.changed:
            if self.said and isinstance(self.said[-1], bytes):
                self.said[-1] += kept
            else:
                self.said.append(kept)
            self.changed.notify_all()

    async def detached(self, library: LibraryLink, reason: str) -> None:
        """Notes it."""
        self._note(lambda: self.gone.append(reason))

    def wait(self, until: Callable[[], object]) -> None:
        """Waits in the test's thread until something holds."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(until()), WAIT_S), "the other end did not come to it in time"

    def _note(self, change: Callable[[], None]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()


class ServerThread:
    """An event loop in a thread with a server in it."""

    def __init__(self, path: str, handler: Any, limits: LocalLimits | None = None) -> None:
        self.path, self.handler = path, handler
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sidecar", daemon=True)
        self._thread.start()
        self._server = LocalServer(path, handler, limits)
        try:
            self.call(self._server.start())
        except BaseException:
            self._stop()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and waits for it."""
        return self.start(coroutine).result(WAIT_S)

    def close(self) -> None:
        """Hangs up on everyone, as a sidecar that dies does."""
        if not self._loop.is_closed():
            self.call(self._server.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


@contextmanager
def serving(path: str, handler: Any, limits: LocalLimits | None = None) -> Iterator[ServerThread]:
    """A server for the length of a block."""
    server = ServerThread(path, handler, limits)
    try:
        yield server
    finally:
        server.close()
