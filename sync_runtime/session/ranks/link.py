"""Ranks together, as the one library that a session speaks with. What is said to it goes where its owner sends it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import replace

from sync_runtime.errors import LibraryLostError
from sync_runtime.local.messages import End, Hello, Message

Chunks = Iterable[bytes | memoryview] | AsyncIterable[bytes | memoryview]
Say = Callable[[Message], Awaitable[None]]
Stream = Callable[[Message, Chunks, End], Awaitable[None]]


class RanksLink:
    """A `Library` of several connections."""

    def __init__(self, hello: Hello, say: Say, hang_up: Callable[[], None], stream: Stream | None = None) -> None:
        self._hello = replace(hello, rank=0)
        self._say, self._hang_up, self._stream = say, hang_up, stream
        self._lost = False

    @property
    def hello(self) -> Hello:
        """What all ranks said of themselves."""
        return self._hello

    @property
    def is_lost(self) -> bool:
        """Whether a rank is gone, and the others with it."""
        return self._lost

    def lose(self) -> None:
        """A rank is gone."""
        self._lost = True

    async def send(self, message: Message) -> None:
        """Sends a message without a stream; raises LibraryLostError."""
        if self._lost:
            raise LibraryLostError("a rank of the user's program went away")
        await self._say(message)

    async def send_quietly(self, message: Message) -> None:
        """News that ranks which are gone do not need."""
        try:
            await self.send(message)
        except LibraryLostError:
            return

    async def stream(self, begin: Message, chunks: Chunks, end: End) -> None:
        """Sends a message and the bytes that follow it."""
        if self._stream is None or self._lost:
            raise LibraryLostError("a rank of the user's program went away, or takes no streams")
        await self._stream(begin, chunks, end)

    def hang_up(self) -> None:
        """Ends all connections; `detached` follows."""
        self._hang_up()
