"""Which groups are due: deduplicated, one pass per group at a time, with delays and back-off.

A wake-up says only "look again"; ten of them before the look are one. A group that is woken during its own pass is
looked at once more after it. What is urgent goes before what was due earlier. Knows nothing of what a pass does.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACK_OFF_S: Final = 0.5
MAX_BACK_OFF_S: Final = 120.0
_JITTER: Final = 0.2


@dataclass(slots=True)
class _Entry:
    due_s: float | None = None
    """When the next pass is due; None: nothing to do."""
    running: bool = False
    failures: int = 0
    urgent: bool = False


class WorkQueue(Generic[Key]):
    """Keys that are due, each at most once."""

    def __init__(self, clock: Callable[[], float], jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._entries: dict[Key, _Entry] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._urgent: deque[Key] = deque()
        self._order = 0
        self._changed = asyncio.Event()
        self._closed = False

    def wake(self, key: Key, after_s: float = 0.0, *, urgent: bool = False) -> None:
        """Have a look at `key`, at the latest `after_s` from now; an earlier appointment stays.

        Urgent means now, and before all that is not: somebody waits for it.
        """
        entry = self._entries.setdefault(key, _Entry())
        due_s = self._clock() + after_s
        if urgent and not entry.urgent:
            entry.urgent = True
            if not entry.running:
                self._urgent.append(key)
                self._changed.set()
        if entry.due_s is not None and entry.due_s <= due_s:
            return
        entry.due_s = due_s
        if not entry.running:
            self._push(key, due_s)

    async def take(self) -> Key | None:
        """The next key that is due, now in work; None once closed."""
        while not self._closed:
            now_s = self._clock()
            key = self._pop_due(now_s)
            if key is not None:
                return key
            self._changed.clear()
            wait_s = self._heap[0][0] - now_s if self._heap else None
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue
        return None

    def done(self, key: Key, *, again_after_s: float | None = None) -> None:
        """The pass over `key` ended well; wake-ups during it, or `again_after_s`, lead to another."""
        self._finish(key, failed=False)
        if again_after_s is not None:
            self.wake(key, again_after_s)

    def failed(self, key: Key, *, at_least_s: float = 0.0) -> float:
        """The pass over `key` failed and is tried again; says after how long."""
        entry = self._entries[key]
        pause_s = min(FIRST_BACK_OFF_S * float(1 << min(entry.failures, 20)), MAX_BACK_OFF_S)
        pause_s = max(pause_s * (1 + _JITTER * (2 * self._jitter() - 1)), at_least_s)
        # Wake-ups that came meanwhile must not undo the pause: what they ask for happens in the next attempt.
        entry.due_s, entry.urgent = None, False
        self._finish(key, failed=True)
        self.wake(key, pause_s)
        return pause_s

    def forget(self, key: Key) -> None:
        """`key` is gone for good."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.due_s, entry.urgent = None, False
        if not entry.running:
            del self._entries[key]

    def close(self) -> None:
        """Whoever waits for a key gets None."""
        self._closed = True
        self._changed.set()

    @property
    def depth(self) -> int:
        """Keys that are due now and not in work."""
        now_s = self._clock()
        return sum(due_s <= now_s for due_s in self._waiting())

    @property
    def oldest_s(self) -> float:
        """How long the key that waits longest has been due."""
        now_s = self._clock()
        return max((now_s - due_s for due_s in self._waiting() if due_s <= now_s), default=0.0)

    def _waiting(self) -> list[float]:
        return [entry.due_s for entry in self._entries.values() if not entry.running and entry.due_s is not None]

    def _finish(self, key: Key, *, failed: bool) -> None:
        entry = self._entries[key]
        entry.running = False
        entry.failures = entry.failures + 1 if failed else 0
        if entry.due_s is not None:
            self._push(key, entry.due_s)
            if entry.urgent:
                self._urgent.append(key)
        elif not failed:
            del self._entries[key]

    def _push(self, key: Key, due_s: float) -> None:
        self._order += 1
        heapq.heappush(self._heap, (due_s, self._order, key))
        self._changed.set()

    def _pop_due(self, now_s: float) -> Key | None:
        while self._urgent:
            key = self._urgent.popleft()
            entry = self._entries.get(key)
            if entry is not None and entry.urgent and not entry.running:
                return self._begin(key, entry)
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            # Left behind by an earlier appointment, or by a key that was forgotten.
            if entry is None or entry.running or entry.due_s != due_s:
                continue
            return self._begin(key, entry)
        return None

    def _begin(self, key: Key, entry: _Entry) -> Key:
        entry.running, entry.due_s, entry.urgent = True, None, False
        return key
