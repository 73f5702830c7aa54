"""An object that is arriving: buckets in any order from several threads, kept across restarts, complete or not.

A bucket is hashed, written, then noted in the journal; after a restart the journal is believed only where the bytes
still have the hashes it names. The manifest comes last and decides: what it does not name is thrown away. Bytes and
numbers come from elsewhere and are hostile.
"""

from __future__ import annotations

import hashlib
import threading

from sync_runtime.bucket.durable import Folder
from sync_runtime.bucket.journal import (
    MAX_JOURNAL_BYTES,
    RECORD_BYTES,
    is_possible,
    pack_head,
    pack_journal,
    pack_record,
    parse_journal,
)
from sync_runtime.bucket.keys import ObjectKey, check_manifest
from sync_runtime.bucket.manifest import Manifest, open_envelope, parse_manifest
from sync_runtime.bucket.names import data_name, journal_name
from sync_runtime.bucket.objects import BucketTable, DataFile, DataSlot, Extents, KeptBucket, ranges_of
from sync_runtime.bucket.stored import StoredObject, commit_object
from sync_runtime.bucket.writer import Done
from sync_runtime.errors import DigestError, FormatError, LimitError, SpoolError


class ObjectReceiver:
    """One object on its way in from a parent. Thread-safe."""

    def __init__(self, folder: Folder, key: ObjectKey, *, done: Done, resumed: bool) -> None:
        self.key = key
        self._folder = folder
        self._done = done
        self._kept: dict[int, KeptBucket] = {}
        self._extents = Extents()
        self._kept_bytes = 0
        self._checked: Manifest | None = None
        self._expected: BucketTable | None = None
        self._committed = False
        self._open = True
        self._lost = False
        self._lock = threading.Lock()
        if resumed:
            self._resume()
        else:
            self._begin()

    def put(self, index: int, offset: int, data: memoryview, sha256: bytes, *, is_verified: bool = False) -> bool:
        """Keeps a bucket; False: had it already. `is_verified`: the caller has just hashed these very bytes.

        Raises DigestError where the bytes are not those of the hash, FormatError where the bucket cannot be part of
        this object, SpoolFullError where it cannot be kept; the others stay.
        """
        bucket = KeptBucket(index, offset, len(data), sha256)
        if not is_possible(bucket):
            raise LimitError(f"bucket {index} of {len(data)} bytes at {offset} is beyond the limits")
        if not is_verified and hashlib.sha256(data).digest() != sha256:
            raise DigestError(f"bucket {index} of {self.key} was damaged on its way")
        with self._lock:
            if self._committed and self._kept.get(index) == bucket:
                return False  # sent twice, and the second one came after the last
            self._check_open()
            if not self._is_new(bucket):
                return False
            file = self._data.file
            file.write(data, offset)
            self._note(bucket)
        file.hurry(offset, len(data))  # while the network brings the rest
        return True

    def have(self) -> list[tuple[int, int]]:
        """The kept buckets as [from, to) ranges."""
        with self._lock:
            return ranges_of(sorted(self._kept))

    @property
    def kept_bytes(self) -> int:
        """Bytes in kept buckets."""
        return self._kept_bytes

    @property
    def is_complete(self) -> bool:
        """Whether every bucket of the manifest that was checked last is kept."""
        with self._lock:
            return self._expected is not None and len(self._kept) == len(self._expected)

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """A kept bucket, for the children of a relay."""
        with self._lock:
            kept, data = self._kept.get(index), self._data.file
        if kept is None:
            raise SpoolError(f"bucket {index} of {self.key} has not arrived yet")
        return kept.offset, data.map(kept.offset, kept.size_bytes), kept.sha256

    def check(self, manifest: Manifest) -> list[int]:
        """Holds what arrived against the manifest; forgets what it does not name. Returns what is missing."""
        with self._lock:
            self._check_open()
            table = self._table_of(manifest)
            if len(self._kept) == len(table):
                return []
            return [index for index in range(len(table)) if index not in self._kept]

    def commit(self, envelope: bytes) -> StoredObject:
        """Makes the complete object durable and visible; raises SpoolError while a bucket is missing."""
        missing = self.check(parse_manifest(open_envelope(envelope)[0]))
        if missing:
            raise SpoolError(f"{len(missing)} buckets of {self.key} are missing")
        try:
            with self._lock:
                self._check_open()
                self._sync_data()
                # no room for its manifest: stays partial
                stored = commit_object(self._folder, self.key, self._data.file, envelope, is_synced=True)
                self._open, self._committed = False, True
        finally:
            if self._lost:
                self.abort()
        self._done(self.key, stored)
        return stored

    def abort(self) -> None:
        """Throws away what arrived; does nothing after a commit. Safe to repeat."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._data.let_go()
        try:
            for name in (journal_name(self.key), data_name(self.key)):
                self._folder.remove(name)
        finally:
            self._done(self.key, None)

    def close(self) -> None:
        """Takes no more; what arrived stays on the disk."""
        with self._lock:
            self._open = False

    def _sync_data(self) -> None:
        try:
            self._data.file.sync()
        except SpoolError:
            self._lost = True  # the kernel may call lost pages clean now: syncing again would prove nothing
            raise

    def _begin(self) -> None:
        """The journal first: data without one would be taken for a failed writer's."""
        self._folder.replace(journal_name(self.key), pack_head(self.key))
        try:
            self._open_journal()
            self._data = DataSlot(DataFile(self._folder.create(data_name(self.key))))
        except SpoolError:
            self._folder.remove(journal_name(self.key))
            raise

    def _resume(self) -> None:
        raw = self._folder.read(journal_name(self.key), MAX_JOURNAL_BYTES) or b""
        self._data = DataSlot(DataFile(self._folder.reopen(data_name(self.key), writable=True)))
        noted = parse_journal(raw, self.key)
        for bucket in {bucket.index: bucket for bucket in noted}.values():  # of one index the last note counts
            fits = self._extents.fits(bucket.offset, bucket.size_bytes)
            if fits and self._data.file.digest(bucket.offset, bucket.size_bytes) == bucket.sha256:
                self._add(bucket)
        self._rewrite_journal()

    def _table_of(self, manifest: Manifest) -> BucketTable:
        """The manifest's buckets; what it does not name is forgotten. A manifest that was seen costs nothing."""
        if manifest is self._checked and self._expected is not None:
            return self._expected
        check_manifest(self.key, manifest)
        table = BucketTable(manifest.buckets)
        self._checked, self._expected = manifest, table
        wrong = [kept for kept in self._kept.values() if kept.index >= len(table) or table[kept.index] != kept]
        if wrong:
            self._forget(wrong, table.size_bytes)
        return table

    def _is_new(self, bucket: KeptBucket) -> bool:
        before = self._kept.get(bucket.index)
        if before == bucket:
            return False
        if self._expected is not None:
            if bucket.index >= len(self._expected) or self._expected[bucket.index] != bucket:
                raise FormatError(f"bucket {bucket.index} is not the one that the manifest of {self.key} names")
        elif before is not None or not self._extents.fits(bucket.offset, bucket.size_bytes):
            raise FormatError(f"bucket {bucket.index} contradicts what arrived of {self.key} before")
        return True

    def _note(self, bucket: KeptBucket) -> None:
        self._journal.write(pack_record(bucket), self._journal_bytes)  # a torn one is overwritten by the next
        self._journal_bytes += RECORD_BYTES
        self._add(bucket)

    def _add(self, bucket: KeptBucket) -> None:
        self._kept[bucket.index] = bucket
        self._kept_bytes += bucket.size_bytes
        self._extents.add(bucket.offset, bucket.size_bytes)

    def _forget(self, wrong: list[KeptBucket], size_bytes: int) -> None:
        if self._extents.end > size_bytes:
            # Something lies behind the object's end. A file is never cut: a reader may have mapped it. So: a new one.
            self._kept.clear()
            self._kept_bytes = 0
            self._extents = Extents()
            self._folder.remove(data_name(self.key))
            self._data = DataSlot(DataFile(self._folder.create(data_name(self.key))))
        for bucket in wrong:
            if self._kept.pop(bucket.index, None) is not None:
                self._kept_bytes -= bucket.size_bytes
                self._extents.remove(bucket.offset)
        self._rewrite_journal()

    def _rewrite_journal(self) -> None:
        self._folder.replace(journal_name(self.key), pack_journal(self.key, self._kept.values()))
        self._open_journal()

    def _open_journal(self) -> None:
        self._journal = DataFile(self._folder.reopen(journal_name(self.key), writable=True))
        self._journal_bytes = self._journal.size_bytes

    def _check_open(self) -> None:
        if not self._open:
            raise SpoolError(f"{self.key} was committed or given up already")
