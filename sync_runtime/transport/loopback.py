"""A link inside one process, over the loopback interface: real sockets and real TLS, buckets in memory.

For trials, benchmarks and tests that want a link without a spool. Nothing of the sidecar uses it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sync_runtime.errors import SpoolError


class MemorySource:
    """An object in memory, cut into buckets of given sizes."""

    def __init__(self, data: bytes | memoryview, sizes: Sequence[int]) -> None:
        if sum(sizes) != len(data):
            raise SpoolError(f"buckets of {sum(sizes)} bytes in all do not make an object of {len(data)}")
        view = memoryview(data)
        self._buckets: list[tuple[int, memoryview, bytes]] = []
        offset = 0
        for size in sizes:
            piece = view[offset : offset + size]
            self._buckets.append((offset, piece, hashlib.sha256(piece).digest()))
            offset += size

    def __len__(self) -> int:
        return len(self._buckets)

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """(offset, bytes, SHA-256) of a bucket."""
        if not 0 <= index < len(self._buckets):
            raise SpoolError(f"there is no bucket {index}")
        return self._buckets[index]


@dataclass
class MemoryObject:
    """What has arrived of an object."""

    buckets: dict[int, tuple[int, bytes, bytes]] = field(default_factory=dict)
    """By index: offset, bytes, SHA-256."""

    @property
    def data(self) -> bytes:
        """All of it, in order; gaps are closed up."""
        return b"".join(data for _, data, _ in sorted(self.buckets.values(), key=lambda bucket: bucket[0]))

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """A bucket that is there: a relay's source."""
        if index not in self.buckets:
            raise SpoolError(f"bucket {index} is not there")
        offset, data, sha256 = self.buckets[index]
        return offset, memoryview(data), sha256


class MemorySink:
    """Keeps what arrives, by key; what is there stays there when a link breaks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, MemoryObject] = {}

    def put(self, *, transfer: int, key: str, index: int, offset: int, data: memoryview, sha256: bytes) -> bool:
        """Keep a bucket; False if it was there."""
        with self._lock:
            kept = self._objects.setdefault(key, MemoryObject())
            if index in kept.buckets:
                return False
            kept.buckets[index] = (offset, bytes(data), sha256)
        return True

    def object(self, key: str) -> MemoryObject:
        """What is there of an object."""
        with self._lock:
            return self._objects.setdefault(key, MemoryObject())

    def have(self, key: str) -> list[list[int]]:
        """The indices that are there, as [from, to) ranges for WANT."""
        with self._lock:
            kept = self._objects.get(key)
            return [list(pair) for pair in _ranges(sorted(kept.buckets))] if kept else []

    def forget(self, key: str) -> None:
        """Drop an object."""
        with self._lock:
            self._objects.pop(key, None)


def missing(num_buckets: int, have: Iterable[Sequence[int]]) -> list[int]:
    """The indices of an object that are in none of the ranges."""
    there = {index for start, end in have for index in range(start, min(end, num_buckets))}
    return [index for index in range(num_buckets) if index not in there]


def _ranges(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    start = end = None
    for index in indices:
        if index != end:
            if start is not None and end is not None:
                yield start, end
            start = index
        end = index + 1
    if start is not None and end is not None:
        yield start, end
