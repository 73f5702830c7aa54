"""Anchor objects: full weights block by block, all of them or those that someone asks for.

Each block says which version it is of; bringing blocks of different versions level is the receiver's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from sync_runtime.bucket.manifest import NO_LINEAGE, Bucket, Manifest, Version
from sync_runtime.codec.cpu.anchor import anchor_bound_bytes, decode_anchor, encode_anchor
from sync_runtime.codec.frame import Header, Record, pack_entry, parse_object
from sync_runtime.codec.frame import truncated_layout_hash as short_hash
from sync_runtime.codec.limits import CODEC_ANCHOR, KIND_ANCHOR
from sync_runtime.errors import FormatError, LimitError
from sync_runtime.offline.objects import ObjectWriter, Sink, Totals
from sync_runtime.offline.pool import ordered_map
from sync_runtime.offline.staging import BoundState
from sync_runtime.tensors.bits import gather, scatter
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.sparse import Bits


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
        mode, parameter, body = encode_anchor(gather(block, state), block.dtype, seq)
        entry = pack_entry(block=number, mode=mode, parameter=parameter, count=block.num_elements, body_bytes=len(body))
        return entry + body, block.num_elements

    writer = ObjectWriter(sink, Header(KIND_ANCHOR, CODEC_ANCHOR, short_hash(blocks.layout.hash), 0))
    for record, count in ordered_map(encode, range(len(blocks)) if numbers is None else numbers, threads):
        writer.add(record, count)
    return writer.finish()


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
