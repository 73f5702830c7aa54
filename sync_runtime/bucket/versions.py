"""Versions and lineages as a spool knows them: where each lineage began, and which versions its objects join. Pure.

The index is derived from what is stored; it is never written down. Documents of lineages are parsed as hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.stored import ObjectFacts
from sync_runtime.errors import FormatError
from sync_runtime.tensors.digest import Digest, parse_digest
from sync_runtime.tensors.layout import canonical_json, parse_canonical_json

FORMAT = "syncgroup-lineage/1"
MAX_DOCUMENT_BYTES = 4096
_HEX32 = re.compile(r"[0-9a-f]{32}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"created_unix_ns", "format", "incarnation", "layout", "lineage", "origin", "start", "term"}


@dataclass(frozen=True)
class Lineage:
    """Where a line of versions began, and under whom."""

    lineage: str
    term: int
    incarnation: str
    start: Version
    layout_hash: str
    origin: VersionRef | None = None
    """The version of another lineage that its first one equals; None: it began anew."""
    created_unix_ns: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Sorts lineages: the newest is the largest. Terms grow; within a term the later one wins."""
        return self.term, self.created_unix_ns

    def to_json(self) -> bytes:
        """The canonical document."""
        origin = None if self.origin is None else [self.origin.lineage, self.origin.seq]
        content = {
            "created_unix_ns": self.created_unix_ns,
            "format": FORMAT,
            "incarnation": self.incarnation,
            "layout": self.layout_hash,
            "lineage": self.lineage,
            "origin": origin,
            "start": [self.start.seq, str(self.start.digest)],
            "term": self.term,
        }
        return canonical_json(content)


@dataclass(frozen=True)
class VersionRecord:
    """A version that some object leads to or starts from."""

    ref: VersionRef
    digest: Digest
    layout_hash: str
    label: str = ""
    stored_unix_ns: int = 0


def parse_lineage(document: bytes) -> Lineage:
    """Reads a lineage's document; raises FormatError."""
    content = parse_canonical_json(document, "lineage", MAX_DOCUMENT_BYTES)
    if set(content) != _FIELDS or content["format"] != FORMAT:
        raise FormatError("the lineage's document has another format")
    start, origin = content["start"], content["origin"]
    if not isinstance(start, list) or len(start) != 2:
        raise FormatError("the start of the lineage is malformed")
    return Lineage(
        lineage=_text(content["lineage"], _HEX32),
        term=_number(content["term"]),
        incarnation=_text(content["incarnation"], _HEX32),
        start=Version(_number(start[0]), parse_digest(start[1])),
        layout_hash=_text(content["layout"], _HEX64),
        origin=None if origin is None else _ref(origin),
        created_unix_ns=_number(content["created_unix_ns"]),
    )


def index_versions(objects: Iterable[ObjectFacts], lineage: Lineage | None, name: str) -> dict[int, VersionRecord]:
    """The versions of a lineage by seq. What an object leads to knows its label; a mere base does not."""
    bases: dict[int, VersionRecord] = {}
    targets: dict[int, VersionRecord] = {}
    if lineage is not None:
        start = VersionRef(name, lineage.start.seq)
        bases[start.seq] = VersionRecord(start, lineage.start.digest, lineage.layout_hash)
    for facts in objects:
        key = facts.key
        if key.lineage != name:
            continue
        if facts.base is not None and key.base_lineage is None:
            ref = VersionRef(name, facts.base.seq)
            bases.setdefault(ref.seq, VersionRecord(ref, facts.base.digest, facts.layout_hash))
        record = VersionRecord(key.target, facts.target.digest, facts.layout_hash, facts.label, facts.stored_unix_ns)
        if key.is_link or key.target_seq not in targets:
            targets[key.target_seq] = record
    return dict(sorted({**bases, **targets}.items()))


def unbroken_from(links: Iterable[int], newest: int) -> int:
    """The oldest version from which single deltas lead to the newest; `links` are their targets' numbers."""
    known = set(links)
    oldest = newest
    while oldest in known:
        oldest -= 1
    return oldest


def _ref(content: object) -> VersionRef:
    if not isinstance(content, list) or len(content) != 2:
        raise FormatError("the origin of the lineage is malformed")
    return VersionRef(_text(content[0], _HEX32), _number(content[1]))


def _number(content: object) -> int:
    if type(content) is not int or not 0 <= content < 2**63:
        raise FormatError("a number of the lineage is not a non-negative integer")
    return content


def _text(content: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(content, str) or not pattern.fullmatch(content):
        raise FormatError("a name of the lineage is not hexadecimal")
    return content
