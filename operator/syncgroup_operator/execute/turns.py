"""Passes take turns: one works at a time, so that each is soon through.

All passes share one thread and mostly one API server. Sixteen that begin at once are all ready when the last one is;
one after the other, the first are ready early and the last one hardly later. A pass that waits for something slow, a
cluster that does not answer, loses its turn and goes on without: many may wait, few may work. What a user asked for
goes before what was merely seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

AT_ONCE: Final = 1
LONGEST_S: Final = 0.25
SHORT_S: Final = 0.05
"""How long a turn lasts while something urgent waits: some requests to an API server at ease."""


class _Turn:
    """Somebody's, until it is over or its time is."""

    def __init__(self, over: Callable[[_Turn], None], longest_s: float, short_s: float, hurry: Callable[[], bool]):
        loop = asyncio.get_running_loop()
        self._over, self._hurry = over, hurry
        self._short_until_s = loop.time() + short_s
        self._timers = (loop.call_later(longest_s, self.end), loop.call_later(short_s, self.yield_to_urgent))
        self._is_over = False

    def end(self) -> None:
        """Once; later calls do nothing."""
        if not self._is_over:
            self._is_over = True
            for timer in self._timers:
                timer.cancel()
            self._over(self)

    def yield_to_urgent(self) -> None:
        """Ends, if it had its time and something urgent waits."""
        if self._hurry() and asyncio.get_running_loop().time() >= self._short_until_s:
            self.end()


class Turns:
    """First come, first served, the urgent ones first."""

    def __init__(self, at_once: int = AT_ONCE, longest_s: float = LONGEST_S, short_s: float = SHORT_S) -> None:
        self._free = at_once
        self._longest_s = longest_s
        self._short_s = min(short_s, longest_s)
        self._held: list[_Turn] = []
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def taken(self, *, urgent: bool = False) -> AsyncIterator[Callable[[], None]]:
        """A turn, from its beginning to the end of the block; what is yielded ends it earlier."""
        await self._acquire(urgent=urgent)
        turn = _Turn(self._give_back, self._longest_s, self._short_s, lambda: bool(self._urgent))
        self._held.append(turn)
        try:
            yield turn.end
        finally:
            turn.end()

    async def _acquire(self, *, urgent: bool) -> None:
        if self._free > 0:  # then nobody waits
            self._free -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._others).append(mine)
        if urgent and self._held:
            self._held[0].yield_to_urgent()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was handed over in the moment that nobody wanted it any more
                self._release()
            raise

    def _give_back(self, turn: _Turn) -> None:
        self._held.remove(turn)
        self._release()

    def _release(self) -> None:
        for line in (self._urgent, self._others):
            while line:
                mine = line.popleft()
                if not mine.done():
                    mine.set_result(None)
                    return
        self._free += 1
