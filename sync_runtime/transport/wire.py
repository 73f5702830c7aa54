"""The frames of the wire: header, types, limits, and the binary bodies. PROTOCOL.md, sections 3 and 3.3.

Parses hostile bytes: a header is judged before a byte of its body is stored. Knows no socket, no clock and no JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sync_runtime.errors import FrameError

PROTOCOL_VERSIONS: Final = (1,)
ALPN: Final = "syncgroup/1"
KIB: Final = 1 << 10
MIB: Final = 1 << 20
MAX_BUCKET_BYTES: Final = 16 * MIB
MAX_BUCKETS: Final = 1 << 20
MAX_STREAMS: Final = 64
MAX_WARMING_FRAME_BYTES: Final = 64 * KIB
MAX_WARMING_BYTES: Final = 32 * MIB
"""Bytes of WARMING that a child takes in the life of a link: nobody may keep it busy with them."""
MAX_PAYLOAD_BYTES: Final = 64 * MIB
"""Of a prompt group or a result; the plan allows less, usually."""
MAX_TRANSFERS: Final = 8
"""Transfers of one link at a time."""

_HEADER: Final = struct.Struct("<BBHI")
_BUCKET: Final = struct.Struct("<IIQ32s")
_ACK: Final = struct.Struct("<II")
_TOKEN: Final = struct.Struct("<Q")
_TRANSFER: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
BUCKET_HEAD_BYTES: Final = _BUCKET.size
MAX_ACKED: Final = (64 * KIB - _ACK.size) // 4


class FrameType(IntEnum):
    """The types of frames."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    FOLLOW = 4
    WANT = 5
    DROP = 6
    ACK = 7
    NACK = 8
    STATUS = 9
    STREAMS = 16
    SIGNER = 17
    LAYOUT = 18
    HEAD = 19
    BEGIN = 20
    MANIFEST = 21
    ABORT = 22
    INDEX = 23
    TERM = 24
    BUCKET = 32
    WARMING = 33
    PING = 48
    PONG = 49
    HOLDING = 64
    TAKE = 65
    TASK = 66
    RESULT = 67
    VERDICT = 68
    RETURN = 69
    REVOKE = 70


LIMITS: Final[dict[FrameType, int]] = {
    FrameType.HELLO: 4 * KIB,
    FrameType.WELCOME: 4 * KIB,
    FrameType.REFUSE: 4 * KIB,
    FrameType.FOLLOW: 16 * KIB,
    FrameType.WANT: MIB,
    FrameType.DROP: 4 * KIB,
    FrameType.ACK: 64 * KIB,
    FrameType.NACK: 64,
    FrameType.STATUS: 64 * KIB,
    FrameType.STREAMS: 4 * KIB,
    FrameType.SIGNER: 64 * KIB,
    FrameType.LAYOUT: 64 * MIB,
    FrameType.HEAD: 4 * KIB,
    FrameType.BEGIN: 16 * KIB,
    FrameType.MANIFEST: 64 * MIB,
    FrameType.ABORT: 4 * KIB,
    FrameType.INDEX: MIB,
    FrameType.TERM: 4 * KIB,
    FrameType.BUCKET: MAX_BUCKET_BYTES + _BUCKET.size,
    FrameType.WARMING: MAX_WARMING_FRAME_BYTES,
    FrameType.PING: 8,
    FrameType.PONG: 8,
    FrameType.HOLDING: MIB,
    FrameType.TAKE: 4 * KIB,
    FrameType.TASK: MAX_PAYLOAD_BYTES + 16 * KIB,
    FrameType.RESULT: MAX_PAYLOAD_BYTES + 16 * KIB,
    FrameType.VERDICT: 8 * KIB,
    FrameType.RETURN: 4 * KIB,
    FrameType.REVOKE: 4 * KIB,
}
_BOTH = frozenset({FrameType.REFUSE, FrameType.PING, FrameType.PONG})
FROM_CHILD: Final = _BOTH | {
    FrameType.FOLLOW, FrameType.WANT, FrameType.DROP, FrameType.ACK, FrameType.NACK, FrameType.STATUS,
}  # fmt: skip
"""What a parent takes on a control connection, after the handshake."""
FROM_PARENT: Final = _BOTH | {
    FrameType.STREAMS, FrameType.SIGNER, FrameType.LAYOUT, FrameType.HEAD, FrameType.BEGIN, FrameType.MANIFEST,
    FrameType.ABORT, FrameType.INDEX, FrameType.TERM,
}  # fmt: skip
"""What a child takes there."""
ON_DATA: Final = frozenset({FrameType.BUCKET, FrameType.WARMING, FrameType.REFUSE})
"""What a child takes on a data stream."""
FROM_WORKER: Final = _BOTH | {FrameType.HOLDING, FrameType.TAKE, FrameType.RESULT, FrameType.RETURN}
"""What a trainer takes on a work connection."""
TO_WORKER: Final = _BOTH | {FrameType.TASK, FrameType.VERDICT, FrameType.REVOKE}
"""What a worker takes there."""
GREETING: Final = frozenset({FrameType.HELLO})
ANSWER: Final = frozenset({FrameType.WELCOME, FrameType.REFUSE})


@dataclass(frozen=True, slots=True)
class BucketHead:
    """What precedes the bytes of a bucket."""

    transfer: int
    index: int
    offset: int
    sha256: bytes
    size_bytes: int


def pack_header(kind: FrameType, length: int) -> bytes:
    """The eight bytes before a body."""
    if length > LIMITS[kind]:
        raise FrameError(
            f"a {kind.name} frame of {length} bytes is above its limit of {LIMITS[kind]}: send less at once"
        )
    return _HEADER.pack(kind, 0, 0, length)


def pack_frame(kind: FrameType, body: bytes = b"") -> bytes:
    """A whole frame."""
    return pack_header(kind, len(body)) + body


def parse_header(header: bytes | bytearray | memoryview, allowed: frozenset[FrameType]) -> tuple[FrameType, int]:
    """(type, length of the body); refuses what is not in `allowed` at this place."""
    number, flags, zero, length = _HEADER.unpack_from(header)
    try:
        kind = FrameType(number)
    except ValueError as error:
        raise FrameError(f"a frame of unknown type {number}") from error
    if flags or zero:
        raise FrameError(f"a {kind.name} frame with flags {flags:#x}/{zero:#x}; this protocol has none")
    if kind not in allowed:
        raise FrameError(f"a {kind.name} frame has no business here")
    if length > LIMITS[kind]:
        raise FrameError(f"a {kind.name} frame of {length} bytes; at most {LIMITS[kind]} are allowed")
    return kind, length


def pack_bucket_head(head: BucketHead) -> bytes:
    """Frame header and bucket header in one; the bucket's bytes follow."""
    if not 0 < head.size_bytes <= MAX_BUCKET_BYTES:
        raise FrameError(f"a bucket has 1 to {MAX_BUCKET_BYTES} bytes, not {head.size_bytes}")
    body = _BUCKET.pack(head.transfer, head.index, head.offset, head.sha256)
    return pack_header(FrameType.BUCKET, len(body) + head.size_bytes) + body


def parse_bucket_head(body: bytes | bytearray | memoryview, length: int) -> BucketHead:
    """The head of a BUCKET frame whose body has `length` bytes in all."""
    if length <= _BUCKET.size:
        raise FrameError("a bucket without bytes")
    transfer, index, offset, sha256 = _BUCKET.unpack_from(body)
    size_bytes = length - _BUCKET.size
    if index >= MAX_BUCKETS:
        raise FrameError(f"bucket {index}: an object has at most {MAX_BUCKETS}")
    if offset + size_bytes >= 1 << 63:
        raise FrameError(f"bucket {index} ends beyond any object")
    return BucketHead(transfer, index, offset, sha256, size_bytes)


def pack_acks(transfer: int, indices: Sequence[int]) -> Iterator[bytes]:
    """ACK frames, as many as the limit asks for."""
    for start in range(0, len(indices), MAX_ACKED):
        some = indices[start : start + MAX_ACKED]
        yield pack_frame(FrameType.ACK, _ACK.pack(transfer, len(some)) + struct.pack(f"<{len(some)}I", *some))


def parse_ack(body: bytes) -> tuple[int, tuple[int, ...]]:
    """(transfer, indices)."""
    if len(body) < _ACK.size:
        raise FrameError("an ACK that is cut off")
    transfer, count = _ACK.unpack_from(body)
    if not count or len(body) != _ACK.size + 4 * count:
        raise FrameError(f"an ACK of {count} buckets in {len(body)} bytes")
    return transfer, struct.unpack_from(f"<{count}I", body, _ACK.size)


def pack_nack(transfer: int, index: int) -> bytes:
    """A NACK frame."""
    return pack_frame(FrameType.NACK, _ACK.pack(transfer, index))


def parse_nack(body: bytes) -> tuple[int, int]:
    """(transfer, index)."""
    if len(body) != _ACK.size:
        raise FrameError(f"a NACK of {len(body)} bytes")
    transfer, index = _ACK.unpack(body)
    return transfer, index


def pack_manifest(transfer: int, envelope: bytes) -> bytes:
    """A MANIFEST frame."""
    return pack_frame(FrameType.MANIFEST, _TRANSFER.pack(transfer) + envelope)


def parse_manifest(body: bytes) -> tuple[int, bytes]:
    """(transfer, envelope); the envelope is not looked into."""
    if len(body) <= _TRANSFER.size:
        raise FrameError("a MANIFEST without a manifest")
    return _TRANSFER.unpack_from(body)[0], bytes(body[_TRANSFER.size :])


def pack_ping(kind: FrameType, token: int) -> bytes:
    """A PING or PONG frame."""
    return pack_frame(kind, _TOKEN.pack(token))


def parse_ping(body: bytes) -> int:
    """The number to echo."""
    if len(body) != _TOKEN.size:
        raise FrameError(f"a PING or PONG of {len(body)} bytes")
    token: int = _TOKEN.unpack(body)[0]
    return token


class FrameReader:
    """Cuts a byte stream into frames. Memory follows the bytes that really came, never what a header announces."""

    def __init__(self, allowed: frozenset[FrameType]) -> None:
        self._allowed = allowed
        self._buffer = bytearray()
        self._head: tuple[FrameType, int] | None = None

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer) or self._head is not None

    @property
    def missing_bytes(self) -> int:
        """How many bytes the frame that has begun, or the next header, still needs."""
        wanted = HEADER_BYTES if self._head is None else self._head[1]
        return wanted - len(self._buffer)

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[FrameType, bytes]]:
        """The frames that these bytes complete."""
        self._buffer += data
        while True:
            if self._head is None:
                if len(self._buffer) < HEADER_BYTES:
                    return
                self._head = parse_header(self._buffer, self._allowed)
                del self._buffer[:HEADER_BYTES]
            kind, length = self._head
            if len(self._buffer) < length:
                return
            body = bytes(memoryview(self._buffer)[:length])
            del self._buffer[:length]
            self._head = None
            yield kind, body
