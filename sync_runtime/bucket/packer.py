"""Cutting an object into buckets. Pure: sizes and slices, no files and no hashes.

Buckets shrink toward the end of an object, so that the last ones end together on all streams: whoever is late then is
late by a small bucket. Where the object's size is unknown while it is written, a tail is held back and cut at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sync_runtime.bucket.limits import MAX_BUCKET_BYTES, MAX_BUCKETS, MIN_BUCKET_BYTES
from sync_runtime.errors import LimitError

SHARES_PER_STREAM = 2
"""A bucket is at most this fraction of a stream's fair share of what is left."""


def cut_sizes(total_bytes: int, bucket_bytes: int, streams: int) -> list[int]:
    """The sizes of all buckets of `total_bytes` that `streams` streams will take in turn."""
    _check_bucket_bytes(bucket_bytes)
    shares = SHARES_PER_STREAM * max(1, streams)
    whole = max(0, (total_bytes - shares * bucket_bytes) // bucket_bytes)
    sizes = [bucket_bytes] * whole
    left = total_bytes - whole * bucket_bytes
    while left:
        size = min(bucket_bytes, left, max(MIN_BUCKET_BYTES, -(-left // shares)))
        if left - size < MIN_BUCKET_BYTES // 2 and left <= bucket_bytes:
            size = left  # no crumbs
        sizes.append(size)
        left -= size
    if len(sizes) > MAX_BUCKETS:
        raise LimitError(f"an object of {total_bytes} bytes has too many buckets of {bucket_bytes}: make them larger")
    return sizes


def tail_bytes(bucket_bytes: int, streams: int) -> int:
    """How much to hold back of a stream of unknown length so that its end can shrink as it should."""
    return SHARES_PER_STREAM * max(1, streams) * bucket_bytes


class Packer:
    """Cuts a stream whose length is not known: whole buckets at once, a tail at the end."""

    def __init__(self, bucket_bytes: int, tail: int = 0) -> None:
        _check_bucket_bytes(bucket_bytes)
        self._bucket_bytes = bucket_bytes
        self._held_bytes = tail
        self._chunks: deque[memoryview] = deque()
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes taken and not given out yet."""
        return self._waiting_bytes

    def add(self, data: bytes | bytearray | memoryview) -> Iterator[bytes | memoryview]:
        """Takes the next bytes; gives out what is certain to be whole buckets. Use it up."""
        kept = data if isinstance(data, bytes) else bytes(data)  # the caller may use its memory again
        if kept:
            self._chunks.append(memoryview(kept))
            self._waiting_bytes += len(kept)
        while self._waiting_bytes >= self._bucket_bytes + self._held_bytes:
            yield self._take(self._bucket_bytes)

    def finish(self, streams: int = 1) -> Iterator[bytes | memoryview]:
        """What was held back, in sizes that shrink."""
        for size in cut_sizes(self._waiting_bytes, self._bucket_bytes, streams):
            yield self._take(size)

    def _take(self, size: int) -> bytes | memoryview:
        self._waiting_bytes -= size
        parts = []
        while size:
            chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            parts.append(chunk)
            size -= len(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_bucket_bytes(bucket_bytes: int) -> None:
    if not MIN_BUCKET_BYTES <= bucket_bytes <= MAX_BUCKET_BYTES:
        raise LimitError(f"a bucket has {MIN_BUCKET_BYTES} to {MAX_BUCKET_BYTES} bytes, not {bucket_bytes}")
