"""Frames of the local protocol: an eight-byte header and a JSON body. No sockets: bytes in, bytes out.

Bytes are hostile: type and length are checked before a body is waited for, and JSON has exactly one reading (no
duplicate fields, no floats).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

from sync_runtime.contract.strict_json import loads_strict
from sync_runtime.errors import LocalProtocolError

HEADER = struct.Struct("<BBHI")
MAX_DEPTH = 8


def pack_frame(kind: int, body: bytes) -> bytes:
    """Header and body."""
    return HEADER.pack(kind, 0, 0, len(body)) + body


def pack_json(content: object) -> bytes:
    """A body."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def parse_json(body: bytes) -> dict[str, Any]:
    """A body from the other end; raises LocalProtocolError."""
    try:
        content = loads_strict(body, MAX_DEPTH)
    except ValueError as error:
        raise LocalProtocolError(f"a message cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LocalProtocolError("a message is not a JSON object")
    return content


class FrameBuffer:
    """Cuts what arrives into frames; `limit_of` gives the limit of a type in bytes and refuses unknown types."""

    def __init__(self, limit_of: Callable[[int], int]) -> None:
        self._limit_of = limit_of
        self._bytes = bytearray()

    @property
    def has_part(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._bytes)

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
        """The frames that are complete now, as (type, body). Take all of them before the next call."""
        self._bytes += data
        at = 0
        try:
            while len(self._bytes) - at >= HEADER.size:
                kind, flags, reserved, length = HEADER.unpack_from(self._bytes, at)
                limit = self._limit_of(kind)
                if flags or reserved:
                    raise LocalProtocolError(f"a frame of type {kind} has bits set that must be zero")
                if length > limit:
                    raise LocalProtocolError(f"a frame of type {kind} has {length} bytes; the limit is {limit}")
                end = at + HEADER.size + length
                if len(self._bytes) < end:
                    break
                body = bytes(self._bytes[at + HEADER.size : end])
                at = end
                yield kind, body
        finally:
            del self._bytes[:at]
