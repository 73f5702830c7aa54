"""The spool: a folder of objects that survives. One process owns it; its threads share it.

    lock  term  objects/<key>.data .journal .manifest  layouts/  signers/  lineages/

An object is visible when its manifest is durable, and not before. Where there is no room, SpoolFullError is raised and
nothing of the attempt stays. Moves bytes and checks hashes; knows neither the network nor what is in a block, and makes
no signatures.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sync_runtime.bucket.durable import TEMPORARY_PREFIX, Folder, disk_errors
from sync_runtime.bucket.keys import FAST, ObjectKey, VersionRef
from sync_runtime.bucket.limits import MAX_PARTIAL_OBJECTS
from sync_runtime.bucket.names import data_name, journal_name
from sync_runtime.bucket.objects import BucketSource, KeptBucket
from sync_runtime.bucket.receiver import ObjectReceiver
from sync_runtime.bucket.recovery import recover
from sync_runtime.bucket.registers import Lineages, Terms, layouts_in, signers_in
from sync_runtime.bucket.retention import Held, plan_retention
from sync_runtime.bucket.stored import StoredObject
from sync_runtime.bucket.versions import Lineage, VersionRecord, index_versions, unbroken_from
from sync_runtime.bucket.writer import ObjectWriter
from sync_runtime.errors import SpoolError, SpoolLockedError, SyncError

__all__ = ["BucketSource", "KeptBucket", "ObjectReceiver", "ObjectWriter", "Spool", "StoredObject"]

_LOCK_FILE = "lock"
DEFAULT_STREAMS = 4


class Spool:
    """An open spool. Thread-safe; no method waits for the network."""

    def __init__(self, root: Folder, lock: int, *, max_bytes: int, max_versions: int) -> None:
        """Use `open`."""
        self._root = root
        self._lock_handle = lock
        self._max_bytes = max_bytes
        self._max_versions = max_versions
        self._objects = root.below("objects")
        self._terms = Terms(root)
        self._layouts = layouts_in(root.below("layouts"))
        self._signers = signers_in(root.below("signers"))
        self._lineages = Lineages(root.below("lineages"))
        self._guard = threading.RLock()
        found = recover(self._objects)
        self._stored = {stored.key: stored for stored in found.stored}
        self._receivers = self._resume(found.partial)
        """Of partial objects, oldest first."""
        self._writers: dict[ObjectKey, ObjectWriter] = {}
        self.problems = (*found.problems, *self._layouts.problems, *self._signers.problems, *self._lineages.problems)
        """Sentences about what was found in the folder and not used."""

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, max_bytes: int, max_versions: int) -> Spool:
        """Opens or makes a spool; raises SpoolLockedError where another process has it."""
        root = Folder.open(Path(folder))
        lock = _take_lock(root)
        opened = False
        try:
            if root.is_plain_file(TEMPORARY_PREFIX + "term"):
                root.remove(TEMPORARY_PREFIX + "term")
            spool = cls(root, lock, max_bytes=max_bytes, max_versions=max_versions)
            opened = True
        finally:
            if not opened:
                os.close(lock)
        return spool

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back. Partial objects stay for the next time; writers that are open are given up."""
        with self._guard:
            for writer in tuple(self._writers.values()):
                writer.abort()
            for receiver in self._receivers.values():
                receiver.close()
            if self._lock_handle >= 0:
                os.close(self._lock_handle)
                self._lock_handle = -1

    @property
    def path(self) -> Path:
        """The folder."""
        return self._root.path

    # ------------------------------------------------------------------------------------------------- small registers

    @property
    def term(self) -> int:
        """The newest term that was led with from here; 0: none yet."""
        return self._terms.term

    def next_term(self, at_least: int = 1) -> int:
        """Allocates a term (PROTOCOL.md, section 1); durable on return."""
        return self._terms.next(at_least)

    def incarnation(self, term: int) -> str:
        """The 128 random bits, in hexadecimal, that this spool has for a term; raises OldTermError."""
        return self._terms.incarnation(term)

    def put_layout(self, document: bytes) -> str:
        """Keeps a layout document; returns its hash in hexadecimal."""
        with self._guard:
            used = {stored.facts.layout_hash for stored in self._stored.values()}
        return self._layouts.put(document, used | {lineage.layout_hash for lineage in self._lineages.all()})

    def layout(self, layout_hash: str) -> bytes | None:
        """The layout document of a hash."""
        return self._layouts.get(layout_hash)

    def put_signer(self, chain_pem: bytes) -> None:
        """Keeps a trainer's certificate chain."""
        self._signers.put(chain_pem)

    def signers(self) -> tuple[bytes, ...]:
        """The kept chains, oldest first; whether they are trusted is not the spool's business."""
        found = (self._signers.get(name) for name in self._signers.names())
        return tuple(chain for chain in found if chain is not None)

    def put_lineage(self, lineage: Lineage) -> None:
        """Keeps where a lineage began."""
        self._lineages.put(lineage)

    def lineages(self) -> tuple[Lineage, ...]:
        """Known lineages, oldest first."""
        return self._lineages.all()

    # --------------------------------------------------------------------------------------------------------- objects

    def create(
        self, key: ObjectKey, layout_hash: str, bucket_bytes: int, *, streams: int = DEFAULT_STREAMS
    ) -> ObjectWriter:
        """Begins an object that is made here."""
        with self._guard:
            self._check_free(key)
            if key in self._receivers:
                raise SpoolError(f"{key} is arriving from elsewhere already")
            writer = ObjectWriter(
                self._objects,
                key,
                layout_hash=layout_hash,
                bucket_bytes=bucket_bytes,
                streams=streams,
                done=self._wrote,
            )
            self._writers[key] = writer
            return writer

    def receive(self, key: ObjectKey) -> ObjectReceiver:
        """Begins an object that arrives, or goes on with it; the same receiver while it is open."""
        with self._guard:
            open_already = self._receivers.get(key)
            if open_already is not None:
                return open_already
            self._check_free(key)
            while len(self._receivers) >= MAX_PARTIAL_OBJECTS:
                oldest = next(iter(self._receivers))
                self._receivers.pop(oldest).abort()  # may have been committed a moment ago: then its files stay
            receiver = ObjectReceiver(self._objects, key, done=self._received, resumed=False)
            self._receivers[key] = receiver
            return receiver

    def keep(
        self, key: ObjectKey, index: int, offset: int, data: memoryview, sha256: bytes, *, is_verified: bool = False
    ) -> bool:
        """Keeps a bucket of an object that arrives, whether or not it was asked to `receive` it; False: had it.

        For the threads of streams: a bucket that is sent twice may come after its object was committed.
        """
        with self._guard:
            if key in self._stored:
                return False
            receiver = self.receive(key)
        return receiver.put(index, offset, data, sha256, is_verified=is_verified)

    def partial(self) -> tuple[ObjectKey, ...]:
        """Objects of which a part has arrived, oldest first."""
        with self._guard:
            return tuple(self._receivers)

    def stored(self, key: ObjectKey) -> StoredObject | None:
        """A committed object."""
        with self._guard:
            return self._stored.get(key)

    def objects(self) -> tuple[StoredObject, ...]:
        """All committed objects, oldest first."""
        with self._guard:
            return tuple(self._stored.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all committed objects."""
        return sum(stored.size_bytes for stored in self.objects())

    def versions(self, lineage: str) -> dict[int, VersionRecord]:
        """The versions of a lineage that stored objects join, by seq."""
        known = {found.lineage: found for found in self.lineages()}
        return index_versions((stored.facts for stored in self.objects()), known.get(lineage), lineage)

    def retained(self, lineage: str) -> dict[int, VersionRecord]:
        """Those of them from which stored links lead to the newest one, itself included."""
        keys = (stored.key for stored in self.objects())
        links = [key.target_seq for key in keys if key.lineage == lineage and key.is_link and key.codec == FAST]
        versions = self.versions(lineage)
        oldest = unbroken_from(links, max(versions, default=0))
        return {seq: record for seq, record in versions.items() if seq >= oldest}

    def remove(self, key: ObjectKey) -> None:
        """Evicts an object; those who read it now go on. Nothing happens where there is none."""
        with self._guard:
            stored = self._stored.pop(key, None)
            if stored is not None:
                stored.evict()

    def retain(self, needed: Collection[VersionRef] = (), head: VersionRef | None = None) -> tuple[ObjectKey, ...]:
        """Evicts what is above the limits; returns what went. `needed`: versions that live members stand on."""
        with self._guard:
            held = [Held(stored.key, stored.size_bytes) for stored in self._stored.values()]
            going = plan_retention(
                held,
                needed,
                max_bytes=self._max_bytes,
                max_versions=self._max_versions,
                head=head,
                origins={lineage.lineage: lineage.origin for lineage in self.lineages()},
            )
            for key in going:
                self.remove(key)
            return going

    # -------------------------------------------------------------------------------------------------------- internals

    def _check_free(self, key: ObjectKey) -> None:
        if self._lock_handle < 0:
            raise SpoolError("the spool is closed")
        if key in self._stored:
            raise SpoolError(f"{key} is in the spool already")
        if key in self._writers:
            raise SpoolError(f"{key} is being made already")

    def _resume(self, keys: Sequence[ObjectKey]) -> dict[ObjectKey, ObjectReceiver]:
        """Proves what is there of partial objects, on several cores: later nobody has the time for it."""

        def resume(key: ObjectKey) -> ObjectReceiver | None:
            try:
                return ObjectReceiver(self._objects, key, done=self._received, resumed=True)
            except SyncError:  # damaged beyond use: it will begin anew
                for name in (journal_name(key), data_name(key)):
                    self._objects.remove(name)
                return None

        with ThreadPoolExecutor(thread_name_prefix="spool") as pool:
            found = zip(keys, pool.map(resume, keys), strict=True)
            return {key: receiver for key, receiver in found if receiver is not None}

    def _wrote(self, key: ObjectKey, stored: StoredObject | None) -> None:
        with self._guard:
            self._writers.pop(key, None)
            if stored is not None:
                self._stored[key] = stored

    def _received(self, key: ObjectKey, stored: StoredObject | None) -> None:
        with self._guard:
            self._receivers.pop(key, None)
            if stored is not None:
                self._stored[key] = stored


def _take_lock(root: Folder) -> int:
    """An exclusive lock that dies with the process, however it dies."""
    if _LOCK_FILE not in root:
        try:
            os.close(root.create(_LOCK_FILE))
        except SpoolError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
    handle = root.reopen(_LOCK_FILE, writable=True)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise SpoolLockedError(
                f"another process uses the spool {root.path}: end it, or give this one a folder of its own"
            ) from error
        with disk_errors(f"locking {root.path}"):
            raise
    return handle
