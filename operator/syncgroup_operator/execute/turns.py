"""Passes take turns: one works at a time, so that each is soon through.

All passes share one thread and mostly one API server. Sixteen that begin at once are all ready when the last one is;
one after the other, the first are ready early and the last one hardly later. A pass that waits for something slow, a
cluster that does not answer, loses its turn and goes on without: many may wait, few may work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

AT_ONCE: Final = 1
LONGEST_S: Final = 0.25


class Turns:
    """First come, first served."""

    def __init__(self, at_once: int = AT_ONCE, longest_s: float = LONGEST_S) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._longest_s = longest_s

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[Callable[[], None]]:
        """A turn, from its beginning to the end of the block; what is yielded ends it earlier."""
        await self._free.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._longest_s, end)
        try:
            yield end
        finally:
            timer.cancel()
            end()
