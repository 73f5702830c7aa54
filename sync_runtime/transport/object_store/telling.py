"""A pointer in the words of the wire: what a parent that stood where the store stands would say. Pure.

So that whoever receives need not know whether a parent or a store is at the other end (PROTOCOL.md, section 3.2).
"""

from __future__ import annotations

from typing import Final

from sync_runtime.bucket.keys import ObjectKey, VersionRef
from sync_runtime.bucket.manifest import Manifest
from sync_runtime.transport.messages import BaseVersion, Begin, Head, Index, Message, Signer, Term
from sync_runtime.transport.object_store.pointer import Line, Pointer, Row

_FRESH, _CATCH_UP, _ANCHOR = 0, 1, 2
_NO_LAYOUT: Final = "0" * 64


def news_of(pointer: Pointer) -> list[Message]:
    """Who signs, the proof of the term, the versions of every lineage, the newest one."""
    said: list[Message] = [Signer(certificates=chain) for chain in pointer.signers]
    said.append(Term(term=pointer.term, incarnation=pointer.incarnation, signature=pointer.proof))
    said += [_index(pointer, line) for line in reversed(pointer.lines)]
    if pointer.lines:
        said.append(_head(pointer, pointer.lines[0]))
    return said


def offer_of(pointer: Pointer, row: Row, manifest: Manifest, transfer: int) -> Begin:
    """BEGIN of an object that is in the store."""
    base = manifest.base
    return Begin(
        transfer=transfer,
        key=row.key.text,
        base=None if base is None else BaseVersion(seq=base.seq, digest=str(base.digest)),
        target_seq=row.key.target_seq,
        codec="anchor" if row.key.is_anchor else "fast",
        layout=manifest.layout_hash,
        term=pointer.term,
        incarnation=pointer.incarnation,
        trace=_trace(pointer, row.key),
        priority=_ANCHOR if row.key.is_anchor else _FRESH if row.key.is_link else _CATCH_UP,
        bytes=manifest.size_bytes,
        buckets=len(manifest.buckets),
    )


def _trace(pointer: Pointer, key: ObjectKey) -> str:
    """What leads to a line's head is part of the head's own trace; of versions before it none is kept."""
    return next((line.trace for line in pointer.lines if line.head_ref == key.target), "")


def void_offer(pointer: Pointer, key: ObjectKey, transfer: int) -> Begin:
    """BEGIN of an object that is not in the store: an ABORT follows."""
    return Begin(
        transfer=transfer,
        key=key.text,
        base=None,
        target_seq=key.target_seq,
        codec="anchor" if key.is_anchor else "fast",
        layout=_NO_LAYOUT,
        term=pointer.term,
        incarnation=pointer.incarnation,
        priority=_CATCH_UP,
    )


def find_row(pointer: Pointer, key: ObjectKey) -> Row | None:
    """The object of a key; None: the store has none."""
    return next((row for line in pointer.lines for row in line.rows() if row.key == key), None)


def line_of(pointer: Pointer, row: Row) -> Line:
    """The line that an object leads into."""
    return next(line for line in pointer.lines if line.lineage == row.key.lineage)


def find_version(pointer: Pointer, digest: str | None) -> VersionRef | None:
    """The newest kept version with a digest; None: there is none."""
    for line in pointer.lines:
        for version in reversed(line.versions):
            if str(version.digest) == digest:
                return VersionRef(line.lineage, version.seq)
    return None


def _index(pointer: Pointer, line: Line) -> Index:
    return Index(
        lineage=line.lineage,
        term=pointer.term,
        incarnation=pointer.incarnation,
        start=None,
        versions=[(version.seq, str(version.digest)) for version in line.versions],
    )


def _head(pointer: Pointer, line: Line) -> Head:
    return Head(
        lineage=line.lineage,
        seq=line.head.seq,
        digest=str(line.head.digest),
        step=None,
        term=pointer.term,
        incarnation=pointer.incarnation,
        published_unix_ns=line.published_unix_ns,
        trace=line.trace,
    )
