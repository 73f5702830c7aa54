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
LONGEST_S: Final = 0.05
"""Some requests to an API server at ease. Longer, and behind a busy one turns are what everybody waits for."""


class Turns:
    """First come, first served, the urgent ones first."""

    def __init__(self, at_once: int = AT_ONCE, longest_s: float = LONGEST_S) -> None:
        self._free = at_once
        self._longest_s = longest_s
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def taken(self, *, urgent: bool = False) -> AsyncIterator[Callable[[], None]]:
        """A turn, from its beginning to the end of the block; what is yielded ends it earlier."""
        await self._acquire(self._urgent if urgent else self._others)
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._release()

        timer = asyncio.get_running_loop().call_later(self._longest_s, end)
        try:
            yield end
        finally:
            timer.cancel()
            end()

    async def _acquire(self, line: deque[asyncio.Future[None]]) -> None:
        if self._free > 0:  # then nobody waits
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was handed over in the moment that nobody wanted it any more
                self._release()
            raise

    def _release(self) -> None:
        for line in (self._urgent, self._others):
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
