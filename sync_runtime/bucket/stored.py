"""A committed object: found by its key, read bucket by bucket or as a whole, removed.

In memory it is a few numbers and hashes; bytes and envelope stay on the disk. It can be read for as long as somebody
holds it, also after it was evicted: the last thing before the unlink is to keep its file open.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

from sync_runtime.bucket.durable import Folder
from sync_runtime.bucket.keys import ObjectKey, check_manifest
from sync_runtime.bucket.manifest import MAX_ENVELOPE_BYTES, Manifest, Version, open_envelope, parse_manifest
from sync_runtime.bucket.names import data_name, journal_name, manifest_name
from sync_runtime.bucket.objects import BucketTable, DataFile
from sync_runtime.errors import SpoolCorruptError, SpoolError

SMALL_ENVELOPE_BYTES = 64 << 10
"""Up to this an envelope stays in memory: every child is sent it."""


@dataclass(frozen=True)
class ObjectFacts:
    """What an index needs to know of an object."""

    key: ObjectKey
    base: Version | None
    target: Version
    layout_hash: str
    label: str
    size_bytes: int
    num_changed: int
    """Changed elements; in an anchor all elements."""
    stored_unix_ns: int
    """When it was committed here, by the wall clock: for people, never for decisions."""


class StoredObject:
    """An object with a durable manifest. Thread-safe."""

    def __init__(self, folder: Folder, key: ObjectKey, envelope: bytes, *, proven: bool) -> None:
        """Takes an envelope from anywhere and checks it against key and file; raises SyncError.

        `proven`: the bytes were verified in this process. Otherwise each bucket is, when it is first read.
        """
        document, _ = open_envelope(envelope)
        manifest = parse_manifest(document)
        check_manifest(key, manifest)
        self._folder = folder
        self._table = BucketTable(manifest.buckets)
        self._envelope_hash = hashlib.sha256(envelope).digest()
        self._small_envelope = envelope if len(envelope) <= SMALL_ENVELOPE_BYTES else None
        self._pinned: tuple[DataFile, bytes] | None = None
        self._evicted = False
        self._lock = threading.Lock()
        self._unproven = set[int]() if proven else set(range(len(self._table)))
        self.facts = ObjectFacts(
            key=key,
            base=manifest.base,
            target=manifest.target,
            layout_hash=manifest.layout_hash,
            label=manifest.label,
            size_bytes=manifest.size_bytes,
            num_changed=manifest.num_changed,
            stored_unix_ns=folder.modified_unix_ns(manifest_name(key)),
        )
        if self._open().size_bytes != manifest.size_bytes:
            raise SpoolCorruptError(f"the file of {key} does not have the {manifest.size_bytes} bytes of its manifest")

    @property
    def key(self) -> ObjectKey:
        """Its name."""
        return self.facts.key

    @property
    def size_bytes(self) -> int:
        """Bytes of the object."""
        return self.facts.size_bytes

    @property
    def num_buckets(self) -> int:
        """How many buckets it has."""
        return len(self._table)

    @property
    def path(self) -> str:
        """Where its bytes lie, for people."""
        return str(self._folder.path / data_name(self.key))

    @property
    def envelope(self) -> bytes:
        """The signed manifest, as it came."""
        if self._small_envelope is not None:
            return self._small_envelope
        with self._lock:
            if self._pinned is not None:
                return self._pinned[1]
            return self._read_envelope()

    @property
    def manifest(self) -> Manifest:
        """The manifest, read from the disk: it can be large."""
        return parse_manifest(open_envelope(self.envelope)[0])

    def view(self) -> memoryview:
        """All bytes, mapped; proven before they are given out."""
        for index in sorted(self._unproven):
            self.read(index)
        return self._open().map(0, self.size_bytes)

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        """(offset, bytes, SHA-256) of a bucket; raises SpoolCorruptError where the disk lost it."""
        bucket = self._table[index]
        data = self._open().map(bucket.offset, bucket.size_bytes)
        if index in self._unproven:
            if hashlib.sha256(data).digest() != bucket.sha256:
                raise SpoolCorruptError(f"bucket {index} of {self.key} is damaged on the disk: fetch the object again")
            self._unproven.discard(index)
        return bucket.offset, data, bucket.sha256

    def evict(self) -> None:
        """Removes the files, manifest first: a death in between leaves nothing visible. Readers go on reading.

        Not synced: whatever a power failure brings back is whole, or is found out when the spool opens.
        """
        with self._lock:
            if self._evicted:
                return
            self._evicted = True
            try:
                self._pinned = self._open_file(), self._read_envelope()
            except SpoolCorruptError:
                self._pinned = None  # damaged files can go too
            for name in (manifest_name(self.key), data_name(self.key), journal_name(self.key)):
                self._folder.remove(name)

    def _open(self) -> DataFile:
        with self._lock:
            return self._pinned[0] if self._pinned is not None else self._open_file()

    def _open_file(self) -> DataFile:
        return DataFile(self._folder.reopen(data_name(self.key)))

    def _read_envelope(self) -> bytes:
        envelope = self._folder.read(manifest_name(self.key), MAX_ENVELOPE_BYTES)
        if envelope is None or hashlib.sha256(envelope).digest() != self._envelope_hash:
            raise SpoolCorruptError(f"the manifest of {self.key} is gone from the disk or was altered")
        return envelope


def commit_object(
    folder: Folder, key: ObjectKey, data: DataFile, envelope: bytes, *, is_synced: bool = False
) -> StoredObject:
    """Makes a complete, verified object visible: its bytes durable first, its manifest last. All or nothing.

    `is_synced`: its bytes are durable already; asking a disk twice makes it flush twice.
    """
    manifest = parse_manifest(open_envelope(envelope)[0])
    check_manifest(key, manifest)
    if data.size_bytes != manifest.size_bytes:
        raise SpoolError(f"{key} has {data.size_bytes} bytes, its manifest speaks of {manifest.size_bytes}")
    if not is_synced:
        data.sync()
    try:
        folder.replace(manifest_name(key), envelope)
        stored = StoredObject(folder, key, envelope, proven=True)
    except SpoolError:
        folder.remove(manifest_name(key))  # renamed but perhaps not durable: it must not come back
        raise
    folder.remove(journal_name(key))
    return stored
