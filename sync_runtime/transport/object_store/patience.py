"""The one place that asks a store again: same bytes, longer and longer pauses, an end (STORE.md, section 8).

Conditional puts are never repeated here: whoever makes them reads first.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sync_runtime.transport.object_store.errors import StoreDeniedError, StoreError
from sync_runtime.transport.object_store.ports import Fetched, Objects

T = TypeVar("T")


def may_pass(error: StoreError) -> bool:
    """Whether asking again in a moment can help. Not where it was refused: the adapter has read credentials again."""
    return error.retry_helps and not isinstance(error, StoreDeniedError)


@dataclass(frozen=True)
class Patience:
    """How long to ask again, and how often."""

    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    give_up_after_s: float = 60.0
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    stopped: Callable[[], bool] = lambda: False
    jitter: Callable[[], float] = field(default=random.random)

    @classmethod
    def until(cls, stopping: threading.Event) -> Patience:
        """The usual one, which ends at once when its owner does."""
        return cls(sleep=stopping.wait, stopped=stopping.is_set)

    def pauses(self) -> Iterator[float]:
        """Doubling, each at a random moment of its second half, so that many readers do not come together."""
        pause_s = self.first_pause_s
        while True:
            yield pause_s * (0.5 + 0.5 * self.jitter())
            pause_s = min(2 * pause_s, self.longest_pause_s)

    def attempts(self) -> Iterator[None]:
        """One turn for each try, with a pause before every one but the first, until the time is over."""
        ends_at = self.clock() + self.give_up_after_s
        for pause_s in self.pauses():
            yield
            if self.stopped() or self.clock() + pause_s > ends_at:
                return
            self.sleep(pause_s)
            if self.stopped():
                return


class PatientObjects:
    """A store that is asked again where that can help. Thread-safe."""

    def __init__(self, store: Objects, patience: Patience | None = None) -> None:
        self._store = store
        self._patience = patience or Patience()

    def get(self, key: str, limit_bytes: int) -> Fetched:
        """As the store's own."""
        return self._again(lambda: self._store.get(key, limit_bytes))

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        """As the store's own."""
        return self._again(lambda: self._store.get_if_changed(key, tag, limit_bytes))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """As the store's own: the same bytes under the same key can be put twice."""
        self._again(lambda: self._store.put(key, data))

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        """As the store's own, once."""
        return self._store.swap(key, data, tag)

    def remove(self, keys: Iterable[str]) -> None:
        """As the store's own."""
        wanted = list(keys)
        self._again(lambda: self._store.remove(wanted))

    def list(self, prefix: str) -> Iterator[str]:
        """As the store's own, whole: half a list and another half would be no list."""
        return iter(self._again(lambda: list(self._store.list(prefix))))

    def _again(self, act: Callable[[], T]) -> T:
        trouble: StoreError | None = None
        for _ in self._patience.attempts():
            try:
                return act()
            except StoreError as error:
                if not may_pass(error):
                    raise
                trouble = error
        raise trouble or StoreError("the store was not asked")
