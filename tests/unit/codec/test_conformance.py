"""What any codec of weight updates must pass, whoever wrote it; the borders of ours are tested beside this file.

Left out: publishing, retention and lost links of a chain, which are the runtime's matter.
"""

import io
import itertools
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sync_runtime.bucket.manifest import Version
from sync_runtime.codec.cpu.anchor import decode_anchor, encode_anchor
from sync_runtime.codec.cpu.blocks import decode_block, encode_block
from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.frame import END_RECORD, Record, pack_entry, parse_records
from sync_runtime.codec.limits import CODEC_NAMES, CODEC_NUMBERS
from sync_runtime.codec.tables import Tables, build_tables
from sync_runtime.delta.apply import Staging
from sync_runtime.delta.cpu import extract_block
from sync_runtime.errors import FormatError, SyncError
from sync_runtime.offline import Delta, apply, diff, digest, layout_of, merge
from sync_runtime.offline.anchors import read_anchor, write_anchor, write_block
from sync_runtime.offline.deltafile import Ends, describe
from sync_runtime.offline.objects import Source, write_object
from sync_runtime.offline.staging import Comparison, stage
from sync_runtime.tensors.bits import BitTensor, bind
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO
from sync_runtime.tensors.dtypes import wire_dtype
from sync_runtime.tensors.layout import make_layout
from sync_runtime.tensors.sparse import Bits
from tests.hostile.dice import Dice
from tests.hostile.mutations import blindly_damaged
from tests.support.states import copied, next_state, noise, same_bits, small_state, stepped, tensor, weights

CODECS = ["fast", "tight", "auto"]
FLOATS = {"F8_E4M3": (4, 3), "F8_E5M2": (5, 2), "F16": (5, 10), "BF16": (8, 7), "F32": (8, 23)}
"""Exponent and mantissa bits."""


def special_patterns(dtype_name: str) -> list[int]:
    """±0, ±1, ±largest, ±infinity, quiet and signalling NaNs, both ends of the subnormal numbers."""
    exponent_bits, mantissa_bits = FLOATS[dtype_name]
    top = ((1 << exponent_bits) - 1) << mantissa_bits
    one = ((1 << (exponent_bits - 1)) - 1) << mantissa_bits
    quiet = top | 1 << (mantissa_bits - 1)
    magnitudes = [0, one, top - 1, top, quiet, quiet | 1, top | 1, 1, (1 << mantissa_bits) - 1, 1 << mantissa_bits]
    sign = 1 << (exponent_bits + mantissa_bits)
    return sorted({value | which for value in magnitudes for which in (0, sign)})


def round_trip(before: dict[str, BitTensor], after: dict[str, BitTensor], codec: str) -> Delta:
    state = copied(before)
    delta = diff(before, after, codec=codec)
    apply(state, delta)
    assert same_bits(state, after)
    return delta


def line(bits: object, dtype_name: str = "BF16") -> dict[str, BitTensor]:
    array = np.asarray(bits)
    return {"w": tensor(dtype_name, (array.size,), array)}


@pytest.mark.parametrize("dtype_name", FLOATS)
@pytest.mark.parametrize("codec", CODECS)
def test_all_ordered_pairs_of_special_patterns_survive_in_every_float(dtype_name: str, codec: str) -> None:
    patterns = special_patterns(dtype_name)
    assert len(patterns) >= 16
    pairs = np.array(list(itertools.product(patterns, patterns)), np.uint64)
    delta = round_trip(line(pairs[:, 0], dtype_name), line(pairs[:, 1], dtype_name), codec)
    assert delta.manifest.num_changed == len(patterns) * (len(patterns) - 1)


@pytest.mark.parametrize("dtype_name", FLOATS)
def test_nothing_differs_from_itself_not_even_a_nan(dtype_name: str) -> None:
    state = line(np.array(special_patterns(dtype_name), np.uint64), dtype_name)
    delta = diff(state, copied(state))
    assert (delta.manifest.num_changed, delta.manifest.num_blocks) == (0, 0)


PLACES: dict[str, list[int] | slice] = {
    "first": [0],
    "last": [-1],
    "first and last": [0, -1],
    "all": slice(None),
    "one row": slice(5 * 300, 6 * 300),
    "one in each row": slice(7, None, 300),
    "gaps of 255 and 256": [3, 3 + 255, 3 + 255 + 256, 3 + 255 + 256 + 257],
    "gaps around 16 bits": [1, 65_535, 2 * 65_535, 3 * 65_535 + 1, 4 * 65_535 + 3],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("codec", CODECS)
def test_changes_in_every_awkward_place_survive(place: str, codec: str) -> None:
    before = {"w": weights((1000, 300), 5)}
    after = copied(before)
    after["w"].matrix.reshape(-1)[PLACES[place]] ^= np.uint16(0x8001)
    round_trip(before, after, codec)


@pytest.mark.parametrize("step", [252, 253, 254, 255, 256, 0xFEFF, 0xFFFE, 0xFFFF, 0xFF00])
@pytest.mark.parametrize("codec", CODECS)
def test_steps_that_look_like_an_escape_mark_survive(step: int, codec: str) -> None:
    old = noise(900, 4).astype(np.uint16)
    new = old.copy()
    new[::3] += np.uint16(step)
    round_trip(line(old), line(new), codec)


@pytest.mark.parametrize("index", [2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
def test_a_change_at_the_end_of_32_bits_survives(index: int) -> None:
    """Only the changed block of a tensor of 2^32 elements is looked at: pages that nobody touches take no memory."""
    before, after = (
        BitTensor(wire_dtype("U8"), (1 << 16, 1 << 16), np.zeros((1 << 16, 1 << 16), np.uint8)) for _ in (0, 1)
    )
    after.matrix[divmod(index, 1 << 16)] = 9
    layout = make_layout([("w", "U8", (1 << 16, 1 << 16))])
    blocks, sink = BlockMap(layout), io.BytesIO()
    pair = Comparison(blocks, {0: before}, {0: after})
    (number,) = [index // blocks.block(0).num_elements]
    totals = write_object(sink, blocks, CODEC_NUMBERS["fast"], Source([number], pair.sparse))
    manifest = describe(layout, totals, Ends(Version(0, ZERO), 1, pair.digest_changes(), "0" * 32, ""))
    staging = Staging(blocks, {0: before})
    stage(Delta(layout, manifest, memoryview(sink.getvalue())), staging)
    staging.commit()
    assert before.matrix[divmod(index, 1 << 16)] == 9
    assert staging.num_elements == 1


def test_a_state_of_mixed_dtypes_with_a_tied_tensor_survives() -> None:
    before, after = small_state(), next_state(small_state(), 3, 200)
    before["tied"], after["tied"] = before["layers.0.mlp.weight"], after["layers.0.mlp.weight"]
    delta = diff(before, after, codec="auto")
    assert delta.layout.tied == (("tied", "layers.0.mlp.weight"),)
    apply(before, delta)
    assert same_bits(before, after)


@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_depend_neither_on_the_order_of_the_input_nor_on_the_number_of_threads(codec: str) -> None:
    before = {f"layers.{at}.weight": weights((300, 300), at) for at in range(4)} | small_state()
    after = next_state(before, 3, 30)
    turned = dict(reversed(before.items())), dict(reversed(after.items()))
    found = {diff(*pair, codec=codec, threads=n).to_bytes() for pair in ((before, after), turned) for n in (1, 2, 7)}
    assert len(found) == 1


def coded(codec: str, old: Bits, new: Bits) -> tuple[Record, Block, Tables]:
    blocks = BlockMap(make_layout([("w", "BF16", (old.size,))]))
    block = blocks.block(0)
    delta = extract_block(old, new, 0)
    tables = build_tables(count_block(old, delta.positions, delta.differences, block, sampled=False), blocks.groups)
    raw = encode_block(delta, block, CODEC_NUMBERS[codec], old=old, tables=tables)
    return next(parse_records(memoryview(raw + END_RECORD), CODEC_NUMBERS[codec])), block, tables


@pytest.mark.timeout(30)
@pytest.mark.parametrize("codec", ["fast", "tight"])
def test_a_damaged_block_is_refused_or_sound_and_then_it_is_the_one_way_to_write_its_content(codec: str) -> None:
    before = weights((600,), 1)
    old, new = before.matrix.reshape(-1), stepped(before, 2, 100, 200).matrix.reshape(-1)
    record, block, tables = coded(codec, old, new)
    dice, taken = Dice(8), 0
    for _ in range(2_000):
        damaged = replace(record, body=memoryview(blindly_damaged(bytes(record.body), dice)))
        if damaged.body == record.body:
            continue
        try:
            found = decode_block(damaged, block, old=old, tables=tables)
        except FormatError:
            continue
        taken += 1
        positions = found.positions.astype(np.int64)
        assert (np.diff(positions, prepend=-1) > 0).all()
        assert positions[-1] < old.size
        again = encode_block(found, block, CODEC_NUMBERS[codec], old=old, tables=tables)
        entry = pack_entry(block=0, mode=record.mode, parameter=record.parameter, count=record.count,
                           body_bytes=len(damaged.body))  # fmt: skip
        assert again == entry + bytes(damaged.body), "two spellings of one block are taken"
    assert taken > 10


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_and_one_more_byte_are_refused(codec: str) -> None:
    before = {"w": weights((200,), 1)}
    delta = diff(before, {"w": stepped(before["w"], 2, 200)}, codec=codec)
    whole = bytes(delta.object)
    for data in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        staging = Staging(delta.blocks, bind(delta.layout, before))
        with pytest.raises(SyncError):
            stage(replace(delta, object=memoryview(data)), staging, threads=1)
        assert not staging.staged


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_base_never_applies_wherever_it_is_wrong(codec: str) -> None:
    before = small_state()
    delta = diff(before, next_state(before, 7, 100), codec=codec)
    for name in (name for name, bits in before.items() if bits.matrix.size):
        wrong = copied(before)
        wrong[name].matrix.reshape(-1)[-1] ^= wrong[name].matrix.dtype.type(1)
        untouched = copied(wrong)
        with pytest.raises(SyncError):
            apply(wrong, delta)
        assert same_bits(wrong, untouched)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("codec", ["fast", "tight"])
def test_a_chain_of_100_and_its_merger_and_the_direct_delta_are_one(codec: str) -> None:
    states, deltas = [{"w": weights((500,), 2), "b": tensor("F32", (20,), noise(20, 2))}], []
    for at in range(100):
        states.append(next_state(states[-1], 7 * at, 20))
        deltas.append(diff(states[-2], states[-1], codec=codec, seqs=(at, at + 1), threads=1))
    live = copied(states[0])
    for delta in deltas:
        apply(live, delta, threads=1)
    assert same_bits(live, states[-1])
    merged = merge(*deltas, base=states[0], codec=codec, threads=1)
    assert merged.to_bytes() == diff(states[0], states[-1], codec=codec, seqs=(0, 100), threads=1).to_bytes()


def test_fast_tight_auto_and_an_anchor_of_one_update_give_one_state() -> None:
    before = small_state()
    after = next_state(before, 9, 150)
    for codec in CODECS:
        round_trip(before, after, codec)
    blocks, sink = BlockMap(layout_of(before)), io.BytesIO()
    write_anchor(sink, blocks, bind(blocks.layout, after), seq=1)
    state = copied(before)
    for anchor in read_anchor(memoryview(sink.getvalue()), blocks):
        write_block(anchor, bind(blocks.layout, state))
    assert digest(state) == digest(after)


def peak_bytes_of(decode: Callable[[], object]) -> int:
    """numpy tells tracemalloc about its arrays; the first call may compile and is not counted."""
    decode()
    tracemalloc.start()
    try:
        decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("per_mille", [10, 1000])
@pytest.mark.parametrize("codec", ["fast", "tight"])
def test_memory_for_a_block_is_bounded_by_its_elements(codec: str, per_mille: int) -> None:
    before = weights((1 << 18,), 1)
    old, new = before.matrix.reshape(-1), stepped(before, 2, per_mille, 900).matrix.reshape(-1)
    record, block, tables = coded(codec, old, new)
    peak_bytes = peak_bytes_of(lambda: decode_block(record, block, old=old, tables=tables))
    assert 8 * record.count <= peak_bytes <= 24 * old.size + (64 << 10)


def test_memory_for_an_anchors_block_is_bounded_by_its_elements() -> None:
    bits = weights((1 << 18,), 1).matrix.reshape(-1)
    dtype = wire_dtype("BF16")
    mode, parameter, body = encode_anchor(bits, dtype, 0)
    peak_bytes = peak_bytes_of(
        lambda: decode_anchor(memoryview(body), mode=mode, parameter=parameter, dtype=dtype, count=bits.size)
    )
    assert 2 * bits.size <= peak_bytes <= 24 * bits.size + (64 << 10)


def test_random_positions_with_random_values_still_take_less_than_two_fifths_of_coordinates() -> None:
    """Row, column and value take ten bytes; nothing in this update can be guessed."""
    old = noise(1 << 20, 3).astype(np.uint16)
    moves = noise(1 << 20, 4) % np.uint64(1000) < np.uint64(8)
    new = np.where(moves, noise(1 << 20, 5).astype(np.uint16), old)
    delta = diff(line(old), line(new), codec="auto")
    assert CODEC_NAMES[delta.reader().codec] != "fast"
    assert 2.5 * len(delta.to_bytes()) < 10 * delta.manifest.num_changed
