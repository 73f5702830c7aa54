"""An object that is being made here: its maker's bytes are cut, hashed and written; it exists when it is committed.

What is written can be sent at once. A writer that fails or is forgotten leaves nothing behind, not even after a crash:
data without journal and manifest are swept when the spool opens.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sync_runtime.bucket.durable import Folder
from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MAX_BUCKETS
from sync_runtime.bucket.manifest import Bucket, open_envelope, parse_manifest
from sync_runtime.bucket.names import data_name
from sync_runtime.bucket.objects import DataFile, DataSlot, KeptBucket
from sync_runtime.bucket.packer import Packer, tail_bytes
from sync_runtime.bucket.stored import StoredObject, commit_object
from sync_runtime.errors import LimitError, SpoolError

Done = Callable[[ObjectKey, StoredObject | None], None]
"""Tells the spool how it ended."""


class ObjectWriter:
    """One object on its way into the spool. One thread writes; any thread reads."""

    def __init__(
        self, folder: Folder, key: ObjectKey, *, layout_hash: str, bucket_bytes: int, streams: int, done: Done
    ) -> None:
        self.key = key
        self.layout_hash = layout_hash
        self._folder = folder
        self._done = done
        self._streams = streams
        self._packer = Packer(bucket_bytes, min(tail_bytes(bucket_bytes, streams), MAX_BUCKET_BYTES))
        self._kept: list[KeptBucket] = []
        self._size_bytes = 0
        self._open = True
        self._finished = False
        self._lock = threading.Lock()
        self._data = DataSlot(DataFile(folder.create(data_name(key))))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """What a manifest says of the buckets so far."""
        return tuple(Bucket(kept.size_bytes, kept.sha256.hex()) for kept in self._kept)

    @property
    def size_bytes(self) -> int:
        """Bytes in buckets so far."""
        return self._size_bytes

    def write(self, data: bytes | bytearray | memoryview) -> list[KeptBucket]:
        """Takes the next bytes; returns the buckets that became whole. A full disk ends the writer."""
        return self._keep(self._packer.add(data))

    def finish(self, streams: int | None = None) -> list[KeptBucket]:
        """The last buckets, shrinking for so many streams."""
        kept = self._keep(self._packer.finish(streams or self._streams))
        self._finished = True
        return kept

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """A bucket that was returned before."""
        if not 0 <= index < len(self._kept):
            raise SpoolError(f"bucket {index} of {self.key} is not written yet")
        kept = self._kept[index]
        return kept.offset, self._data.file.map(kept.offset, kept.size_bytes), kept.sha256

    def commit(self, envelope: bytes) -> StoredObject:
        """Makes it durable and visible; the manifest must name exactly the buckets that were written."""
        with self._all_or_nothing():
            if not self._finished:
                raise SpoolError(f"{self.key} cannot be committed before it is finished")
            manifest = parse_manifest(open_envelope(envelope)[0])
            if manifest.buckets != self.buckets or manifest.layout_hash != self.layout_hash:
                raise SpoolError(f"the manifest of {self.key} describes another object than was written")
            stored = commit_object(self._folder, self.key, self._data.file, envelope)
            self._open = False
        self._done(self.key, stored)
        return stored

    def abort(self) -> None:
        """Leaves nothing; does nothing after a commit. Safe to repeat."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._data.let_go()
        try:
            self._folder.remove(data_name(self.key))
        finally:
            self._done(self.key, None)

    def _keep(self, pieces: Iterable[bytes | memoryview]) -> list[KeptBucket]:
        with self._all_or_nothing():
            first = len(self._kept)
            for piece in pieces:
                self._keep_one(piece)
            return self._kept[first:]

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Whatever goes wrong inside ends the writer. The spool is told outside the lock: it has one of its own."""
        done = False
        try:
            with self._lock:
                self._check_open()
                yield
            done = True
        finally:
            if not done:
                self.abort()

    def _keep_one(self, piece: bytes | memoryview) -> None:
        if len(self._kept) >= MAX_BUCKETS:
            raise LimitError(f"an object has at most {MAX_BUCKETS} buckets: make them larger")
        self._data.file.write(piece, self._size_bytes)
        self._kept.append(KeptBucket(len(self._kept), self._size_bytes, len(piece), hashlib.sha256(piece).digest()))
        self._size_bytes += len(piece)

    def _check_open(self) -> None:
        if not self._open:
            raise SpoolError(f"{self.key} was committed or given up already")
