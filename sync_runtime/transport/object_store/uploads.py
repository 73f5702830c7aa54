"""Puts whole objects into a place: buckets in parallel, the manifest last. Remembers what is there.

A thread per stream; the store's own threads are its business. Knows no pointer.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.manifest import Manifest, open_envelope, parse_manifest
from sync_runtime.transport.object_store.names import bucket_path, layout_path, object_path
from sync_runtime.transport.object_store.pointer import Row
from sync_runtime.transport.object_store.ports import Objects, Offered
from sync_runtime.transport.object_store.seal import Seal


class Uploads:
    """What one process puts below its place. Thread-safe."""

    def __init__(self, store: Objects, seal: Seal, place: str, *, streams: int) -> None:
        self.place = place
        self._store = store
        self._seal = seal
        self._pool = ThreadPoolExecutor(max_workers=max(1, streams), thread_name_prefix="store-put")
        self._lock = threading.Lock()
        self._layouts: set[str] = set()
        self._put: dict[ObjectKey, Row] = {}

    def close(self) -> None:
        """Waits for nothing that has not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def put_layout(self, layout_hash: str, document: bytes) -> None:
        """Puts a layout, once."""
        with self._lock:
            if layout_hash in self._layouts:
                return
        path = layout_path(self.place, layout_hash)
        self._store.put(path, self._seal.close(path, document))
        with self._lock:
            self._layouts.add(layout_hash)

    def put(self, offered: Offered) -> Row:
        """Puts an object, whole when this returns. One that failed can be put again. Raises StoreError."""
        with self._lock:
            known = self._put.get(offered.key)
        if known is not None:
            return known
        envelope = offered.envelope
        manifest = parse_manifest(open_envelope(envelope)[0])
        self._put_buckets(offered)
        path = object_path(self.place, offered.key)
        self._store.put(path, self._seal.close(path, envelope))
        row = Row(offered.key, manifest.size_bytes, self.place)
        with self._lock:
            self._put[offered.key] = row
        return row

    def forget(self, key: ObjectKey) -> None:
        """The object is about to be removed."""
        with self._lock:
            self._put.pop(key, None)

    def _put_buckets(self, offered: Offered) -> None:
        waiting = [self._pool.submit(self._put_bucket, offered, index) for index in range(offered.num_buckets)]
        settle(waiting)

    def _put_bucket(self, offered: Offered, index: int) -> None:
        _, data, sha256 = offered.read(index)
        path = bucket_path(self.place, offered.key, self._seal.bucket_name(sha256))
        self._store.put(path, self._seal.close(path, data))


def paths_of(seal: Seal, place: str, key: ObjectKey, manifest: Manifest) -> tuple[str, ...]:
    """All keys of an object in the store, in the order in which they go: its manifest first."""
    names = {seal.bucket_name(bytes.fromhex(bucket.sha256)): None for bucket in manifest.buckets}
    return (object_path(place, key), *(bucket_path(place, key, name) for name in names))


def settle(waiting: list[Future[None]]) -> None:
    """Waits for all; the first failure calls off what has not begun, and is raised when the rest has ended."""
    done, left = wait(waiting, return_when=FIRST_EXCEPTION)
    for future in left:
        future.cancel()
    wait(left)
    for future in done:
        future.result()
