"""Anchor objects: a whole state, or the blocks that a repair asks for."""

import io
from dataclasses import replace

import numpy as np
import pytest

from sync_runtime.bucket.manifest import Version, parse_manifest
from sync_runtime.codec.frame import END_RECORD, pack_header
from sync_runtime.delta.cpu import bits_digest, block_digest
from sync_runtime.errors import FormatError, SyncError
from sync_runtime.offline import diff, digest, layout_of
from sync_runtime.offline.anchors import (
    AnchorBlock,
    anchor_header,
    describe_anchor,
    raw_anchor_bytes,
    raw_record,
    read_anchor,
    write_anchor,
    write_block,
)
from sync_runtime.tensors.bits import BitTensor, bind, gather
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import total
from tests.support.states import copied, same_bits, small_state, weights


def prepared() -> tuple[dict[str, BitTensor], BlockMap]:
    state = small_state() | {"big": weights((500, 400), 9)}
    return state, BlockMap(layout_of(state, block_elements=1 << 16))


def zeros_like(state: dict[str, BitTensor]) -> dict[str, BitTensor]:
    return {name: replace(bits, matrix=np.zeros_like(bits.matrix)) for name, bits in state.items()}


def test_a_state_is_restored_from_its_anchor() -> None:
    state, blocks = prepared()
    sink, empty = io.BytesIO(), zeros_like(state)
    totals = write_anchor(sink, blocks, bind(blocks.layout, state), seq=12)
    for anchor in read_anchor(memoryview(sink.getvalue()), blocks):
        assert anchor.seq == 12
        write_block(anchor, bind(blocks.layout, empty))
    assert same_bits(empty, state)
    manifest = describe_anchor(blocks, totals, Version(12, digest(state)))
    assert parse_manifest(manifest.to_json()) == manifest
    assert (totals.num_blocks, totals.size_bytes) == (len(blocks), len(sink.getvalue()))


@pytest.mark.timeout(20)
def test_a_repair_asks_for_the_blocks_whose_digest_differs() -> None:
    state, blocks = prepared()
    damaged = copied(state)
    damaged["big"].matrix[333, 5] ^= np.uint16(4)
    layout = blocks.layout
    good, bad = bind(layout, state), bind(layout, damaged)
    wrong = [b.number for b in blocks if block_digest(b, good, layout) != block_digest(b, bad, layout)]
    assert len(wrong) == 1
    sink = io.BytesIO()
    write_anchor(sink, blocks, good, seq=3, numbers=wrong)
    for anchor in read_anchor(memoryview(sink.getvalue()), blocks):
        write_block(anchor, bad)
    assert digest(damaged) == digest(state)


def test_blocks_as_they_are_read_as_packed_ones_do() -> None:
    state, blocks = prepared()
    numbers = [0, 2, len(blocks) - 1]
    bound = bind(blocks.layout, state)
    wanted = [AnchorBlock(block, 7, gather(block, bound)) for block in map(blocks.block, numbers)]
    data = b"".join([pack_header(anchor_header(blocks)), *map(raw_record, wanted), END_RECORD])
    assert len(data) == raw_anchor_bytes(blocks, numbers)
    found = list(read_anchor(memoryview(data), blocks))
    assert [(one.block.number, one.seq) for one in found] == [(number, 7) for number in numbers]
    for one, right in zip(found, wanted, strict=True):
        assert (one.bits == right.bits).all()


def test_a_block_has_the_same_digest_without_a_state_around_it() -> None:
    state, blocks = prepared()
    bound = bind(blocks.layout, state)
    for block in blocks:
        parts = block_digest(block, bound, blocks.layout)
        assert bits_digest(block, gather(block, bound), blocks.layout) == total(parts.values())


def test_anchors_and_deltas_are_not_taken_for_each_other() -> None:
    state, blocks = prepared()
    delta = diff(state, state, layout=blocks.layout)
    with pytest.raises(FormatError, match="delta"):
        list(read_anchor(delta.object, blocks))
    sink = io.BytesIO()
    write_anchor(sink, blocks, bind(blocks.layout, state), seq=1)
    with pytest.raises(FormatError, match="anchor"):
        replace(delta, object=memoryview(sink.getvalue())).reader()


def test_truncated_anchors_and_those_of_other_layouts_are_refused() -> None:
    state, blocks = prepared()
    sink = io.BytesIO()
    write_anchor(sink, blocks, bind(blocks.layout, state), seq=1)
    data = sink.getvalue()
    for size in range(0, len(data), 9973):
        with pytest.raises(SyncError):
            list(read_anchor(memoryview(data[:size]), blocks, threads=1))
    with pytest.raises(FormatError, match="layout"):
        list(read_anchor(memoryview(data), BlockMap(layout_of(state))))
