"""What the two sides ask of a store, and of the objects that go through it. Names only; nothing here acts.

A store knows keys and bytes, no versions. Keys are relative to the group's prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sync_runtime.bucket.keys import ObjectKey


@dataclass(frozen=True)
class Fetched:
    """Bytes with the tag under which the store knows this state of the key."""

    data: bytes | memoryview
    tag: str


class Objects(Protocol):
    """A store. Thread-safe. Every method raises StoreError; none tries again by itself."""

    def get(self, key: str, limit_bytes: int) -> Fetched:
        """What lies under a key; raises StoreMissingError, and StoreDamagedError above the limit, before reading it."""

    def get_if_changed(self, key: str, tag: str | None, limit_bytes: int) -> Fetched | None:
        """The same; None where the tag is still the one given."""

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Puts bytes, whole or not at all, in place of what was there."""

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        """Puts in place of exactly what has this tag (None: of nothing); the new tag. Raises StoreConflictError."""

    def remove(self, keys: Iterable[str]) -> None:
        """Removes; what is not there is no error."""

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that begin so. May be stale."""


class Offered(Protocol):
    """A whole object that can be put: a committed one of the spool is such."""

    @property
    def key(self) -> ObjectKey:
        """Its name."""

    @property
    def envelope(self) -> bytes:
        """Its signed manifest."""

    @property
    def num_buckets(self) -> int:
        """How many buckets it has."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """(offset, bytes, SHA-256) of a bucket."""
