"""The frame of an object: header, tables section, block records, end (FORMAT.md, section 5).

Parses hostile bytes: every size is checked against the bytes at hand and the limits before it is used, and nothing is
allocated here but views. Knows no layout: whether a block exists is the caller's question.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sync_runtime.codec.limits import (
    CODEC_ANCHOR,
    CODEC_AUTO,
    CODEC_NAMES,
    CODEC_TIGHT,
    END_BLOCK,
    ENTRY_BYTES,
    FORMAT_VERSION,
    HEADER_BYTES,
    KIND_ANCHOR,
    KIND_DELTA,
    LAYOUT_HASH_BYTES,
    MAX_TABLES_BYTES,
    MODES_OF_CODEC,
    OBJECT_MAGIC,
)
from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError

_HEADER = struct.Struct("<4sHBB16sII")
_ENTRY = struct.Struct("<IBBHII")
_WITH_TABLES = (CODEC_TIGHT, CODEC_AUTO)


class Header(NamedTuple):
    """What stands at the front of an object."""

    kind: int
    codec: int
    layout_hash: bytes
    """The first 16 bytes."""
    tables_bytes: int


@dataclass(frozen=True, slots=True)
class Record:
    """One block in bytes. `count` is the number of changed elements; in anchors, of all elements."""

    block: int
    mode: int
    parameter: int
    count: int
    body: memoryview


def pack_header(header: Header) -> bytes:
    """The 32 bytes of a header."""
    return _HEADER.pack(
        OBJECT_MAGIC, FORMAT_VERSION, header.kind, header.codec, header.layout_hash, header.tables_bytes, 0
    )


class Entry(NamedTuple):
    """What stands in front of a body, not checked."""

    block: int
    mode: int
    parameter: int
    reserved: int
    num_elements: int
    body_bytes: int


def unpack_entry(data: bytes | bytearray | memoryview, at: int = 0) -> Entry:
    """The entry at a byte, where 16 are."""
    return Entry(*_ENTRY.unpack_from(data, at))


def pack_entry(*, block: int, mode: int, parameter: int, count: int, body_bytes: int) -> bytes:
    """The 16 bytes in front of a body."""
    return _ENTRY.pack(block, mode, parameter, 0, count, body_bytes)


END_RECORD = _ENTRY.pack(END_BLOCK, 0, 0, 0, 0, 0)


def parse_header(data: memoryview) -> Header:
    """Reads and checks a header."""
    if len(data) < HEADER_BYTES:
        raise TruncatedError(f"an object has at least {HEADER_BYTES} bytes, here are {len(data)}")
    magic, version, kind, codec, layout_hash, tables_bytes, reserved = _HEADER.unpack_from(data)
    if magic != OBJECT_MAGIC:
        raise FormatError("these bytes are not an object: the magic is missing")
    if version != FORMAT_VERSION:
        raise UnknownFormatError(f"the object has format version {version}; this reader knows {FORMAT_VERSION}")
    if kind not in (KIND_DELTA, KIND_ANCHOR) or codec not in CODEC_NAMES:
        raise UnknownFormatError(f"the object has kind {kind} and codec {codec}, which this reader does not know")
    if (kind == KIND_ANCHOR) != (codec == CODEC_ANCHOR):
        raise FormatError("kind and codec of the object contradict each other")
    if reserved or (tables_bytes and codec not in _WITH_TABLES):
        raise FormatError("a field of the header that must be zero is not")
    if tables_bytes > MAX_TABLES_BYTES:
        raise LimitError(f"the tables have {tables_bytes} bytes; the limit is {MAX_TABLES_BYTES}")
    return Header(kind, codec, bytes(layout_hash), tables_bytes)


def parse_object(data: memoryview) -> tuple[Header, memoryview, Iterator[Record]]:
    """Header, tables section and the records, which are checked as they are taken."""
    header = parse_header(data)
    tables_end = HEADER_BYTES + header.tables_bytes
    if len(data) < tables_end:
        raise TruncatedError("the object ends inside its tables")
    return header, data[HEADER_BYTES:tables_end], parse_records(data[tables_end:], header.codec)


def parse_records(data: memoryview, codec: int) -> Iterator[Record]:
    """The block records up to the end record; nothing may follow it."""
    at, previous = 0, -1
    while True:
        if len(data) - at < ENTRY_BYTES:
            raise TruncatedError("the object ends without its end record")
        block, mode, parameter, reserved, count, body_bytes = _ENTRY.unpack_from(data, at)
        at += ENTRY_BYTES
        if block == END_BLOCK:
            break
        if block <= previous:
            raise FormatError(f"block {block} follows block {previous}: numbers must ascend")
        if mode not in MODES_OF_CODEC[codec]:
            raise UnknownFormatError(f"block {block} has mode {mode}, which {CODEC_NAMES[codec]} does not use")
        if reserved or body_bytes % 4 or not count:
            raise FormatError(f"the entry of block {block} is malformed")
        if len(data) - at < body_bytes:
            raise TruncatedError(f"the object ends inside block {block}")
        yield Record(block, mode, parameter, count, data[at : at + body_bytes])
        at += body_bytes
        previous = block
    if mode or parameter or reserved or count or body_bytes:
        raise FormatError("the end record is not zero")
    if at != len(data):
        raise FormatError(f"{len(data) - at} bytes follow the end record")


def truncated_layout_hash(layout_hash: bytes) -> bytes:
    """What an object repeats of the layout hash."""
    return layout_hash[:LAYOUT_HASH_BYTES]
