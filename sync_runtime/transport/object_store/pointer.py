"""The pointer: what a store says is newest, as a document and as its signed envelope (STORE.md, section 2). Pure.

Parses hostile bytes. Neither makes nor checks signatures; which pointer may replace which is for `fences`.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sync_runtime.bucket.keys import ANCHOR, ObjectKey, VersionRef, delta_key, parse_key
from sync_runtime.bucket.manifest import MAX_LABEL_CHARACTERS, Version
from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.tensors.digest import parse_digest
from sync_runtime.tensors.layout import canonical_json, parse_canonical_json
from sync_runtime.transport.object_store.names import term_of

FORMAT: Final = "syncgroup-store/1"
MAGIC: Final = b"SGP1"
MAX_POINTER_BYTES: Final = 1 << 20
MAX_LINES: Final = 8
MAX_SIGNERS: Final = 8
MAX_PLACES: Final = 256
MAX_VERSIONS: Final = 2048
MAX_SKIPS: Final = 4096
MAX_INLINE_BYTES: Final = 64 << 10
SIGNATURE_BYTES: Final = 64
_HEAD: Final = struct.Struct("<4sI")
_HEX32: Final = re.compile(r"[0-9a-f]{32}")
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_HEX128: Final = re.compile(r"[0-9a-f]{128}")
_TRACE: Final = re.compile(r"(?:|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
_GROUP: Final = re.compile(r"[!-~]{1,128}")
_FIELDS: Final = {
    "format", "group", "incarnation", "lines", "manifest", "place", "places", "proof", "revision", "signers", "term",
}  # fmt: skip
_LINE_FIELDS: Final = {
    "anchor", "base", "label", "layout", "lineage", "published_unix_ns", "skips", "trace", "versions", "way",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An object that is in the store, whole, while a pointer names it."""

    key: ObjectKey
    size_bytes: int
    place: str


@dataclass(frozen=True)
class Line:
    """The kept versions of a lineage and the objects between them."""

    lineage: str
    layout_hash: str
    layout_place: str
    versions: tuple[Version, ...]
    """Ascending without a gap: the base, from which the first link starts, to the head."""
    links: tuple[Row, ...]
    """One for every version but the first."""
    skips: tuple[Row, ...] = ()
    anchor: Row | None = None
    way: Row | None = None
    """From the head of the next older line to a version of this one."""
    label: str = ""
    published_unix_ns: int = 0
    trace: str = ""
    """Traceparent of the head's publication, so that those who follow join its trace; empty: it is in none."""

    @property
    def base(self) -> Version:
        """The oldest kept version."""
        return self.versions[0]

    @property
    def head(self) -> Version:
        """The newest version."""
        return self.versions[-1]

    @property
    def head_ref(self) -> VersionRef:
        """The newest version by name."""
        return VersionRef(self.lineage, self.head.seq)

    def rows(self) -> tuple[Row, ...]:
        """All objects that it names."""
        return (*self.links, *self.skips, *(row for row in (self.anchor, self.way) if row is not None))


@dataclass(frozen=True)
class Pointer:
    """What `latest` says."""

    group: str
    term: int
    incarnation: str
    proof: str
    """The trainer's signature for its term, in hexadecimal: a relay hands it on."""
    signers: tuple[str, ...]
    revision: int
    place: str
    lines: tuple[Line, ...] = ()
    manifest: bytes = b""
    """Envelope of the newest version's link, where it is small."""

    @property
    def order(self) -> tuple[int, int]:
        """The larger one is the newer one."""
        return self.term, self.revision

    @property
    def head(self) -> VersionRef | None:
        """The newest version; None: nothing was published yet."""
        return self.lines[0].head_ref if self.lines else None

    def to_json(self) -> bytes:
        """The canonical document; raises LimitError where it would be too large to be read."""
        places = sorted({place for line in self.lines for place in _places_of(line)})
        number = {place: index for index, place in enumerate(places)}
        content = {
            "format": FORMAT,
            "group": self.group,
            "incarnation": self.incarnation,
            "lines": [_line_json(line, number) for line in self.lines],
            "manifest": base64.b64encode(self.manifest).decode("ascii"),
            "place": self.place,
            "places": places,
            "proof": self.proof,
            "revision": self.revision,
            "signers": list(self.signers),
            "term": self.term,
        }
        document = canonical_json(content)
        if len(document) > MAX_POINTER_BYTES - _HEAD.size - SIGNATURE_BYTES:
            raise LimitError(f"the pointer would have {len(document)} bytes: keep fewer versions in the store")
        return document


def pack_pointer(document: bytes, signature: bytes) -> bytes:
    """The envelope of a signed pointer."""
    if len(signature) != SIGNATURE_BYTES:
        raise FormatError("a signature has 64 bytes")
    return _HEAD.pack(MAGIC, len(document)) + document + signature


def open_pointer(envelope: bytes) -> tuple[bytes, bytes]:
    """(JSON, signature) of an envelope from anywhere; the signature is not checked here."""
    if len(envelope) > MAX_POINTER_BYTES:
        raise LimitError(f"a pointer has at most {MAX_POINTER_BYTES} bytes")
    if len(envelope) < _HEAD.size + SIGNATURE_BYTES:
        raise TruncatedError("the pointer is cut off")
    magic, size = _HEAD.unpack_from(envelope)
    if magic != MAGIC:
        raise FormatError("these bytes are not a pointer: the magic is missing")
    if len(envelope) != _HEAD.size + size + SIGNATURE_BYTES:
        raise TruncatedError("the pointer does not have the size that it announces")
    return envelope[_HEAD.size : _HEAD.size + size], envelope[_HEAD.size + size :]


def parse_pointer(document: bytes) -> Pointer:
    """Reads the canonical JSON of a pointer; raises FormatError."""
    content = parse_canonical_json(document, "pointer", MAX_POINTER_BYTES)
    if content.get("format") != FORMAT:
        raise UnknownFormatError(f"the pointer's format is {content.get('format')!r:.40}; this reader knows {FORMAT}")
    if set(content) != _FIELDS:
        raise FormatError("the pointer has other fields than the format names")
    places = tuple(_place(place) for place in _list(content["places"], MAX_PLACES))
    pointer = Pointer(
        group=_text(content["group"], _GROUP),
        term=_number(content["term"]),
        incarnation=_text(content["incarnation"], _HEX32),
        proof=_text(content["proof"], _HEX128),
        signers=tuple(_pem(text) for text in _list(content["signers"], MAX_SIGNERS)),
        revision=_number(content["revision"]),
        place=_place(content["place"]),
        lines=tuple(_line(line, places) for line in _list(content["lines"], MAX_LINES)),
        manifest=_inline(content["manifest"]),
    )
    _check(pointer)
    return pointer


def _check(pointer: Pointer) -> None:
    if term_of(pointer.place) != pointer.term:
        raise FormatError("the pointer's place is of another term than the pointer")
    lineages = [line.lineage for line in pointer.lines]
    if len(set(lineages)) != len(lineages):
        raise FormatError("the pointer names a lineage twice")
    if sum(len(line.links) for line in pointer.lines) > MAX_VERSIONS:
        raise LimitError(f"a pointer names at most {MAX_VERSIONS} versions")
    if sum(len(line.skips) for line in pointer.lines) > MAX_SKIPS:
        raise LimitError(f"a pointer names at most {MAX_SKIPS} skip deltas")
    for newer, older in pairwise(pointer.lines):
        if newer.way is None or newer.way.key.base != older.head_ref:
            raise FormatError("no way leads from the head of one line of the pointer to the next")
    if pointer.lines and pointer.lines[-1].way is not None:
        raise FormatError("a way into the oldest line of the pointer comes from nowhere")


def _places_of(line: Line) -> tuple[str, ...]:
    return (line.layout_place, *(row.place for row in line.rows()))


def _line_json(line: Line, number: dict[str, int]) -> dict[str, object]:
    anchor, way = line.anchor, line.way
    return {
        "anchor": None if anchor is None else [anchor.key.target_seq, anchor.size_bytes, number[anchor.place]],
        "base": [line.base.seq, str(line.base.digest)],
        "label": line.label,
        "layout": [line.layout_hash, number[line.layout_place]],
        "lineage": line.lineage,
        "published_unix_ns": line.published_unix_ns,
        "skips": [[row.key.base_seq, row.key.target_seq, row.size_bytes, number[row.place]] for row in line.skips],
        "trace": line.trace,
        "versions": [
            [version.seq, str(version.digest), row.size_bytes, number[row.place]]
            for version, row in zip(line.versions[1:], line.links, strict=True)
        ],
        "way": None if way is None else [way.key.text, way.size_bytes, number[way.place]],
    }


def _line(content: object, places: tuple[str, ...]) -> Line:
    if not isinstance(content, dict) or set(content) != _LINE_FIELDS:
        raise FormatError("a line of the pointer is malformed")
    lineage, label = _text(content["lineage"], _HEX32), content["label"]
    if not isinstance(label, str) or len(label) > MAX_LABEL_CHARACTERS:
        raise FormatError("a label of the pointer is malformed")
    base_seq, base_digest = _exactly(content["base"], 2)
    versions = [Version(_number(base_seq), parse_digest(base_digest))]
    links = []
    for row in _list(content["versions"], MAX_VERSIONS):
        seq, digest, size_bytes, place = _exactly(row, 4)
        versions.append(Version(_number(seq), parse_digest(digest)))
        if versions[-1].seq != versions[-2].seq + 1:
            raise FormatError("the versions of a line have a gap")
        key = delta_key(lineage, versions[-2].seq, versions[-1].seq)
        links.append(Row(key, _number(size_bytes), _numbered(place, places)))
    layout_hash, layout_place = _exactly(content["layout"], 2)
    return Line(
        lineage=lineage,
        layout_hash=_text(layout_hash, _HEX64),
        layout_place=_numbered(layout_place, places),
        versions=tuple(versions),
        links=tuple(links),
        skips=tuple(_skip(row, lineage, versions, places) for row in _list(content["skips"], MAX_SKIPS)),
        anchor=None if content["anchor"] is None else _anchor(content["anchor"], lineage, versions, places),
        way=None if content["way"] is None else _way(content["way"], lineage, versions, places),
        label=label,
        published_unix_ns=_number(content["published_unix_ns"]),
        trace=_text(content["trace"], _TRACE),
    )


def _skip(content: object, lineage: str, versions: list[Version], places: tuple[str, ...]) -> Row:
    base, target, size_bytes, place = _exactly(content, 4)
    first, last = _number(base), _number(target)
    if not versions[0].seq <= first < last <= versions[-1].seq:
        raise FormatError("a skip delta of the pointer joins versions that are not kept")
    return Row(delta_key(lineage, first, last), _number(size_bytes), _numbered(place, places))


def _anchor(content: object, lineage: str, versions: list[Version], places: tuple[str, ...]) -> Row:
    seq, size_bytes, place = _exactly(content, 3)
    if not versions[0].seq <= _number(seq) <= versions[-1].seq:
        raise FormatError("the anchor of a line is of a version that is not kept")
    return Row(ObjectKey(lineage, None, None, _number(seq), ANCHOR), _number(size_bytes), _numbered(place, places))


def _way(content: object, lineage: str, versions: list[Version], places: tuple[str, ...]) -> Row:
    text, size_bytes, place = _exactly(content, 3)
    key = parse_key(text)
    inside = versions[0].seq <= key.target_seq <= versions[-1].seq
    if key.lineage != lineage or key.base_lineage is None or not inside:
        raise FormatError("the way of a line does not lead from another lineage into its kept versions")
    return Row(key, _number(size_bytes), _numbered(place, places))


def _inline(content: object) -> bytes:
    if not isinstance(content, str) or len(content) > 4 * (MAX_INLINE_BYTES // 3 + 1):
        raise FormatError("the pointer's manifest is malformed")
    try:
        return base64.b64decode(content.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise FormatError("the pointer's manifest is not base64") from error


def _list(content: object, limit: int) -> list[object]:
    if not isinstance(content, list) or len(content) > limit:
        raise FormatError("a list of the pointer is malformed or too long")
    return content


def _exactly(content: object, length: int) -> list[object]:
    if not isinstance(content, list) or len(content) != length:
        raise FormatError("a row of the pointer is malformed")
    return content


def _numbered(content: object, places: tuple[str, ...]) -> str:
    index = _number(content)
    if index >= len(places):
        raise FormatError("a row of the pointer lies in a place that it does not name")
    return places[index]


def _place(content: object) -> str:
    term_of(content)
    return str(content)


def _pem(content: object) -> str:
    if not isinstance(content, str) or len(content) > MAX_INLINE_BYTES or not content.isascii():
        raise FormatError("a signer of the pointer is malformed")
    return content


def _number(content: object) -> int:
    if type(content) is not int or not 0 <= content < 2**63:
        raise FormatError("a number of the pointer is not a non-negative integer")
    return content


def _text(content: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(content, str) or not pattern.fullmatch(content):
        raise FormatError("a name of the pointer is malformed")
    return content
