"""Writes and reads whole objects block by block: where sparse blocks meet the coder.

A writer hands bytes to a sink as they are ready. `tight` needs statistics of all blocks before the first one: each
block is kept as `fast` bytes in between, which are small, so memory stays near the size of the delta.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sync_runtime.codec.cpu.blocks import decode_block, encode_block
from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.frame import END_RECORD, Header, Record, pack_header, parse_object, parse_records
from sync_runtime.codec.frame import truncated_layout_hash as short_hash
from sync_runtime.codec.limits import CODEC_AUTO, CODEC_FAST, KIND_DELTA
from sync_runtime.codec.tables import Histograms, Tables, build_tables, is_sampled, pack_tables, parse_tables
from sync_runtime.errors import FormatError
from sync_runtime.offline.pool import ordered_map
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.sparse import Bits, SparseBlock


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> object:
        """Takes the next bytes."""


@dataclass(frozen=True)
class Totals:
    """What is known when an object is complete."""

    codec: int
    size_bytes: int
    sha256: str
    num_blocks: int
    num_changed: int


class ObjectWriter:
    """Writes one object to a sink and adds up what its manifest will say."""

    def __init__(self, sink: Sink, header: Header, tables: bytes = b"") -> None:
        self._sink = sink
        self._codec = header.codec
        self._hash = hashlib.sha256()
        self._size_bytes, self._num_blocks, self._num_changed = 0, 0, 0
        self._put(pack_header(header) + tables)

    def add(self, record: bytes, count: int) -> None:
        """One block's entry and body; no bytes for a block that did not change."""
        if record:
            self._put(record)
            self._num_blocks += 1
            self._num_changed += count

    def finish(self) -> Totals:
        """Writes the end."""
        self._put(END_RECORD)
        return Totals(self._codec, self._size_bytes, self._hash.hexdigest(), self._num_blocks, self._num_changed)

    def _put(self, data: bytes) -> None:
        self._sink.write(data)
        self._hash.update(data)
        self._size_bytes += len(data)


@dataclass(frozen=True)
class Source:
    """Where an encoder finds a block: its differences, and its old elements for tight."""

    numbers: Iterable[int]
    """Ascending numbers of the blocks to look at."""
    sparse: Callable[[Block], SparseBlock]
    old: Callable[[Block], Bits] | None = None


def write_object(sink: Sink, blocks: BlockMap, codec: int, source: Source, threads: int | None = None) -> Totals:
    """Encodes a delta in the canonical way. Asked for auto, it writes fast where that is not larger."""
    if codec == CODEC_FAST:
        return _written(sink, blocks, codec, b"", ordered_map(_fast_coder(blocks, source), source.numbers, threads))
    kept, tables = _first_pass(blocks, source, threads)
    section = pack_tables(tables)
    encoded = ordered_map(lambda item: _recode(item[0], blocks, codec, source, tables), kept, threads)
    if codec == CODEC_AUTO:
        listed = list(encoded)
        if sum(len(raw) for raw, _ in kept) <= len(section) + sum(len(raw) for raw, _ in listed):
            return _written(sink, blocks, CODEC_FAST, b"", kept)
        encoded = iter(listed)
    return _written(sink, blocks, codec, section, encoded)


def _written(sink: Sink, blocks: BlockMap, codec: int, section: bytes, records: Iterable[tuple[bytes, int]]) -> Totals:
    header = Header(KIND_DELTA, codec, short_hash(blocks.layout.hash), len(section))
    writer = ObjectWriter(sink, header, section)
    for record, count in records:
        writer.add(record, count)
    return writer.finish()


def _fast_coder(blocks: BlockMap, source: Source) -> Callable[[int], tuple[bytes, int]]:
    def encode(number: int) -> tuple[bytes, int]:
        block = blocks.block(number)
        delta = source.sparse(block)
        return encode_block(delta, block, CODEC_FAST), delta.num_changed

    return encode


def _first_pass(blocks: BlockMap, source: Source, threads: int | None) -> tuple[list[tuple[bytes, int]], Tables]:
    """Every changed block as fast bytes with its count, and the tables of the whole."""

    def look(number: int) -> tuple[bytes, int, Histograms | None]:
        block = blocks.block(number)
        delta = source.sparse(block)
        if not delta.num_changed:
            return b"", 0, None
        sampled = is_sampled(blocks.groups[block.group])
        seen = count_block(_old(source, block), delta.positions, delta.differences, block, sampled=sampled)
        return encode_block(delta, block, CODEC_FAST), delta.num_changed, seen

    kept, histograms = [], Histograms()
    for record, count, seen in ordered_map(look, source.numbers, threads):
        if seen is not None:
            kept.append((record, count))
            histograms.add(seen)
    return kept, build_tables(histograms, blocks.groups)


def _recode(raw: bytes, blocks: BlockMap, codec: int, source: Source, tables: Tables) -> tuple[bytes, int]:
    record = next(parse_records(memoryview(raw), CODEC_FAST))
    block = blocks.block(record.block)
    delta = decode_block(record, block)
    return encode_block(delta, block, codec, old=_old(source, block), tables=tables), record.count


def _old(source: Source, block: Block) -> Bits:
    if source.old is None:
        raise FormatError("this codec needs the old weights")
    return source.old(block)


class ObjectReader:
    """A delta object from anywhere, checked against a layout as it is read."""

    def __init__(self, data: memoryview, blocks: BlockMap) -> None:
        header, section, records = parse_object(data)
        if header.kind != KIND_DELTA:
            raise FormatError("this object is an anchor, not a delta")
        if header.layout_hash != short_hash(blocks.layout.hash):
            raise FormatError("the object was written under another layout")
        self.codec = header.codec
        self.blocks = blocks
        self.tables = parse_tables(section, blocks.groups)
        self._records = records

    def records(self) -> Iterator[tuple[Block, Record]]:
        """Blocks with their records, ascending; once."""
        for record in self._records:
            yield self.blocks.block(record.block), record

    def raw_records(self) -> Iterator[Record]:
        """The same without a look at the layout: the blocks may not exist. Once, instead of `records`."""
        return self._records

    def decode(self, block: Block, record: Record, old: Bits | None) -> SparseBlock:
        """A record's differences; the old elements are used by tight records only."""
        return decode_block(record, block, old=old, tables=self.tables)
