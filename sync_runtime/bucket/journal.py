"""The journal of an object that is arriving: which buckets are verified and written, one fixed record each. Pure.

It lies beside the data, is appended to without fsync, and is believed only so far as the data still have the hashes it
names. Parses hostile bytes: the first record that is cut off or damaged ends it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MAX_BUCKETS, MAX_OBJECT_BYTES
from sync_runtime.bucket.objects import KeptBucket
from sync_runtime.errors import FormatError

_MAGIC = b"SGJ1"
_HEAD = struct.Struct("<4sI")
_RECORD = struct.Struct("<IIQ32s")
_CHECK = struct.Struct("<I")
RECORD_BYTES = _RECORD.size + _CHECK.size
MAX_JOURNAL_BYTES = 1024 + 4 * MAX_BUCKETS * RECORD_BYTES
"""Buckets may be written anew a few times before a journal is compacted."""


def pack_head(key: ObjectKey) -> bytes:
    """How the journal of an object begins."""
    text = key.text.encode("ascii")
    return _HEAD.pack(_MAGIC, len(text)) + text


def pack_record(bucket: KeptBucket) -> bytes:
    """One bucket."""
    record = _RECORD.pack(bucket.index, bucket.size_bytes, bucket.offset, bucket.sha256)
    return record + _CHECK.pack(zlib.crc32(record))


def pack_journal(key: ObjectKey, buckets: Iterable[KeptBucket]) -> bytes:
    """A whole journal."""
    return pack_head(key) + b"".join(pack_record(bucket) for bucket in buckets)


def parse_journal(data: bytes, key: ObjectKey) -> list[KeptBucket]:
    """The records before the first bad one; raises FormatError where it is not this object's journal."""
    head = pack_head(key)
    if not data.startswith(head):
        raise FormatError("the journal is not this object's")
    found = []
    for at in range(len(head), len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        record = data[at : at + _RECORD.size]
        (check,) = _CHECK.unpack_from(data, at + _RECORD.size)
        if zlib.crc32(record) != check:
            break
        index, size_bytes, offset, sha256 = _RECORD.unpack(record)
        bucket = KeptBucket(index, offset, size_bytes, sha256)
        if not is_possible(bucket):
            break
        found.append(bucket)
    return found


def is_possible(bucket: KeptBucket) -> bool:
    """Whether number, size and place are within the protocol's limits."""
    inside = 0 <= bucket.offset <= MAX_OBJECT_BYTES - bucket.size_bytes
    return 0 <= bucket.index < MAX_BUCKETS and 0 < bucket.size_bytes <= MAX_BUCKET_BYTES and inside
