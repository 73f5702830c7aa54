"""Manifests: the description of an object, in canonical JSON inside an envelope with room for a signature.

FORMAT.md, section 9. Parses hostile bytes. Neither makes nor checks signatures: it keeps what was signed and the
signature apart, byte for byte.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.tensors.digest import Digest, parse_digest, total
from sync_runtime.tensors.layout import MAX_TENSORS, canonical_json, parse_canonical_json

FORMAT = "syncgroup-manifest/1"
MAGIC = b"SGM1"
MAX_ENVELOPE_BYTES = 256 << 20
MAX_LABEL_CHARACTERS = 256
NO_LINEAGE = "0" * 32
CODECS = ("fast", "tight", "auto", "anchor")
SIGNATURE_NONE, SIGNATURE_ED25519 = 0, 1
_SIGNATURE_BYTES = {SIGNATURE_NONE: 0, SIGNATURE_ED25519: 64}
_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEX32 = re.compile(r"[0-9a-f]{32}")
_HEAD = struct.Struct("<4sI")
_TAIL = struct.Struct("<BBH")
_MAX_INT = 2**63 - 1
_FIELDS = {
    "base", "blocks", "buckets", "bytes", "changed", "codec", "digest_changes", "format", "label", "layout", "lineage",
    "target",
}  # fmt: skip


@dataclass(frozen=True)
class Version:
    """One end of a delta: its number in the lineage and its digest."""

    seq: int
    digest: Digest


@dataclass(frozen=True)
class Bucket:
    """A piece of an object, by size and name."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an object promises."""

    codec: str
    layout_hash: str
    base: Version | None
    """None: an anchor."""
    target: Version
    num_blocks: int
    num_changed: int
    """Changed elements; in an anchor all elements."""
    buckets: tuple[Bucket, ...]
    digest_changes: tuple[Digest, ...]
    """Per tensor of the layout: target - base; empty for an anchor."""
    lineage: str = NO_LINEAGE
    label: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the object."""
        return sum(bucket.size_bytes for bucket in self.buckets)

    def to_json(self) -> bytes:
        """The canonical document."""
        content = {
            "base": None if self.base is None else _version_json(self.base),
            "blocks": self.num_blocks,
            "buckets": [[bucket.size_bytes, bucket.sha256] for bucket in self.buckets],
            "bytes": self.size_bytes,
            "changed": self.num_changed,
            "codec": self.codec,
            "digest_changes": "".join(str(change) for change in self.digest_changes),
            "format": FORMAT,
            "label": self.label,
            "layout": self.layout_hash,
            "lineage": self.lineage,
            "target": _version_json(self.target),
        }
        return canonical_json(content)


def pack_envelope(document: bytes, signature: bytes = b"") -> bytes:
    """The envelope of a manifest's JSON; the signature may come later, from elsewhere."""
    kind = SIGNATURE_ED25519 if signature else SIGNATURE_NONE
    if len(signature) != _SIGNATURE_BYTES[kind]:
        raise FormatError("a signature has 64 bytes")
    return _HEAD.pack(MAGIC, len(document)) + document + _TAIL.pack(kind, 0, len(signature)) + signature


def open_envelope(envelope: bytes) -> tuple[bytes, bytes]:
    """(JSON, signature) of an envelope from anywhere; the signature is not checked here."""
    if len(envelope) > MAX_ENVELOPE_BYTES:
        raise LimitError(f"a manifest has at most {MAX_ENVELOPE_BYTES} bytes")
    if len(envelope) < _HEAD.size + _TAIL.size:
        raise TruncatedError("the manifest is cut off")
    magic, size = _HEAD.unpack_from(envelope)
    if magic != MAGIC:
        raise FormatError("these bytes are not a manifest: the magic is missing")
    end = _HEAD.size + size
    if len(envelope) < end + _TAIL.size:
        raise TruncatedError("the manifest is cut off")
    kind, reserved, signature_bytes = _TAIL.unpack_from(envelope, end)
    if kind not in _SIGNATURE_BYTES:
        raise UnknownFormatError(f"signature kind {kind} is unknown")
    if reserved or signature_bytes != _SIGNATURE_BYTES[kind] or len(envelope) != end + _TAIL.size + signature_bytes:
        raise FormatError("the manifest's signature field is malformed")
    return envelope[_HEAD.size : end], envelope[end + _TAIL.size :]


def parse_manifest(document: bytes) -> Manifest:
    """Reads the canonical JSON of a manifest; raises FormatError."""
    content = parse_canonical_json(document, "manifest", MAX_ENVELOPE_BYTES)
    if content.get("format") != FORMAT:
        raise UnknownFormatError(f"the manifest's format is {content.get('format')!r}; this reader knows {FORMAT}")
    if set(content) != _FIELDS:
        raise FormatError("the manifest has other fields than the format names")
    codec, label, changes = content["codec"], content["label"], content["digest_changes"]
    if codec not in CODECS:
        raise UnknownFormatError(f"codec {codec!r} is unknown")
    if not isinstance(label, str) or len(label) > MAX_LABEL_CHARACTERS or not isinstance(changes, str):
        raise FormatError("label or digest_changes of the manifest are malformed")
    manifest = Manifest(
        codec=str(codec),
        layout_hash=_text(content["layout"], _HEX64),
        base=None if content["base"] is None else _version(content["base"]),
        target=_version(content["target"]),
        num_blocks=_number(content["blocks"]),
        num_changed=_number(content["changed"]),
        buckets=_buckets(content["buckets"]),
        digest_changes=_digests(changes),
        lineage=_text(content["lineage"], _HEX32),
        label=label,
    )
    _check(manifest, content["bytes"])
    return manifest


def _check(manifest: Manifest, size_bytes: object) -> None:
    if size_bytes != manifest.size_bytes:
        raise FormatError("the buckets of the manifest do not add up to its bytes")
    if (manifest.base is None) != (manifest.codec == "anchor"):
        raise FormatError("a delta has a base, an anchor has none")
    if manifest.base is None:
        if manifest.digest_changes:
            raise FormatError("an anchor has no digest changes")
    elif manifest.base.digest.plus(total(manifest.digest_changes)) != manifest.target.digest:
        raise FormatError("base, digest changes and target of the manifest contradict each other")


def _version_json(version: Version) -> dict[str, object]:
    return {"digest": str(version.digest), "seq": version.seq}


def _version(content: object) -> Version:
    if not isinstance(content, dict) or set(content) != {"digest", "seq"}:
        raise FormatError("a version of the manifest is malformed")
    return Version(_number(content["seq"]), parse_digest(content["digest"]))


def _buckets(content: object) -> tuple[Bucket, ...]:
    if not isinstance(content, list) or any(not isinstance(row, list) or len(row) != 2 for row in content):
        raise FormatError("the buckets of the manifest are malformed")
    return tuple(Bucket(_number(size), _text(name, _HEX64)) for size, name in content)


def _digests(text: str) -> tuple[Digest, ...]:
    if len(text) % 32 or len(text) > 32 * MAX_TENSORS:
        raise FormatError("digest_changes is not a whole number of digests")
    return tuple(parse_digest(text[at : at + 32]) for at in range(0, len(text), 32))


def _number(content: object) -> int:
    if type(content) is not int or not 0 <= content <= _MAX_INT:
        raise FormatError("a number of the manifest is not a non-negative integer")
    return content


def _text(content: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(content, str) or not pattern.fullmatch(content):
        raise FormatError("a hash of the manifest is not hexadecimal")
    return content
