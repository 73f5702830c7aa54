"""Keys, bytes, manifests and spools for the tests of this folder and of the spool's component tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sync_runtime.bucket.keys import ANCHOR, ObjectKey, delta_key
from sync_runtime.bucket.manifest import Bucket, Manifest, Version, pack_envelope
from sync_runtime.bucket.packer import cut_sizes
from sync_runtime.bucket.spool import ObjectReceiver, ObjectWriter, Spool, StoredObject
from sync_runtime.tensors.digest import Digest

LINEAGE, OTHER_LINEAGE = "11" * 16, "22" * 16
LAYOUT_HASH = "ab" * 32
BUCKET_BYTES = 64 << 10


def payload(size_bytes: int, seed: int = 1) -> bytes:
    """The same bytes everywhere, each bucket different."""
    block = hashlib.shake_256(seed.to_bytes(8, "little")).digest(min(size_bytes, 1 << 16))
    out = bytearray()
    while len(out) < size_bytes:
        out += len(out).to_bytes(8, "little") + block
    return bytes(out[:size_bytes])


def open_spool(folder: Path, max_bytes: int = 1 << 40, max_versions: int = 1000) -> Spool:
    return Spool.open(folder, max_bytes=max_bytes, max_versions=max_versions)


def manifest_for(key: ObjectKey, buckets: tuple[Bucket, ...], label: str = "") -> Manifest:
    base = None if key.base_seq is None else Version(key.base_seq, Digest(key.base_seq, 7))
    change = () if base is None else (Digest(key.target_seq, 7).minus(base.digest),)
    return Manifest(
        codec=ANCHOR if base is None else key.codec,
        layout_hash=LAYOUT_HASH,
        base=base,
        target=Version(key.target_seq, Digest(key.target_seq, 7)),
        num_blocks=1,
        num_changed=1,
        buckets=buckets,
        digest_changes=change,
        lineage=key.lineage,
        label=label,
    )


def envelope_for(key: ObjectKey, buckets: tuple[Bucket, ...], label: str = "") -> bytes:
    return pack_envelope(manifest_for(key, buckets, label).to_json(), b"s" * 64)


def cut(data: bytes, streams: int = 1) -> list[tuple[int, bytes, bytes]]:
    """(offset, bytes, SHA-256) of the buckets of an object."""
    out, offset = [], 0
    for size in cut_sizes(len(data), BUCKET_BYTES, streams):
        piece = data[offset : offset + size]
        out.append((offset, piece, hashlib.sha256(piece).digest()))
        offset += size
    return out


def named(pieces: list[tuple[int, bytes, bytes]]) -> tuple[Bucket, ...]:
    return tuple(Bucket(len(piece), sha256.hex()) for _, piece, sha256 in pieces)


def finished(spool: Spool, key: ObjectKey, data: bytes) -> ObjectWriter:
    writer = spool.create(key, LAYOUT_HASH, BUCKET_BYTES)
    writer.write(data)
    writer.finish()
    return writer


def store(spool: Spool, key: ObjectKey, data: bytes = b"x" * 100, label: str = "") -> StoredObject:
    writer = finished(spool, key, data)
    return writer.commit(envelope_for(key, writer.buckets, label))


def link(seq: int, lineage: str = LINEAGE) -> ObjectKey:
    """The delta to a version from the one before it."""
    return delta_key(lineage, seq - 1, seq)


def put(receiver: ObjectReceiver, pieces: list[tuple[int, bytes, bytes]], *indices: int) -> list[bool]:
    chosen = indices or tuple(range(len(pieces)))
    return [receiver.put(at, pieces[at][0], memoryview(pieces[at][1]), pieces[at][2]) for at in chosen]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "objects").iterdir())
