"""Changes of a ledger as records of a journal, and back (PROTOCOL.md, section 11.4). Pure.

Parses what a crash may have left: the first record that is cut off or has another sum ends the journal.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any, Final

from sync_runtime.errors import WorkError
from sync_runtime.work.model import Begun, Change, Consumed, Done, Leased, Ordered, Returned, Submitted, WorkVersion

MAGIC: Final = b"SGW1"
_HEAD: Final = struct.Struct("<III")
_SIZES: Final = struct.Struct("<II")
MAX_HEADER_BYTES: Final = 16 << 10
MAX_PAYLOAD_BYTES: Final = 64 << 20
_KINDS: Final[dict[str, type[Any]]] = {
    "begun": Begun, "submitted": Submitted, "leased": Leased, "returned": Returned, "done": Done, "consumed": Consumed,
    "ordered": Ordered,
}  # fmt: skip
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def pack(change: Change) -> bytes:
    """One record."""
    content = asdict(change)
    payload: bytes = content.pop("payload", b"")
    header = json.dumps({"kind": _NAMES[type(change)], **content}, separators=(",", ":")).encode()
    sizes = _SIZES.pack(len(header), len(payload))
    return sizes + struct.pack("<I", zlib.crc32(payload, zlib.crc32(header, zlib.crc32(sizes)))) + header + payload


def parse(data: memoryview) -> Iterator[tuple[Change, int]]:
    """Changes behind the magic, each with the offset of its end, up to the first record that is not whole."""
    at = len(MAGIC)
    while len(data) - at >= _HEAD.size:
        header_bytes, payload_bytes, check = _HEAD.unpack_from(data, at)
        start, end = at + _HEAD.size, at + _HEAD.size + header_bytes + payload_bytes
        if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES or end > len(data):
            return
        if zlib.crc32(data[start:end], zlib.crc32(data[at : at + _SIZES.size])) != check:
            return
        yield _change(bytes(data[start : start + header_bytes]), bytes(data[start + header_bytes : end])), end
        at = end


def is_torn(data: memoryview, at: int) -> bool:
    """Whether what lies behind the last whole record is the beginning of one more: a write that a crash cut off."""
    if len(data) - at < _HEAD.size:
        return True
    header_bytes, payload_bytes, _ = _HEAD.unpack_from(data, at)
    is_possible = bool(header_bytes <= MAX_HEADER_BYTES and payload_bytes <= MAX_PAYLOAD_BYTES)
    return is_possible and at + _HEAD.size + header_bytes + payload_bytes > len(data)


def _change(header: bytes, payload: bytes) -> Change:
    """A record with a right sum is ours; one that cannot be read is of another release."""
    try:
        content = json.loads(header)
        kind = _KINDS[content.pop("kind")]
        if content.get("version") is not None:
            content["version"] = WorkVersion(**content["version"])
        if "payload" in {field.name for field in fields(kind)}:
            content["payload"] = payload
        made: Change = kind(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkError(f"the work ledger has a record that this release cannot read: {error}") from error
    return made
