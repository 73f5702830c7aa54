"""A group with a store: a trainer with a spool of signed objects, and members that follow, for tests of the store.

Signatures, spools and stores are real; the bytes of objects are not deltas, since nothing on this way looks into them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from sync_runtime.bucket.keys import ANCHOR, FAST, ObjectKey, VersionRef, delta_key
from sync_runtime.bucket.manifest import Manifest, Version, pack_envelope
from sync_runtime.bucket.spool import Spool, StoredObject
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.session.terms import prove
from sync_runtime.tensors.digest import Digest
from sync_runtime.transport.object_store.patience import Patience
from sync_runtime.transport.object_store.pointer import Pointer
from sync_runtime.transport.object_store.ports import Objects
from sync_runtime.transport.object_store.publisher import (
    Beginning,
    Publication,
    PublishSettings,
    StorePublisher,
    Trainer,
)
from sync_runtime.transport.object_store.reader import ReadSettings, StoreReader
from sync_runtime.transport.object_store.route import find_route
from sync_runtime.transport.object_store.seal import Seal
from tests.support.identities import GROUP_UID, Group

LINEAGE, NEXT_LINEAGE = "11" * 16, "22" * 16
LAYOUT = b'{"a":"layout that nobody here reads"}'
LAYOUT_HASH = hashlib.sha256(LAYOUT).hexdigest()
INCARNATION = "cd" * 16
BUCKET_BYTES = 64 << 10
QUICK = Patience(first_pause_s=0.001, longest_pause_s=0.01, give_up_after_s=2.0)
IMPATIENT = Patience(first_pause_s=0.001, longest_pause_s=0.01, give_up_after_s=0.05)


def version(seq: int, lineage: str = LINEAGE) -> Version:
    """The state of a version: another one in every lineage."""
    return Version(seq, Digest(seq, int(lineage[:4], 16)))


def payload(key: ObjectKey, size_bytes: int) -> bytes:
    """What is in an object: it follows from its key, so that any copy can be checked."""
    return hashlib.shake_256(key.text.encode()).digest(size_bytes)


@dataclass
class TrainerSide:
    """A trainer: its identity, and a spool from which it publishes."""

    group: Group
    spool: Spool
    signer: Signer
    term: int = 1
    incarnation: str = INCARNATION

    @classmethod
    def make(
        cls, folder: Path, *, term: int = 1, incarnation: str = INCARNATION, group: Group | None = None
    ) -> TrainerSide:
        group = group or Group(folder / "identities")
        signer = Signer.of(read_folder(group.trainer(f"trainer-{term}")))
        spool = Spool.open(folder / f"spool-{term}-{incarnation[:4]}", max_bytes=1 << 40, max_versions=10_000)
        return cls(group, spool, signer, term, incarnation)

    def identity(self) -> Trainer:
        proof = prove(self.signer, GROUP_UID, self.term, self.incarnation)
        return Trainer(GROUP_UID, self.term, self.incarnation, proof.signature, self.signer)

    def trusted(self) -> TrustedSigners:
        return TrustedSigners(self.group.authority.certificate_pem, GROUP_UID)

    def publisher(
        self, store: Objects, *, key: bytes | None = None, keep: int = 32, patience: Patience = QUICK, streams: int = 4
    ) -> StorePublisher:
        settings = PublishSettings(keep_versions=keep, streams=streams, patience=patience)
        return StorePublisher(store, self.identity(), self.trusted(), Seal(GROUP_UID, key), settings)

    def begun(
        self, store: Objects, *, key: bytes | None = None, keep: int = 32, patience: Patience = QUICK, streams: int = 4
    ) -> StorePublisher:
        """A publisher with its first version in the store."""
        publisher = self.publisher(store, key=key, keep=keep, patience=patience, streams=streams)
        publisher.open()
        self.begin(publisher)
        return publisher

    def make_object(self, key: ObjectKey, size_bytes: int = 200_000) -> StoredObject:
        """The object of a key, from the spool or made now."""
        known = self.spool.stored(key)
        if known is not None:
            return known
        writer = self.spool.create(key, LAYOUT_HASH, BUCKET_BYTES)
        writer.write(payload(key, size_bytes))
        writer.finish()
        document = replace(_manifest(key), buckets=writer.buckets).to_json()
        return writer.commit(pack_envelope(document, self.signer.sign(document)))

    def link(self, seq: int, lineage: str = LINEAGE, size_bytes: int = 200_000) -> StoredObject:
        return self.make_object(delta_key(lineage, seq - 1, seq), size_bytes)

    def begin(self, publisher: StorePublisher, lineage: str = LINEAGE, seq: int = 0) -> Pointer:
        return publisher.begin(Beginning(lineage, version(seq, lineage), LAYOUT, LAYOUT_HASH))

    def publish(
        self, publisher: StorePublisher, *seqs: int, lineage: str = LINEAGE, size_bytes: int = 200_000
    ) -> Pointer:
        return publisher.publish([Publication(self.link(seq, lineage, size_bytes)) for seq in seqs])

    def add_skips(self, publisher: StorePublisher, size_bytes: int = 1000) -> None:
        for lineage, base, target in publisher.wanted_skips():
            publisher.add_skip(self.make_object(delta_key(lineage, base, target), size_bytes))


@dataclass
class Member:
    """A member that follows a store and holds a version."""

    reader: StoreReader
    spool: Spool
    held: VersionRef | None = field(default_factory=lambda: VersionRef(LINEAGE, 0))

    @classmethod
    def of(
        cls,
        trainer: TrainerSide,
        store: Objects,
        folder: Path,
        *,
        key: bytes | None = None,
        patience: Patience = QUICK,
        streams: int = 4,
    ) -> Member:
        settings = ReadSettings(streams=streams, patience=patience)
        reader = StoreReader(store, GROUP_UID, trainer.trusted(), Seal(GROUP_UID, key), settings=settings)
        return cls(reader, Spool.open(folder, max_bytes=1 << 40, max_versions=10_000))

    def follow(self) -> tuple[ObjectKey, ...]:
        """Polls, fetches all that leads to the newest version, and stands on it then; what it fetched."""
        self.reader.poll()
        pointer = self.reader.pointer
        if pointer is None or not pointer.lines:
            return ()
        route = find_route(pointer, self.held)
        assert route is not None, f"no way leads from {self.held}"
        for row in route.steps:
            stored = self.reader.fetch(pointer, row, self.spool)
            assert bytes(stored.view()) == payload(row.key, row.size_bytes), f"{row.key} has other bytes"
            assert row.key.base == self.held
            self.held = row.key.target
        return tuple(row.key for row in route.steps)


def way_key(base: VersionRef, lineage: str, seq: int) -> ObjectKey:
    """From a version of another lineage into this one."""
    return ObjectKey(lineage, base.lineage, base.seq, seq, FAST)


def anchor_key(seq: int, lineage: str = LINEAGE) -> ObjectKey:
    return ObjectKey(lineage, None, None, seq, ANCHOR)


def _manifest(key: ObjectKey) -> Manifest:
    target = version(key.target_seq, key.lineage)
    base = None if key.base is None else version(key.base.seq, key.base.lineage)
    changes = () if base is None else (target.digest.minus(base.digest),)
    return Manifest(
        codec=ANCHOR if base is None else key.codec,
        layout_hash=LAYOUT_HASH,
        base=base,
        target=target,
        num_blocks=1,
        num_changed=1,
        buckets=(),
        digest_changes=changes,
        lineage=key.lineage,
        label=f"step {key.target_seq}",
    )
