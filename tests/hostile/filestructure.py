"""`.sgd` files taken apart: the object, two JSON documents, the signature; hashes and sizes repaired after a change."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from sync_runtime.bucket.manifest import MAGIC as ENVELOPE_MAGIC
from sync_runtime.codec.frame import parse_object
from sync_runtime.errors import SyncError
from sync_runtime.tensors.layout import canonical_json
from tests.hostile import structure
from tests.hostile.dice import Dice

_TRAILER = struct.Struct("<QII8s")
_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 65_535, 65_536, 2**24 + 1, 2**48 + 1, 2**62, 2**63, 2**70, 1.5, "", "x", "x" * 300, "é",
    "\ud800", "0" * 32, "0" * 64, "z" * 32, "U8", "BF16", "tight", "anchor", [], {}, [[]], [1, 2, 3], [0, 0, 0],
    [1 << 20, 1, 1], ["a", "U8", [3], None], ["b", "a"], ["x", "a"], [2, "0" * 64], [["x", "a"]], [["a", "b"]],
)  # fmt: skip
_STRANGE_TENSORS: tuple[list[Any], ...] = (
    ["a" * 2000, "U8", [1], None], ["\ud800", "U8", [1], None], ["a", "U8", [1] * 20, None],
    ["a", "U8", [1 << 49], [1, 1, 1]], ["a", "U8", [1 << 17], [9, 9, 9]], ["a", "U8", [1 << 26], [1, 1, 1 << 25]],
    ["a", "U8", [1 << 26], [1, 1, 1]], ["a", "U8", [1 << 17], [1, 1, 1 << 17]], ["a", "U8", [1 << 17], None],
)  # fmt: skip


@dataclass
class FileParts:
    """What a file is made of."""

    object: bytes
    layout: bytes
    manifest: bytes
    signature: bytes
    """Kind, zero, length and signature, as they stand."""

    def joined(self) -> bytes:
        """The file; its trailer fits."""
        envelope = ENVELOPE_MAGIC + len(self.manifest).to_bytes(4, "little") + self.manifest + self.signature
        trailer = _TRAILER.pack(len(self.object), len(self.layout), len(envelope), b"SGDFILE1")
        return self.object + self.layout + envelope + trailer


def split_file(data: bytes) -> FileParts | None:
    """The parts of a file whose sizes are sound; None for any other."""
    if len(data) < _TRAILER.size:
        return None
    object_bytes, layout_bytes, envelope_bytes, _ = _TRAILER.unpack(data[-_TRAILER.size :])
    if object_bytes + layout_bytes + envelope_bytes + _TRAILER.size != len(data) or envelope_bytes < 12:
        return None
    envelope = data[object_bytes + layout_bytes : -_TRAILER.size]
    end = 8 + int.from_bytes(envelope[4:8], "little")
    layout = data[object_bytes : object_bytes + layout_bytes]
    return FileParts(data[:object_bytes], layout, envelope[8:end], envelope[end:])


def altered_file(data: bytes, other: bytes, dice: Dice) -> bytes:
    """One change in one part; afterwards hashes, sizes and totals are mended, mostly."""
    parts, lender = split_file(data), split_file(other)
    if parts is None:
        return data
    kind = dice.below(10)
    if kind < 2:
        parts.object = structure.altered(parts.object, (lender or parts).object, dice)
    elif kind < 4:
        parts.layout = _altered_json(parts.layout, dice)
    elif kind < 6:
        parts.manifest = _altered_json(parts.manifest, dice)
    elif kind == 6:
        parts.signature = dice.pick(
            (b"\0\0\0\0", b"\1\0\x40\0" + bytes(64), b"\1\0\1\0x", b"\0\1\0\0", b"\2\0\0\0", b"")
        )
    elif kind == 7:
        parts.layout = _with_strange_tensor(parts.layout, dice)
    elif kind == 8:
        parts.manifest = _as_anchor(parts.manifest, dice)
    elif lender is not None:
        part = dice.pick(("object", "layout", "manifest"))
        setattr(parts, part, getattr(lender, part))
    if dice.chance(80):
        _mend(parts, dice)
    return parts.joined()


def _mend(parts: FileParts, dice: Dice) -> None:
    """Makes layout hash, object hash, size and totals fit each other again; sometimes not all of them."""
    layout_hash = hashlib.sha256(parts.layout).digest()
    if dice.chance(90):
        parts.object = parts.object[:8] + layout_hash[:16] + parts.object[24:]
    content = _loaded(parts.manifest)
    if not isinstance(content, dict):
        return
    fitting: dict[str, Any] = {
        "layout": layout_hash.hex(),
        "buckets": [[len(parts.object), hashlib.sha256(parts.object).hexdigest()]],
        "bytes": len(parts.object),
    }
    try:
        records = list(parse_object(memoryview(parts.object))[2])
        fitting |= {"blocks": len(records), "changed": sum(record.count for record in records)}
    except SyncError:
        pass
    content |= {name: value for name, value in fitting.items() if name in content and dice.chance(95)}
    parts.manifest = _spelled(content, parts.manifest)


def _altered_json(document: bytes, dice: Dice) -> bytes:
    if dice.chance(8):
        return dice.pick(
            (document + b" ", document.replace(b":", b": ", 1), document[:-1], b"[]", b"\xff", b"[" * 9999)
        )
    content = _loaded(document)
    return _spelled(_altered_value(content, dice), document)


def _with_strange_tensor(document: bytes, dice: Dice) -> bytes:
    """A tensor whose fields are sound one by one, but not together."""
    content = _loaded(document)
    if not isinstance(content, dict) or not isinstance(content.get("tensors"), list) or not content["tensors"]:
        return document
    return _spelled(content | {"tensors": [dice.pick(_STRANGE_TENSORS), *content["tensors"][1:]]}, document)


def _as_anchor(document: bytes, dice: Dice) -> bytes:
    """A manifest that calls itself an anchor's, with or without what deltas have."""
    content = _loaded(document)
    if not isinstance(content, dict):
        return document
    content |= {"codec": "anchor"} if dice.chance(80) else {}
    content |= {"base": None} if dice.chance(80) else {}
    return _spelled(content | ({"digest_changes": ""} if dice.chance(50) else {}), document)


def _altered_value(value: Any, dice: Dice) -> Any:
    """The value with one change somewhere inside."""
    if isinstance(value, dict) and value and dice.chance(90):
        key = dice.pick(sorted(value))
        kind = dice.below(12)
        if kind == 0:
            return {name: inner for name, inner in value.items() if name != key}
        if kind == 1:
            return value | {"extra": value[key]}
        return value | {key: _altered_value(value[key], dice)}
    if isinstance(value, list) and value and dice.chance(85):
        at = dice.below(len(value))
        kind = dice.below(8)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value[: at + 1] + value[at:]
        if kind == 2:
            return value[::-1]
        return [*value[:at], _altered_value(value[at], dice), *value[at + 1 :]]
    if isinstance(value, int) and dice.chance(50):
        return value + dice.pick((-1, 1, 65_536))
    return dice.pick(_STRANGE)


def _loaded(document: bytes) -> Any:
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return None


def _spelled(content: Any, otherwise: bytes) -> bytes:
    try:
        return canonical_json(content)
    except (ValueError, RecursionError):
        return otherwise
