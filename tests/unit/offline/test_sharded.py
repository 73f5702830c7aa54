"""Ranks that own slices of tensors write the bytes of a single rank, on any grid, without gathering."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.codec.cpu.blocks import encode_block
from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.frame import Header
from sync_runtime.codec.limits import CODEC_NUMBERS, KIND_DELTA
from sync_runtime.codec.tables import Histograms, build_tables, is_sampled, pack_tables
from sync_runtime.delta.cpu import extract_block
from sync_runtime.delta.digest import rectangle_digest
from sync_runtime.offline import diff, digest
from sync_runtime.offline.objects import ObjectWriter
from sync_runtime.tensors.bits import BitTensor, gather
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import Digest, tensor_keys, total
from sync_runtime.tensors.layout import Shards, make_layout
from tests.support.states import stepped, weights

ROWS, COLS = 420, 360


class Rank:
    """Holds a rectangle of the tensor in memory of its own and looks at nothing else."""

    def __init__(self, before: BitTensor, after: BitTensor, rows: slice, cols: slice) -> None:
        self._row, self._col = int(rows.start), int(cols.start)
        self._old = self._local(before, rows, cols)
        self._new = self._local(after, rows, cols)

    @staticmethod
    def _local(whole: BitTensor, rows: slice, cols: slice) -> dict[int, BitTensor]:
        part = whole.matrix[rows, cols].copy()
        return {0: BitTensor(whole.dtype, part.shape, part)}

    def owns(self, block: Block) -> bool:
        (piece,) = block.pieces
        row, col = piece.row_start - self._row, piece.col_start - self._col
        height, width = self._old[0].shape
        inside = 0 <= row and row + piece.num_rows <= height and 0 <= col and col + piece.num_cols <= width
        touches = row < height and row + piece.num_rows > 0 and col < width and col + piece.num_cols > 0
        assert inside or not touches, "a block leaves the rank's tile"
        return inside

    def local(self, block: Block) -> Block:
        (piece,) = block.pieces
        moved = piece._replace(row_start=piece.row_start - self._row, col_start=piece.col_start - self._col)
        return block._replace(pieces=(moved,))

    def look(self, block: Block, blocks: BlockMap) -> tuple[Histograms, Digest]:
        here = self.local(block)
        old, new = gather(here, self._old), gather(here, self._new)
        delta = extract_block(old, new, block.number)
        seen = count_block(old, delta.positions, delta.differences, block, sampled=is_sampled(blocks.groups[0]))
        (piece,) = block.pieces
        local = old.reshape(piece.num_rows, piece.num_cols)
        part = rectangle_digest(local, piece, tensor_keys(blocks.layout.tensors[0]))
        return (seen if delta.num_changed else Histograms()), part

    def encode(self, block: Block, codec: int, tables: object) -> tuple[bytes, int]:
        here = self.local(block)
        old, new = gather(here, self._old), gather(here, self._new)
        delta = extract_block(old, new, block.number)
        return encode_block(delta, block, codec, old=old, tables=tables), delta.num_changed  # type: ignore[arg-type]


@given(
    row_shard=st.integers(130, ROWS),
    col_shard=st.integers(130, COLS),
    codec=st.sampled_from(["fast", "tight"]),
    per_mille=st.sampled_from([1, 20, 300]),
)
@settings(max_examples=15, deadline=None)
@pytest.mark.timeout(20)
def test_any_grid_gives_the_same_bytes_from_one_rank_and_from_many(
    row_shard: int, col_shard: int, codec: str, per_mille: int
) -> None:
    before = weights((ROWS, COLS), row_shard)
    after = stepped(before, col_shard, per_mille)
    layout = make_layout(
        [("w", "BF16", (ROWS, COLS))], shards={"w": Shards(row_shard, col_shard)}, block_elements=1 << 15
    )
    blocks = BlockMap(layout)
    ranks = [
        Rank(before, after, slice(row, min(row + row_shard, ROWS)), slice(col, min(col + col_shard, COLS)))
        for row in range(0, ROWS, row_shard)
        for col in range(0, COLS, col_shard)
    ]
    owner = {block.number: next(rank for rank in ranks if rank.owns(block)) for block in blocks}
    summed, digests = Histograms(), []
    for block in blocks:
        seen, part = owner[block.number].look(block, blocks)
        summed.add(seen)
        digests.append(part)
    tables = build_tables(summed, blocks.groups)
    section = pack_tables(tables) if codec != "fast" else b""
    sink = io.BytesIO()
    number = CODEC_NUMBERS[codec]
    writer = ObjectWriter(sink, Header(KIND_DELTA, number, layout.hash[:16], len(section)), section)
    for block in blocks:
        writer.add(*owner[block.number].encode(block, number, tables))
    writer.finish()
    alone = diff({"w": before}, {"w": after}, codec=codec, layout=layout)
    assert sink.getvalue() == bytes(alone.object)
    assert total(digests) == digest({"w": before}) == alone.base.digest
