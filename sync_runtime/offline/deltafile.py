"""A delta with everything that describes it, in memory and as a `.sgd` file (FORMAT.md, section 10).

A file is written beside its name and renamed when complete: a failure leaves nothing behind. Reading maps it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from sync_runtime.bucket.manifest import (
    MAX_ENVELOPE_BYTES,
    Bucket,
    Manifest,
    Version,
    open_envelope,
    pack_envelope,
    parse_manifest,
)
from sync_runtime.codec.frame import parse_header
from sync_runtime.codec.limits import CODEC_NAMES, KIND_DELTA
from sync_runtime.errors import DigestError, FormatError, LimitError, TruncatedError
from sync_runtime.offline.objects import ObjectReader, Totals
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest, total
from sync_runtime.tensors.layout import MAX_DOCUMENT_BYTES, Layout, parse_layout

_TRAILER = struct.Struct("<QII8s")
_MAGIC = b"SGDFILE1"


@dataclass(frozen=True)
class Delta:
    """A delta between two states: its layout, its manifest, its object in bytes."""

    layout: Layout
    manifest: Manifest
    object: memoryview
    signature: bytes = b""

    @cached_property
    def blocks(self) -> BlockMap:
        """The layout's blocks."""
        return BlockMap(self.layout)

    @property
    def base(self) -> Version:
        """The version this delta starts from."""
        if self.manifest.base is None:
            raise FormatError("this object is an anchor, not a delta")
        return self.manifest.base

    @property
    def target(self) -> Version:
        """The version this delta leads to."""
        return self.manifest.target

    def reader(self) -> ObjectReader:
        """Reads the object from its beginning."""
        reader = ObjectReader(self.object, self.blocks)
        if CODEC_NAMES[reader.codec] != self.manifest.codec:
            raise FormatError("object and manifest name different codecs")
        return reader

    def tail(self) -> bytes:
        """What follows the object in a file."""
        envelope = pack_envelope(self.manifest.to_json(), self.signature)
        document = self.layout.document
        return document + envelope + _TRAILER.pack(self.manifest.size_bytes, len(document), len(envelope), _MAGIC)

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return bytes(self.object) + self.tail()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file, whole or not at all."""
        with replacing(Path(path)) as file:
            file.write(self.object)
            file.write(self.tail())


def load(path: str | os.PathLike[str]) -> Delta:
    """Maps and checks a file; its buckets' hashes included."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    return parse(memoryview(data))


def parse(data: memoryview) -> Delta:
    """A delta from the bytes of a file; raises FormatError or DigestError."""
    if len(data) < _TRAILER.size:
        raise TruncatedError("the file is too short to be a delta")
    object_bytes, layout_bytes, envelope_bytes, magic = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    if magic != _MAGIC:
        raise FormatError("the file does not end as a delta does: it is something else, or cut off")
    if layout_bytes > MAX_DOCUMENT_BYTES or envelope_bytes > MAX_ENVELOPE_BYTES:
        raise LimitError("layout or manifest of the file are above their limit")
    if object_bytes + layout_bytes + envelope_bytes + _TRAILER.size != len(data):
        raise FormatError("the sizes at the end of the file do not add up to the file")
    layout = parse_layout(bytes(data[object_bytes : object_bytes + layout_bytes]))
    document, signature = open_envelope(bytes(data[object_bytes + layout_bytes : -_TRAILER.size]))
    delta = Delta(layout, parse_manifest(document), data[:object_bytes], signature)
    _check(delta)
    return delta


def _check(delta: Delta) -> None:
    manifest = delta.manifest
    if manifest.layout_hash != delta.layout.hash.hex():
        raise FormatError("the manifest speaks of another layout than the file holds")
    if manifest.size_bytes != len(delta.object):
        raise FormatError("the object has another size than the manifest says")
    if parse_header(delta.object).kind != KIND_DELTA:
        raise FormatError("the file holds an anchor, not a delta")
    if len(manifest.digest_changes) != len(delta.layout.tensors):
        raise FormatError("the manifest has another number of tensors than the layout")
    at = 0
    for bucket in manifest.buckets:
        if hashlib.sha256(delta.object[at : at + bucket.size_bytes]).hexdigest() != bucket.sha256:
            raise DigestError("the object's bytes are not those that the manifest names: they were altered")
        at += bucket.size_bytes


@dataclass(frozen=True)
class Ends:
    """What a manifest says beyond the object's totals."""

    base: Version
    target_seq: int
    changes: tuple[Digest, ...]
    """Per tensor."""
    lineage: str
    label: str


def describe(layout: Layout, totals: Totals, ends: Ends) -> Manifest:
    """The manifest of a finished object."""
    return Manifest(
        codec=CODEC_NAMES[totals.codec],
        layout_hash=layout.hash.hex(),
        base=ends.base,
        target=Version(ends.target_seq, ends.base.digest.plus(total(ends.changes))),
        num_blocks=totals.num_blocks,
        num_changed=totals.num_changed,
        buckets=(Bucket(totals.size_bytes, totals.sha256),),
        digest_changes=ends.changes,
        lineage=ends.lineage,
        label=ends.label,
    )


def write_file(path: Path, layout: Layout, write: Callable[[BinaryIO], Manifest]) -> Manifest:
    """Streams an object into a file: `write` puts the object and returns its manifest; the rest follows here."""
    with replacing(path) as file:
        manifest = write(file)
        file.write(Delta(layout, manifest, memoryview(b"")).tail())
    return manifest


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the path's place when the block ends well, and vanishes otherwise."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
