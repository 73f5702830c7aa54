"""Keys: the names of objects, as text on the wire and as names of files (PROTOCOL.md, section 3.2). Pure.

A key says which versions an object joins, never what is in it: that is the manifest's business. Parses hostile text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sync_runtime.bucket.manifest import Manifest
from sync_runtime.errors import FormatError

ANCHOR = "anchor"
FAST, TIGHT = "fast", "tight"
MAX_SEQ = 2**63 - 1
MAX_PART = 2**32 - 1
MAX_TEXT_CHARACTERS = 128

_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_LINEAGE = re.compile(r"[0-9a-f]{32}")
_DELTA = re.compile(
    rf"(?P<lineage>[0-9a-f]{{32}})/(?:(?P<origin>[0-9a-f]{{32}}):)?(?P<base>{_NUMBER})-(?P<target>{_NUMBER})"
    r"\.(?P<codec>fast|tight)"
)
_ANCHOR = re.compile(rf"(?P<lineage>[0-9a-f]{{32}})/anchor-(?P<target>{_NUMBER})(?:\.(?P<part>{_NUMBER}))?")
_MANIFEST_CODECS = {FAST: {"fast"}, TIGHT: {"tight", "auto"}, ANCHOR: {"anchor"}}


class VersionRef(NamedTuple):
    """A version by its name alone."""

    lineage: str
    seq: int


@dataclass(frozen=True)
class ObjectKey:
    """The name of an object. Making one checks it."""

    lineage: str
    base_lineage: str | None
    """Where the base is of another lineage; None: of the same one, or an anchor."""
    base_seq: int | None
    """None: an anchor."""
    target_seq: int
    codec: str
    """`fast`, `tight` or `anchor`."""
    part: int | None = None
    """Which part of a repair an anchor is; None: the whole."""

    def __post_init__(self) -> None:
        _check_lineage(self.lineage)
        _check_number(self.target_seq, MAX_SEQ)
        if self.codec not in _MANIFEST_CODECS:
            raise FormatError(f"{self.codec!r} is not a codec of keys: fast, tight or anchor")
        if self.base_lineage is not None:
            _check_lineage(self.base_lineage)
        if self.base_seq is None:
            self._check_anchor()
            return
        _check_number(self.base_seq, MAX_SEQ)
        if self.codec == ANCHOR or self.part is not None:
            raise FormatError("an anchor has no base, and only anchors have parts")
        if self.base_lineage == self.lineage:
            raise FormatError("a key names the base's lineage only where it is another one")
        if self.base_lineage is None and self.base_seq == self.target_seq:
            raise FormatError("a delta leads from one version to another")

    def _check_anchor(self) -> None:
        if self.codec != ANCHOR or self.base_lineage is not None:
            raise FormatError("a delta has a base")
        if self.part is not None:
            _check_number(self.part, MAX_PART)

    @property
    def text(self) -> str:
        """As it travels."""
        if self.base_seq is None:
            part = "" if self.part is None else f".{self.part}"
            return f"{self.lineage}/{ANCHOR}-{self.target_seq}{part}"
        origin = "" if self.base_lineage is None else f"{self.base_lineage}:"
        return f"{self.lineage}/{origin}{self.base_seq}-{self.target_seq}.{self.codec}"

    @property
    def file_stem(self) -> str:
        """As a file is called: the text without separators of paths."""
        return self.text.replace("/", "_").replace(":", "+")

    @property
    def base(self) -> VersionRef | None:
        """The version it starts from; None: an anchor."""
        return None if self.base_seq is None else VersionRef(self.base_lineage or self.lineage, self.base_seq)

    @property
    def target(self) -> VersionRef:
        """The version it leads to."""
        return VersionRef(self.lineage, self.target_seq)

    @property
    def is_anchor(self) -> bool:
        """Full weights, or a part of them."""
        return self.base_seq is None

    @property
    def is_link(self) -> bool:
        """The delta from one version to the next: what chains consist of."""
        return self.base_lineage is None and self.base_seq is not None and self.target_seq == self.base_seq + 1

    @property
    def is_way_back(self) -> bool:
        """Leads to an older version, or into another lineage."""
        if self.base_seq is None:
            return False
        return self.base_lineage is not None or self.base_seq > self.target_seq

    @property
    def is_span(self) -> bool:
        """Several links of one lineage in one."""
        return not (self.is_anchor or self.is_link or self.is_way_back)

    def __str__(self) -> str:
        return self.text


def parse_key(text: object) -> ObjectKey:
    """Reads a key from anywhere; raises FormatError."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARACTERS:
        raise FormatError("the key of an object is not a short text")
    found = _DELTA.fullmatch(text)
    if found:
        base, target = int(found["base"]), int(found["target"])
        return ObjectKey(found["lineage"], found["origin"], base, target, found["codec"])
    found = _ANCHOR.fullmatch(text)
    if found:
        part = None if found["part"] is None else int(found["part"])
        return ObjectKey(found["lineage"], None, None, int(found["target"]), ANCHOR, part)
    raise FormatError("the key of an object is malformed")


def parse_file_stem(stem: str) -> ObjectKey:
    """Reads a key back from the name of a file; raises FormatError."""
    key = parse_key(stem.replace("_", "/").replace("+", ":"))
    if key.file_stem != stem:
        raise FormatError("the file is not called as an object's is")
    return key


def delta_key(lineage: str, base_seq: int, target_seq: int, codec: str = FAST) -> ObjectKey:
    """A delta inside one lineage."""
    return ObjectKey(lineage, None, base_seq, target_seq, codec)


def repair_key(version: VersionRef, ranges: Iterable[Sequence[int]]) -> ObjectKey:
    """The anchor of some blocks of a version, as ascending [from, to) ranges: what it holds follows from its key."""
    text = ",".join(f"{begin}-{end}" for begin, end in ranges)
    part = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    return ObjectKey(version.lineage, None, None, version.seq, ANCHOR, part)


def check_manifest(key: ObjectKey, manifest: Manifest) -> None:
    """Whether a manifest describes the object that the key names; raises FormatError."""
    base_seq = None if manifest.base is None else manifest.base.seq
    if (manifest.lineage, base_seq, manifest.target.seq) != (key.lineage, key.base_seq, key.target_seq):
        raise FormatError(f"the manifest is of other versions than its key {key} says")
    if manifest.codec not in _MANIFEST_CODECS[key.codec]:
        raise FormatError(f"the manifest's codec is {manifest.codec}, its key is {key}")


def _check_lineage(lineage: object) -> None:
    if not isinstance(lineage, str) or not _LINEAGE.fullmatch(lineage):
        raise FormatError("a lineage is 32 lower-case hexadecimal digits")


def _check_number(number: object, limit: int) -> None:
    if type(number) is not int or not 0 <= number <= limit:
        raise FormatError("a number of the key is negative or too large")
