"""The following side of a store: polls the pointer, fetches what leads on, keeps it in the spool (STORE.md, section 4).

It lists nothing. Which objects to fetch is `route`'s decision, when to poll its caller's. Not thread-safe but for the
threads it starts itself.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

from sync_runtime.bucket.keys import ObjectKey, check_manifest
from sync_runtime.bucket.manifest import MAX_ENVELOPE_BYTES, Manifest, open_envelope, parse_manifest
from sync_runtime.bucket.objects import BucketTable, KeptBucket
from sync_runtime.bucket.receiver import ObjectReceiver
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.errors import FormatError, SignatureError
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.signing import TrustedSigners
from sync_runtime.tensors.layout import MAX_DOCUMENT_BYTES
from sync_runtime.transport.object_store.errors import StoreDamagedError, StoreMissingError
from sync_runtime.transport.object_store.fences import Seen, is_news
from sync_runtime.transport.object_store.latest import Latest, utc_now
from sync_runtime.transport.object_store.names import bucket_path, layout_path, object_path
from sync_runtime.transport.object_store.patience import Patience, PatientObjects
from sync_runtime.transport.object_store.pointer import Line, Pointer, Row
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.seal import Seal
from sync_runtime.transport.object_store.uploads import settle

_TRIES_OF_A_BUCKET: Final = 2
Keep = Callable[[KeptBucket, memoryview], None]
"""Takes a proved bucket."""


class Shelf(Protocol):
    """Where objects are kept: a spool."""

    def receive(self, key: ObjectKey) -> ObjectReceiver:
        """Begins an object, or goes on with it."""

    def stored(self, key: ObjectKey) -> StoredObject | None:
        """A committed object."""

    def partial(self) -> tuple[ObjectKey, ...]:
        """Objects of which a part has arrived."""


@dataclass(frozen=True)
class ReadSettings:
    """How a reader uses its store."""

    streams: int = 32
    patience: Patience = field(default_factory=Patience)
    now: Callable[[], datetime.datetime] = utc_now


class StoreReader:
    """What one member follows. `seen` outlives it in its caller's fence file."""

    def __init__(
        self,
        store: Objects,
        group_uid: str,
        trusted: TrustedSigners,
        seal: Seal,
        *,
        seen: Seen | None = None,
        settings: ReadSettings | None = None,
    ) -> None:
        self._settings = settings or ReadSettings()
        self._store = PatientObjects(store, self._settings.patience)
        self._group_uid = group_uid
        self._trusted = trusted
        self._seal = seal
        self._latest = Latest(self._store, seal, trusted, self._settings.now)
        self._tag: str | None = None
        self._pool = ThreadPoolExecutor(max_workers=max(1, self._settings.streams), thread_name_prefix="store-get")
        self.seen = seen or Seen()
        self.pointer: Pointer | None = None
        self.old_copies = 0
        """Pointers that were older than the one accepted: a cache's, or a store that went back."""

    def close(self) -> None:
        """Ends its threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def poll(self) -> Pointer | None:
        """The pointer where it is news; None: nothing new, or nothing there yet. Raises FenceError, SyncError."""
        try:
            found = self._latest.read_if_changed(self._tag)
        except StoreMissingError:
            return None
        if found is None:
            return None
        self._tag = found.tag
        pointer = found.pointer
        if not is_news(pointer, self._group_uid, self.seen):
            self.old_copies += pointer.order < (self.seen.term, self.seen.revision)
            return None
        self.seen = Seen(pointer.term, pointer.incarnation, pointer.revision)
        self.pointer = pointer
        return pointer

    def layout(self, line: Line) -> bytes:
        """The layout of a line, by its hash."""
        path = layout_path(line.layout_place, line.layout_hash)
        document = self._get(path, MAX_DOCUMENT_BYTES)
        if hashlib.sha256(document).hexdigest() != line.layout_hash:
            raise StoreDamagedError(f"{path} is not the layout that its name promises")
        return document

    def fetch(self, pointer: Pointer, row: Row, shelf: Shelf) -> StoredObject:
        """An object of the pointer, whole and durable in the spool; what is there already is not fetched again.

        Raises StoreMissingError where it is gone (poll and plan anew), StoreDamagedError, SignatureError, StoreError;
        buckets that came stay.
        """
        known = shelf.stored(row.key)
        if known is not None:
            return known
        envelope, manifest = self.manifest(pointer, row)

        def begin() -> tuple[ObjectReceiver, list[int]]:
            receiver = shelf.receive(row.key)
            return receiver, receiver.check(manifest)

        # What begins on a disk takes as long as a request: where nothing has come yet, both begin together.
        has_part = row.key in shelf.partial()
        beginning = self._pool.submit(begin)
        missing = beginning.result()[1] if has_part else range(len(manifest.buckets))

        def keep(bucket: KeptBucket, data: memoryview) -> None:
            receiver, _ = beginning.result()
            receiver.put(bucket.index, bucket.offset, data, bucket.sha256, is_verified=True)

        self.fetch_buckets(row, manifest, missing, keep)
        return beginning.result()[0].commit(envelope)

    def manifest(self, pointer: Pointer, row: Row) -> tuple[bytes, Manifest]:
        """The signed manifest of an object, as it lies there and as it reads; raises as `fetch` does."""
        envelope = self._envelope(pointer, row)
        return envelope, self._checked(pointer, row, envelope)

    def fetch_buckets(self, row: Row, manifest: Manifest, indices: Iterable[int], keep: Keep) -> None:
        """Buckets of an object, in parallel, each proved by its hash before it is handed over, in some thread."""
        table = BucketTable(manifest.buckets)
        settle([self._pool.submit(self._fetch_bucket, row, table[index], keep) for index in indices])

    def _envelope(self, pointer: Pointer, row: Row) -> bytes:
        line = pointer.lines[0]
        if pointer.manifest and line.links and row == line.links[-1]:
            return pointer.manifest
        return self._get(object_path(row.place, row.key), MAX_ENVELOPE_BYTES)

    def _checked(self, pointer: Pointer, row: Row, envelope: bytes) -> Manifest:
        document, signature = open_envelope(envelope)
        try:
            self._trusted.verify(document, signature, self._settings.now())
        except IdentityError as error:
            raise SignatureError(f"the manifest of {row.key} in the store cannot be trusted: {error}") from error
        manifest = parse_manifest(document)
        check_manifest(row.key, manifest)
        _check_versions(pointer, row, manifest)
        return manifest

    def _fetch_bucket(self, row: Row, bucket: KeptBucket, keep: Keep) -> None:
        path = bucket_path(row.place, row.key, self._seal.bucket_name(bucket.sha256))
        trouble: StoreDamagedError | None = None
        for _ in range(_TRIES_OF_A_BUCKET):
            try:
                data = memoryview(self._opened(path, bucket.size_bytes))
            except StoreDamagedError as error:
                trouble = error
                continue
            if hashlib.sha256(data).digest() == bucket.sha256:
                keep(bucket, data)
                return
        raise StoreDamagedError(f"{path} is damaged in the store: {trouble or 'it has another hash'}")

    def _get(self, path: str, limit_bytes: int) -> bytes:
        return bytes(self._opened(path, limit_bytes))

    def _opened(self, path: str, limit_bytes: int) -> bytes | memoryview:
        """As it came where it is not sealed: buckets are not copied once more."""
        fetched = self._store.get(path, limit_bytes + self._seal.overhead_bytes)
        return self._seal.open(path, fetched.data)


def _check_versions(pointer: Pointer, row: Row, manifest: Manifest) -> None:
    """The manifest must join the very states that the pointer names; raises FormatError."""
    digests = {(line.lineage, version.seq): version.digest for line in pointer.lines for version in line.versions}
    ends = [(row.key.target, manifest.target)]
    if row.key.base is not None and manifest.base is not None:
        ends.append((row.key.base, manifest.base))
    for ref, version in ends:
        if digests.get((ref.lineage, ref.seq)) != version.digest:
            raise FormatError(f"the manifest of {row.key} speaks of another version {ref.seq} than the pointer does")
