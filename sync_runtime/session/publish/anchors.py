"""Anchors of the trainer's weights, batch by batch: whole ones for joiners, some blocks for a repair.

The weights come from whoever has them, as of the newest version; training goes on meanwhile, so each batch is brought
back to the version that was asked for by the deltas in between, which need no base. A whole anchor is signed only once
its full digest is the version's. Nothing of one that fails stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sync_runtime.bucket.keys import ObjectKey, delta_key, repair_key
from sync_runtime.bucket.manifest import Version, pack_envelope
from sync_runtime.bucket.spool import ObjectWriter, Spool
from sync_runtime.codec.cpu.merge import merge_block
from sync_runtime.delta.cpu import bits_digest
from sync_runtime.errors import ChainError, DigestError
from sync_runtime.offline.anchors import AnchorBlock, anchor_header, describe_anchor, packed_record
from sync_runtime.offline.chain import Chain
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.objects import ObjectWriter as RecordWriter
from sync_runtime.offline.pool import ordered_map
from sync_runtime.offline.staging import apply_differences
from sync_runtime.session.publish.asking import Answer
from sync_runtime.session.publish.context import Standing, TrainerContext
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import ZERO, Digest, parse_digest
from sync_runtime.tensors.layout import Layout
from sync_runtime.tensors.sparse import inverted

BATCH_BYTES = 16 << 20
"""Asked for at a time: a publish that comes in between waits for no more than this."""
Fetch = Callable[[BlockMap, Sequence[int]], Awaitable[Answer]]
"""Blocks of ascending numbers, of the newest version."""


@dataclass(frozen=True)
class Order:
    """An anchor to be made."""

    key: ObjectKey
    target: Version
    layout: Layout
    numbers: Sequence[int]

    @property
    def is_whole(self) -> bool:
        """Whether it brings all blocks."""
        return self.key.part is None


def ordered(
    context: TrainerContext, standing: Standing, key: ObjectKey, ranges: Sequence[Sequence[int]] | None
) -> Order:
    """What a key and the blocks beside it ask for; raises ChainError where the weights cannot lead there."""
    digest = context.versions.digest(key.target)
    if key.lineage != standing.version.lineage or key.target_seq > standing.version.seq or digest is None:
        raise ChainError(f"{key} cannot be made: the publisher stands on another version")
    if ranges is None and key.part is None:
        numbers: Sequence[int] = range(BlockMap(standing.layout).num_blocks)
    elif ranges and key == repair_key(key.target, ranges):
        numbers = _numbers(ranges, BlockMap(standing.layout).num_blocks)
    else:
        raise ChainError(f"{key} cannot be made: its number is not that of the blocks which were asked for")
    return Order(key, Version(key.target_seq, parse_digest(digest)), standing.layout, numbers)


class AnchorMaker:
    """Makes anchors, one at a time and each once."""

    def __init__(self, context: TrainerContext, fetch: Fetch) -> None:
        self._context, self._fetch = context, fetch
        self._turn = asyncio.Lock()

    async def make(self, order: Order) -> None:
        """Returns when it is in the spool; raises SyncError."""
        async with self._turn:
            if self._context.spool.stored(order.key) is None:
                await self._make(order)

    async def _make(self, order: Order) -> None:
        context, blocks = self._context, BlockMap(order.layout)
        layout_hash, size_bytes = order.layout.hash.hex(), context.bucket_bytes()
        writer = await asyncio.to_thread(
            context.spool.create, order.key, layout_hash, size_bytes, streams=context.streams()
        )
        try:
            coding = _Coding(context.spool, order, blocks, writer)
            for numbers in batches(blocks, order.numbers, BATCH_BYTES):
                answer = await self._fetch(blocks, numbers)
                await asyncio.to_thread(coding.add, answer)
            await asyncio.to_thread(coding.commit, context.sign)
        finally:
            writer.abort()  # does nothing once it is committed


def batches(blocks: BlockMap, numbers: Sequence[int], most_bytes: int) -> Iterator[list[int]]:
    """Consecutive numbers whose blocks do not exceed the most together, at least one each."""
    batch: list[int] = []
    size_bytes = 0
    for number in numbers:
        block = blocks.block(number)
        own_bytes = block.num_elements * block.dtype.width_bytes
        if batch and size_bytes + own_bytes > most_bytes:
            yield batch
            batch, size_bytes = [], 0
        batch.append(number)
        size_bytes += own_bytes
    if batch:
        yield batch


class _Coding:
    """Blocks on their way into an object; for threads, one call at a time."""

    def __init__(self, spool: Spool, order: Order, blocks: BlockMap, writer: ObjectWriter) -> None:
        self._spool, self._order, self._blocks, self._writer = spool, order, blocks, writer
        self._records = RecordWriter(writer, anchor_header(blocks))
        self._digest = ZERO
        self._since: Chain | None = None
        """The deltas from the wanted version to that of the last answer; None: it was the wanted one."""
        self._since_numbers: frozenset[int] = frozenset()
        self._seq = order.target.seq

    def add(self, answer: Answer) -> None:
        """The next blocks."""
        if answer.version.lineage != self._order.key.lineage or answer.version.seq < self._seq:
            raise ChainError(f"{self._order.key} cannot be made: the publisher went another way meanwhile")
        if answer.version.seq > self._seq:
            self._follow(answer.version.seq)
        for record, count, digest in ordered_map(self._coded, answer.blocks, None):
            self._records.add(record, count)
            self._digest = self._digest.plus(digest)

    def commit(self, sign: Callable[[bytes], bytes]) -> None:
        """Checks the whole, signs, makes durable."""
        order = self._order
        if order.is_whole and self._digest != order.target.digest:
            raise DigestError(f"the weights for {order.key} do not have the version's digest: the library's are others")
        totals = self._records.finish()
        self._writer.finish()
        manifest = describe_anchor(self._blocks, totals, order.target, order.key.lineage)
        document = replace(manifest, buckets=self._writer.buckets).to_json()
        self._writer.commit(pack_envelope(document, sign(document)))

    def _follow(self, seq: int) -> None:
        """A version became durable since the last answer: the way back from it."""
        order = self._order
        keys = [delta_key(order.key.lineage, at, at + 1) for at in range(order.target.seq, seq)]
        found = [self._spool.stored(key) for key in keys]
        links = [stored for stored in found if stored is not None]
        if len(links) != len(keys):
            raise ChainError(f"{order.key} cannot be made: a delta since its version is not kept any more")
        self._since = Chain([Delta(order.layout, stored.manifest, stored.view()) for stored in links], None)
        self._since_numbers = frozenset(self._since.numbers)
        self._seq = seq

    def _coded(self, anchor: AnchorBlock) -> tuple[bytes, int, Digest]:
        block, bits = anchor.block, anchor.bits
        if self._since is not None and block.number in self._since_numbers:
            forth = merge_block(self._since.parts(block), block)
            bits = apply_differences(bits, inverted(forth, block.dtype.width_bits))
        record = packed_record(AnchorBlock(block, self._order.target.seq, bits))
        return record, block.num_elements, bits_digest(block, bits, self._order.layout)


def _numbers(ranges: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Block numbers of ranges from a child; raises ChainError where they do not ascend inside the layout."""
    end = -1
    for first, last in ranges:
        if not end < first < last <= limit:
            raise ChainError("the blocks that were asked for do not exist, or do not ascend")
        end = last
    return [number for first, last in ranges for number in range(first, last)]
