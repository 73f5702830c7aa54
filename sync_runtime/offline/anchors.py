"""Anchor objects: full weights block by block, all of them or those that someone asks for.

Each block says which version it is of; bringing blocks of different versions level is the receiver's business.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from sync_runtime.bucket.manifest import NO_LINEAGE, Bucket, Manifest, Version
from sync_runtime.codec.cpu.anchor import anchor_bound_bytes, decode_anchor, encode_anchor
from sync_runtime.codec.frame import END_RECORD, Header, Record, pack_entry, parse_object
from sync_runtime.codec.frame import truncated_layout_hash as short_hash
from sync_runtime.codec.limits import CODEC_ANCHOR, ENTRY_BYTES, HEADER_BYTES, KIND_ANCHOR, MODE_RAW
from sync_runtime.errors import FormatError, LimitError
from sync_runtime.offline.objects import ObjectWriter, Sink, Totals
from sync_runtime.offline.pool import ordered_map
from sync_runtime.offline.staging import BoundState
from sync_runtime.tensors.bits import gather, scatter
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.sparse import Bits

_SEQ = struct.Struct("<Q")


class AnchorBlock(NamedTuple):
    """A block's absolute bits and the version they are of."""

    block: Block
    seq: int
    bits: Bits


def write_anchor(
    sink: Sink,
    blocks: BlockMap,
    state: BoundState,
    *,
    seq: int,
    numbers: Iterable[int] | None = None,
    threads: int | None = None,
) -> Totals:
    """Writes the blocks of these ascending numbers, or all."""

    def encode(number: int) -> tuple[bytes, int]:
        block = blocks.block(number)
        return packed_record(AnchorBlock(block, seq, gather(block, state))), block.num_elements

    writer = ObjectWriter(sink, anchor_header(blocks))
    for record, count in ordered_map(encode, range(len(blocks)) if numbers is None else numbers, threads):
        writer.add(record, count)
    return writer.finish()


def anchor_header(blocks: BlockMap) -> Header:
    """What stands in front of the blocks."""
    return Header(KIND_ANCHOR, CODEC_ANCHOR, short_hash(blocks.layout.hash), 0)


def packed_record(anchor: AnchorBlock) -> bytes:
    """A block as objects carry it."""
    block = anchor.block
    mode, parameter, body = encode_anchor(anchor.bits, block.dtype, anchor.seq)
    return (
        pack_entry(block=block.number, mode=mode, parameter=parameter, count=block.num_elements, body_bytes=len(body))
        + body
    )


def raw_record(anchor: AnchorBlock) -> bytes:
    """A block as it is, for a reader without an entropy coder."""
    block = anchor.block
    plain = np.ascontiguousarray(anchor.bits).astype(block.dtype.bits_dtype.newbyteorder("<"), copy=False).tobytes()
    body_bytes = anchor_bound_bytes(block.num_elements, block.dtype.width_bits)
    entry = pack_entry(block=block.number, mode=MODE_RAW, parameter=0, count=block.num_elements, body_bytes=body_bytes)
    return b"".join([entry, _SEQ.pack(anchor.seq), plain, bytes(-len(plain) % 4)])


def raw_anchor_bytes(blocks: BlockMap, numbers: Iterable[int]) -> int:
    """The size of an object with these blocks as they are."""
    bodies = (blocks.block(number) for number in numbers)
    records = (ENTRY_BYTES + anchor_bound_bytes(one.num_elements, one.dtype.width_bits) for one in bodies)
    return HEADER_BYTES + sum(records) + len(END_RECORD)


def read_anchor(data: memoryview, blocks: BlockMap, threads: int | None = None) -> Iterator[AnchorBlock]:
    """The blocks of an anchor from anywhere, ascending; raises FormatError."""
    header, _, records = parse_object(data)
    if header.kind != KIND_ANCHOR:
        raise FormatError("this object is a delta, not an anchor")
    if header.layout_hash != short_hash(blocks.layout.hash):
        raise FormatError("the object was written under another layout")
    yield from ordered_map(lambda record: decode_record(record, blocks.block(record.block)), records, threads)


def decode_record(record: Record, block: Block) -> AnchorBlock:
    """One block of an anchor."""
    if record.count != block.num_elements:
        raise FormatError(f"block {block.number} has {block.num_elements} elements, not {record.count}")
    if len(record.body) > anchor_bound_bytes(block.num_elements, block.dtype.width_bits):
        raise LimitError(f"block {block.number} has more bytes than it would have raw")
    seq, bits = decode_anchor(
        record.body, mode=record.mode, parameter=record.parameter, dtype=block.dtype, count=record.count
    )
    return AnchorBlock(block, seq, bits)


def describe_anchor(blocks: BlockMap, totals: Totals, target: Version, lineage: str = NO_LINEAGE) -> Manifest:
    """The manifest of a whole anchor."""
    return Manifest(
        codec="anchor",
        layout_hash=blocks.layout.hash.hex(),
        base=None,
        target=target,
        num_blocks=totals.num_blocks,
        num_changed=totals.num_changed,
        buckets=(Bucket(totals.size_bytes, totals.sha256),),
        digest_changes=(),
        lineage=lineage,
    )


def write_block(anchor: AnchorBlock, state: BoundState) -> None:
    """Writes a block's bits into a state: joining, or repairing one block."""
    scatter(anchor.block, state, np.arange(anchor.block.num_elements, dtype=np.uint32), anchor.bits)
