"""What all objects of a spool share: kept buckets, the file that holds them, and reading them as others send them.

A bucket is read through a mapping of its own, made for the reader and gone with it: pages are never held, and a cold
one is fetched while the reader hashes or encrypts, not under the interpreter's lock. Knows no manifests and no keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sync_runtime.bucket.durable import disk_errors, write_at
from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MAX_BUCKETS
from sync_runtime.bucket.manifest import Bucket
from sync_runtime.errors import LimitError, SpoolCorruptError, SpoolError

_PAGE_BYTES = mmap.ALLOCATIONGRANULARITY
HASH_BYTES = 32
HURRY_BYTES = 1 << 20
"""Smaller writes are left to the kernel: it joins them to larger ones."""


@dataclass(frozen=True, slots=True)
class KeptBucket:
    """A bucket that is verified and written."""

    index: int
    offset: int
    size_bytes: int
    sha256: bytes


class BucketSource(Protocol):
    """Where a link finds the buckets it sends. Thread-safe; what it gave stays valid whatever becomes of the object."""

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """(offset in the object, bytes, SHA-256) of a bucket; raises SpoolError where it is not there."""


class DataFile:
    """An open file of an object. Its descriptor lives as long as anyone refers to it, also after an unlink."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        weakref.finalize(self, os.close, handle)

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Writes at an offset; raises SpoolFullError."""
        with disk_errors("writing an object"):
            write_at(self._handle, data, offset)

    def hurry(self, offset: int, size_bytes: int) -> None:
        """Lets the disk begin with what was just written; `sync` waits for the rest. Promises nothing, costs little.

        The advice asks for the pages to be written and then forgotten, and those that are being written are not
        forgotten: they stay in memory for whoever reads them next.
        """
        if size_bytes >= HURRY_BYTES:
            with contextlib.suppress(OSError):  # advice only: a file system may not take it
                os.posix_fadvise(self._handle, offset, size_bytes, os.POSIX_FADV_DONTNEED)

    def map(self, offset: int, size_bytes: int) -> memoryview:
        """A window of the file. The file only ever grows, so what lies in it now can always be read."""
        if offset + size_bytes > self.size_bytes:
            raise SpoolCorruptError("an object's file is shorter than what was written to it")
        if not size_bytes:
            return memoryview(b"")
        start = offset - offset % _PAGE_BYTES
        with disk_errors("mapping an object"):
            window = mmap.mmap(self._handle, offset + size_bytes - start, prot=mmap.PROT_READ, offset=start)
        return memoryview(window)[offset - start :]

    def reserve(self, size_bytes: int) -> None:
        """Takes the room for so many bytes, as zeros; raises SpoolFullError where there is not enough."""
        with disk_errors("taking room for a file"):
            os.posix_fallocate(self._handle, 0, size_bytes)

    def memory(self, size_bytes: int) -> mmap.mmap:
        """The file as memory that can be written. Reserve its room first: a write into a full disk ends the process."""
        with disk_errors("mapping a file"):
            return mmap.mmap(self._handle, size_bytes)

    def digest(self, offset: int, size_bytes: int) -> bytes | None:
        """SHA-256 of a range, read without mapping: the file may be shorter, then None."""
        found = hashlib.sha256()
        while size_bytes:
            with disk_errors("reading an object"):
                piece = os.pread(self._handle, min(size_bytes, 1 << 20), offset)
            if not piece:
                return None
            found.update(piece)
            offset, size_bytes = offset + len(piece), size_bytes - len(piece)
        return found.digest()

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        return os.fstat(self._handle).st_size

    def sync(self) -> None:
        """Makes it durable."""
        with disk_errors("syncing an object"):
            os.fsync(self._handle)


class DataSlot:
    """A file that its object may let go of: an unlinked file's room is free only when nobody holds it."""

    def __init__(self, file: DataFile) -> None:
        self._file: DataFile | None = file

    @property
    def file(self) -> DataFile:
        """The file; raises SpoolError where it was let go."""
        held = self._file
        if held is None:
            raise SpoolError("the object was given up; its bytes are gone")
        return held

    def let_go(self) -> None:
        """Gives the file's room back, but for what readers hold at this moment."""
        self._file = None


class BucketTable:
    """The buckets that a manifest names, small in memory: an object may have a million."""

    def __init__(self, buckets: Iterable[Bucket]) -> None:
        self._offsets = array("Q", [0])
        names = bytearray()
        for bucket in buckets:
            if not 0 < bucket.size_bytes <= MAX_BUCKET_BYTES:
                raise LimitError(f"a bucket has 1 to {MAX_BUCKET_BYTES} bytes, not {bucket.size_bytes}")
            self._offsets.append(self._offsets[-1] + bucket.size_bytes)
            names += bytes.fromhex(bucket.sha256)
        if len(self) > MAX_BUCKETS:
            raise LimitError(f"an object has at most {MAX_BUCKETS} buckets")
        self._names = bytes(names)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the object."""
        return self._offsets[-1]

    def __getitem__(self, index: int) -> KeptBucket:
        if not 0 <= index < len(self):
            raise SpoolError(f"the object has {len(self)} buckets, and none with number {index}")
        offset = self._offsets[index]
        name = self._names[index * HASH_BYTES : (index + 1) * HASH_BYTES]
        return KeptBucket(index, offset, self._offsets[index + 1] - offset, name)


class Extents:
    """Which ranges of a file are taken; finds overlaps."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    @property
    def end(self) -> int:
        """Where the last one ends."""
        return self._ends[-1] if self._ends else 0

    def fits(self, offset: int, size_bytes: int) -> bool:
        """Whether a range touches none of them."""
        at = bisect_left(self._starts, offset)
        before = at == 0 or self._ends[at - 1] <= offset
        return before and (at == len(self._starts) or offset + size_bytes <= self._starts[at])

    def add(self, offset: int, size_bytes: int) -> None:
        """Takes a range that fits."""
        at = bisect_left(self._starts, offset)
        self._starts.insert(at, offset)
        self._ends.insert(at, offset + size_bytes)

    def remove(self, offset: int) -> None:
        """Gives back the range that starts here."""
        at = bisect_left(self._starts, offset)
        del self._starts[at], self._ends[at]


def ranges_of(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as [from, to) ranges."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found
