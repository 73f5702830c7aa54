"""Objects of several ranks as one: records are taken off each rank's stream and put into block order.

Bytes of a rank are checked as far as joining needs: frame, order, owner, sizes. What records mean is for who decodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from sync_runtime.codec.frame import END_RECORD, Header, parse_header, unpack_entry
from sync_runtime.codec.frame import truncated_layout_hash as short_hash
from sync_runtime.codec.limits import (
    CODEC_ANCHOR,
    CODEC_FAST,
    CODEC_NAMES,
    CODEC_NUMBERS,
    CODEC_TIGHT,
    END_BLOCK,
    ENTRY_BYTES,
    HEADER_BYTES,
    KIND_ANCHOR,
    KIND_DELTA,
    MODES_OF_CODEC,
    max_body_bytes,
)
from sync_runtime.errors import FormatError, TruncatedError
from sync_runtime.session.ranks.parts import Owners


def header_of(owners: Owners, codec: str, tables: bytes = b"") -> Header:
    """What every rank's object, and the joined one, begins with; raises FormatError for a codec of whole objects."""
    number = CODEC_NUMBERS.get(codec, CODEC_ANCHOR)
    if number not in (CODEC_ANCHOR, CODEC_FAST, CODEC_TIGHT):
        raise FormatError(f"objects of several ranks are coded fast or tight, not {codec}: that compares whole objects")
    kind = KIND_ANCHOR if number == CODEC_ANCHOR else KIND_DELTA
    return Header(kind, number, short_hash(owners.blocks.layout.hash), len(tables))


class RecordFeed:
    """One rank's object as it arrives: whole records wait here to be joined."""

    def __init__(self, rank: int, header: Header, owners: Owners, tables: bytes = b"") -> None:
        self._rank, self._header, self._owners, self._tables = rank, header, owners, tables
        self._data = bytearray()
        self._last = -1
        self._begun = False
        self.ended = False
        """Whether the end record has come."""
        self._records: deque[tuple[int, bytes]] = deque()
        self.waiting_bytes = 0
        """Of whole records."""

    @property
    def next_block(self) -> int | None:
        """The number of the first record that waits; beyond all blocks at the end; None: it has not come yet."""
        if self._records:
            return self._records[0][0]
        return END_BLOCK if self.ended else None

    def take(self) -> bytes:
        """The first record."""
        _, record = self._records.popleft()
        self.waiting_bytes -= len(record)
        return record

    def feed(self, data: memoryview) -> None:
        """The next bytes; raises SyncError where they are no object of this rank."""
        self._data += data
        at = 0
        front = HEADER_BYTES + len(self._tables)
        if not self._begun and len(self._data) >= front:
            self._begin(bytes(self._data[:front]))
            at = front
        while self._begun and not self.ended and (size := self._record_bytes(at)):
            if self.ended:
                at += size
                break
            record = bytes(memoryview(self._data)[at : at + size])
            self._records.append((self._last, record))
            self.waiting_bytes += size
            at += size
        del self._data[:at]
        if self.ended and self._data:
            raise FormatError(f"bytes of rank {self._rank} follow its end record")

    def finish(self) -> None:
        """The stream is over."""
        if not self.ended:
            raise TruncatedError(f"the object of rank {self._rank} ends without its end record")

    def _begin(self, head: bytes) -> None:
        if parse_header(memoryview(head[:HEADER_BYTES])) != self._header:
            codec = CODEC_NAMES[self._header.codec]
            raise FormatError(f"rank {self._rank} sent another kind of object, or layout: {codec} was agreed on")
        if head[HEADER_BYTES:] != self._tables:
            raise FormatError(f"rank {self._rank} coded under other tables than those of all ranks' counts")
        self._begun = True

    def _record_bytes(self, at: int) -> int:
        """Size of the record at a byte, where all of it is here; 0: wait for more."""
        if len(self._data) - at < ENTRY_BYTES:
            return 0
        entry = unpack_entry(self._data, at)
        if entry.block == END_BLOCK:
            if self._data[at : at + ENTRY_BYTES] != END_RECORD:
                raise FormatError(f"the end record of rank {self._rank} is not zero")
            self.ended = True
            return ENTRY_BYTES
        if entry.block <= self._last:
            raise FormatError(f"rank {self._rank} sent block {entry.block} after block {self._last}: numbers ascend")
        self._owners.check(self._rank, entry.block)
        if entry.mode not in MODES_OF_CODEC[self._header.codec] or entry.reserved or not entry.num_elements:
            raise FormatError(f"the entry of block {entry.block} of rank {self._rank} is malformed")
        limit_bytes = max_body_bytes(self._owners.blocks.block(entry.block).num_elements)
        if entry.body_bytes % 4 or entry.body_bytes > limit_bytes:
            raise FormatError(f"block {entry.block} of rank {self._rank} has {entry.body_bytes} bytes: too many")
        if len(self._data) - at - ENTRY_BYTES < entry.body_bytes:
            return 0
        self._last = entry.block
        return ENTRY_BYTES + entry.body_bytes


def next_records(feeds: Collection[RecordFeed], most_bytes: int) -> bytes:
    """Records that come next in block order, as far as they are known to be next; about so many bytes at most."""
    found = bytearray()
    while len(found) < most_bytes:
        numbers = [feed.next_block for feed in feeds]
        if any(number is None for number in numbers):
            break
        first = min(feeds, key=lambda feed: feed.next_block or 0)
        if first.next_block == END_BLOCK:
            break
        found += first.take()
    return bytes(found)


def all_taken(feeds: Collection[RecordFeed]) -> bool:
    """Whether every rank's object has ended and nothing waits."""
    return all(feed.next_block == END_BLOCK for feed in feeds)


class RecordSplitter:
    """An object on its way to several ranks: each gets its header and tables, and the records that it wants."""

    def __init__(self, wanted: Mapping[int, Callable[[int], bool]]) -> None:
        self._wanted = wanted
        self._data = bytearray()
        self._left = -1
        """Bytes of the current part (header's tables, a body) that are still to come; -1: the header is."""
        self._to: list[int] = list(wanted)

    def feed(self, data: bytes | memoryview) -> dict[int, bytes]:
        """The next bytes, by rank."""
        self._data += data
        found = {rank: bytearray() for rank in self._wanted}
        while self._step(found):
            continue
        return {rank: bytes(part) for rank, part in found.items() if part}

    def _step(self, found: dict[int, bytearray]) -> bool:
        """Hands on one header, entry or part of a body; False: more bytes are needed."""
        if self._left > 0:
            return self._give(found, min(self._left, len(self._data)), self._left)
        size = HEADER_BYTES if self._left < 0 else ENTRY_BYTES
        if len(self._data) < size:
            return False
        if self._left < 0:
            self._left = parse_header(memoryview(bytes(self._data[:size]))).tables_bytes
            self._to = list(self._wanted)
        else:
            entry = unpack_entry(self._data)
            self._left = entry.body_bytes
            is_end = entry.block == END_BLOCK
            self._to = [rank for rank, wants in self._wanted.items() if is_end or wants(entry.block)]
        left = self._left
        self._give(found, size, size)
        self._left = left
        return True

    def _give(self, found: dict[int, bytearray], size: int, left: int) -> bool:
        if not size:
            return False
        for rank in self._to:
            found[rank] += self._data[:size]
        del self._data[:size]
        self._left = left - size
        return True
