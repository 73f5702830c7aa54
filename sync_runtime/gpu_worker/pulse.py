"""Signs of life for an owner: the worker is there, and whether something takes far longer than it ever did.

A process that hangs sends none. One whose GPU hangs still does: it names the request that does not end, so that the
owner can report it; a slow request is never cut short. Knows no sockets and no tensors.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sync_runtime.library.export_messages import Beat

BEAT_S = 5.0
SLOW_S = 30.0
SLOW_FACTOR = 10.0
"""A request is told of when it takes so many times the longest of its kind so far, and SLOW_S at least."""


class Pulse:
    """What is under way for one owner, since when, and how long the like of it took."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._began_s: dict[int, tuple[str, float]] = {}
        self._longest_s: dict[str, float] = {}

    @contextmanager
    def under_way(self, request: str) -> Iterator[None]:
        """Around a request, by its name."""
        with self._lock:
            number, began_s = next(self._numbers), self._clock_s()
            self._began_s[number] = request, began_s
        try:
            yield
        finally:
            with self._lock:
                del self._began_s[number]
                self._longest_s[request] = max(self._longest_s.get(request, 0.0), self._clock_s() - began_s)

    def beat(self) -> Beat:
        """The next sign of life."""
        with self._lock:
            now_s = self._clock_s()
            for request, began_s in self._began_s.values():  # the oldest first
                took_s = now_s - began_s
                if took_s > max(SLOW_S, SLOW_FACTOR * self._longest_s.get(request, 0.0)):
                    return Beat(request, int(took_s * 1000))
        return Beat(None, 0)
