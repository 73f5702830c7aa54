"""How fast and how much at once we ask one API server.

A token bucket for the rate, a count for requests in flight, and a pause where the server asks for one. Waiting is
first come, first served, in two lanes: what is only told to people (status, Events) leaves most of a burst to what
is done. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_PAUSE_S: Final = 60.0
"""A server that asks for more is asked again after this, as a hostile one could stop us for ever."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one cluster's client may ask of its API server."""

    requests_per_s: float = 50.0
    burst: int = 100
    in_flight: int = 16
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    page_size: int = 250
    """Objects per page of a list: a page of pods is held in memory as a whole."""
    max_answer_bytes: int = 64 * 1024 * 1024


LEAST_WAIT_S: Final = 1e-6
"""Less is rounding."""
_RESERVED: Final = 0.75
"""Of a burst, for what is done: when a hundred members are lost at once, their successors come before the news."""


class TokenBucket:
    """`rate_per_s` on average, `burst` at once."""

    def __init__(self, rate_per_s: float, burst: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._reserve = float(int(burst * _RESERVED))
        self._clock_s = clock_s
        self._tokens = float(burst)
        self._filled_s = clock_s()
        self._paused_until_s = self._filled_s
        self._lanes = {news: asyncio.Lock() for news in (False, True)}  # each wakes its waiters in order

    def pause(self, seconds: float) -> None:
        """The server asks us to come later."""
        self._paused_until_s = max(self._paused_until_s, self._clock_s() + min(max(seconds, 0.0), MAX_PAUSE_S))

    async def take(self, *, news: bool = False) -> None:
        """Return when one more request is allowed; `news` is for people and waits until nothing else is pressing."""
        least = 1.0 + (self._reserve if news else 0.0)
        async with self._lanes[news]:
            while (wait_s := self._wait_s(least)) > LEAST_WAIT_S:  # noqa: ASYNC110 others take, too; a pause may come
                await asyncio.sleep(wait_s)
            self._tokens -= 1

    def _wait_s(self, least: float) -> float:
        now_s = self._clock_s()
        self._tokens = min(self._tokens + (now_s - self._filled_s) * self._rate_per_s, float(self._burst))
        self._filled_s = now_s
        return max((least - self._tokens) / self._rate_per_s, self._paused_until_s - now_s, 0.0)
