"""`tight` blocks: exact at every density and width, small, and unforgiving about the base."""

from dataclasses import replace

import numpy as np
import pytest

from sync_runtime.codec.cpu import steps
from sync_runtime.codec.cpu.blocks import decode_block, encode_block
from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.frame import END_RECORD, Record, parse_records
from sync_runtime.codec.limits import CODEC_AUTO, CODEC_FAST, CODEC_TIGHT, MODE_DENSE, MODE_TIGHT
from sync_runtime.codec.rules import position_lanes_log2, value_lanes
from sync_runtime.codec.tables import Histograms, Tables, build_tables, pack_tables, parse_tables
from sync_runtime.delta.cpu import extract_block
from sync_runtime.errors import FormatError, LayoutError, MissingBaseError
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.layout import make_layout
from sync_runtime.tensors.sparse import Bits, SparseBlock
from tests.support.states import noise, stepped, tensor, weights


def block_of(dtype_name: str, count: int) -> tuple[BlockMap, Block]:
    blocks = BlockMap(make_layout([("w", dtype_name, (count,))], block_elements=1 << 20))
    return blocks, blocks.block(0)


def tables_for(blocks: BlockMap, block: Block, old: Bits, delta: SparseBlock) -> Tables:
    seen = count_block(old, delta.positions, delta.differences, block, sampled=False)
    section = pack_tables(build_tables(seen, blocks.groups))
    return parse_tables(memoryview(section), blocks.groups)


def record_of(raw: bytes, codec: int) -> Record:
    return next(parse_records(memoryview(raw + END_RECORD), codec))


def coded(dtype_name: str, old: Bits, new: Bits, codec: int = CODEC_TIGHT) -> tuple[Record, Block, Tables]:
    blocks, block = block_of(dtype_name, old.size)
    delta = extract_block(old, new, 0)
    tables = tables_for(blocks, block, old, delta)
    record = record_of(encode_block(delta, block, codec, old=old, tables=tables), codec)
    found = decode_block(record, block, old=old, tables=tables)
    assert np.array_equal(found.positions, delta.positions)
    assert np.array_equal(found.differences, delta.differences)
    return record, block, tables


@pytest.mark.parametrize("per_mille", [1, 3, 10, 30, 100, 500, 1000])
def test_every_density_survives(per_mille: int) -> None:
    before = weights((300, 300), 1)
    old, new = before.matrix.reshape(-1), stepped(before, 2, per_mille).matrix.reshape(-1)
    assert coded("BF16", old, new)[0].mode == MODE_TIGHT


@pytest.mark.parametrize("dtype_name", ["BF16", "F16", "F32", "F8_E4M3", "F8_E5M2", "I8", "U16", "I32"])
def test_every_width_survives_any_difference(dtype_name: str) -> None:
    before = tensor(dtype_name, (70_000,), noise(70_000, 4))
    after = stepped(before, 6, 50, wild_per_mille=500)
    coded(dtype_name, before.matrix.reshape(-1), after.matrix.reshape(-1))


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 4095, 4096, 65535])
def test_blocks_of_every_size_survive_their_first_and_last_change(count: int) -> None:
    old = noise(count, 8).astype(np.uint16)
    for at in {0, count - 1}:
        new = old.copy()
        new[at] ^= np.uint16(0x8000)
        coded("BF16", old, new, CODEC_AUTO)


def test_a_change_of_everything_survives() -> None:
    old = noise(5000, 8).astype(np.uint16)
    coded("BF16", old, old + np.uint16(1))
    coded("BF16", old, ~old)


def test_tight_is_smaller_than_fast_where_exponents_tell() -> None:
    z = noise(1 << 20, 3)
    old = weights((1 << 20,), 3).matrix.reshape(-1)
    exponent = (old >> np.uint16(7)) & np.uint16(255)
    odds = np.where(exponent > 121, 1, np.where(exponent > 118, 8, 60))
    new = np.where(z % np.uint64(1000) < odds, old + np.uint16(1), old).astype(np.uint16)
    tight, fast = coded("BF16", old, new)[0], coded("BF16", old, new, CODEC_FAST)[0]
    assert len(tight.body) < 0.7 * len(fast.body)


@pytest.mark.parametrize("per_mille", [0, 10, 1000])
def test_the_smallest_mode_is_taken(per_mille: int) -> None:
    before = tensor("F32", (70_000,), noise(70_000, 5))
    old, new = before.matrix.reshape(-1), stepped(before, 6, per_mille, wild_per_mille=900).matrix.reshape(-1).copy()
    new[7] ^= np.uint32(1)
    sizes = [len(coded("F32", old, new, codec)[0].body) for codec in (CODEC_FAST, CODEC_TIGHT, CODEC_AUTO)]
    assert sizes[2] == min(sizes) <= 4 * old.size


def test_a_block_of_noise_is_written_dense() -> None:
    old, new = noise(70_000, 5).astype(np.uint16), noise(70_000, 6).astype(np.uint16)
    assert {coded("I16", old, new, codec)[0].mode for codec in (CODEC_FAST, CODEC_TIGHT, CODEC_AUTO)} == {MODE_DENSE}


def test_another_exponent_in_the_base_is_noticed_by_the_lanes() -> None:
    before = weights((300, 300), 1)
    old, new = before.matrix.reshape(-1), stepped(before, 2).matrix.reshape(-1)
    record, block, tables = coded("BF16", old, new)
    wrong = old.copy()
    wrong[100] ^= np.uint16(0x0400)
    with pytest.raises(FormatError):
        decode_block(record, block, old=wrong, tables=tables)


def test_a_tight_block_without_its_base_asks_for_it() -> None:
    before = weights((300, 300), 1)
    record, block, tables = coded("BF16", before.matrix.reshape(-1), stepped(before, 2).matrix.reshape(-1))
    with pytest.raises(MissingBaseError):
        decode_block(record, block, tables=tables)


def test_lanes_grow_with_changes_and_never_beyond_their_share() -> None:
    assert [position_lanes_log2(1 << 20, z) for z in (1, 511, 512, 10_486, 1 << 20)] == [0, 0, 1, 5, 8]
    assert position_lanes_log2(8191, 8191) == 0
    assert [value_lanes(z) for z in (1, 4095, 4096, 10_486, 1 << 24)] == [1, 1, 2, 4, 1024]


def test_histograms_of_ranks_add_up_to_those_of_the_whole() -> None:
    before = weights((300, 300), 1)
    old, new = before.matrix.reshape(-1), stepped(before, 2).matrix.reshape(-1)
    blocks, block = block_of("BF16", old.size)
    summed = Histograms()
    for part in np.array_split(np.arange(old.size), 7):
        piece = extract_block(old[part], new[part], 0)
        summed.add(count_block(old[part], piece.positions, piece.differences, block, sampled=False))
    whole = extract_block(old, new, 0)
    direct = count_block(old, whole.positions, whole.differences, block, sampled=False)
    assert pack_tables(build_tables(summed, blocks.groups)) == pack_tables(build_tables(direct, blocks.groups))


def test_differences_that_do_not_fit_their_block_never_reach_the_compiled_writers() -> None:
    _, block = block_of("BF16", 100)
    for positions, differences in (([100], [1]), ([5, 5], [1, 1]), ([5], [0]), ([5], [65536]), ([6, 5], [1, 1])):
        delta = SparseBlock(0, np.array(positions, np.uint32), np.array(differences, np.uint32))
        with pytest.raises(LayoutError):
            encode_block(delta, block, CODEC_FAST)


@pytest.mark.parametrize("width_bits", [8, 16, 32])
def test_the_step_that_no_difference_has_is_refused(width_bits: int) -> None:
    classes, extras = np.array([width_bits - 1], np.uint8), np.frombuffer(b"\xff" * 4, np.uint32)
    found = np.zeros(1, np.uint32)
    assert steps.join(classes, np.frombuffer(b"\1\0\0\0", np.uint32), extras, width_bits, found)
    assert found[0] == 1 << (width_bits - 1)
    assert not steps.join(classes, np.frombuffer(bytes(4), np.uint32), extras, width_bits, found)


def test_a_dense_block_holds_exactly_the_changes_it_announces_and_zero_padding() -> None:
    old, new = noise(70_001, 5).astype(np.uint8), noise(70_001, 6).astype(np.uint8)
    record, block, tables = coded("U8", old, new, CODEC_FAST)
    assert record.mode == MODE_DENSE
    with pytest.raises(FormatError, match="announced"):
        decode_block(replace(record, count=record.count - 1), block, old=old, tables=tables)
    padded = bytes(record.body[:-1]) + b"\1"
    with pytest.raises(FormatError, match="padding"):
        decode_block(replace(record, body=memoryview(padded)), block, old=old, tables=tables)
