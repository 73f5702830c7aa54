"""Digests: three implementations agree; parts add up; what must be seen is seen."""

import hashlib

import numpy as np
import pytest

from sync_runtime.delta import cpu, digest
from sync_runtime.offline import digest as state_digest
from sync_runtime.tensors.bits import BitTensor, bind, gather
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import ZERO, parse_digest, total
from sync_runtime.tensors.layout import Shards, make_layout
from tests.support.states import SPECIAL_BF16, copied, next_state, noise, small_state, tensor, weights

DTYPES = ["BOOL", "F8_E5M2", "F16", "BF16", "I32", "F32", "I64", "C64"]


def layout_for(state: dict[str, BitTensor], **options: object) -> BlockMap:
    entries = [(name, bits.dtype.name, bits.shape) for name, bits in state.items()]
    return BlockMap(make_layout(entries, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype_name", DTYPES)
def test_the_compiled_digest_equals_the_reference(dtype_name: str) -> None:
    per_item = tensor(dtype_name, (1,), np.zeros(2, np.uint32)[: tensor_elements(dtype_name)]).dtype.elements_per_item
    bits = noise(300 * 260 * per_item, 7)
    state = {"w": tensor(dtype_name, (300, 260), bits), "v": tensor(dtype_name, (3,), bits[: 3 * per_item])}
    blocks = layout_for(state)
    bound = bind(blocks.layout, state)
    for block in blocks:
        expected = digest.block_digest(block, gather(block, bound), blocks.layout)
        assert cpu.block_digest(block, bound, blocks.layout) == expected


def tensor_elements(dtype_name: str) -> int:
    return 2 if dtype_name in ("I64", "C64") else 1


def test_the_digest_does_not_depend_on_grid_or_order() -> None:
    state = {"w": weights((700, 300), 3), "v": weights((5,), 4)}
    fine = layout_for(state, shards={"w": Shards(row_period=233, col_step=100)}, block_elements=1 << 16).layout
    assert len(BlockMap(fine)) > 3
    assert state_digest(state, layout=fine) == state_digest(dict(reversed(state.items())))


@pytest.mark.parametrize("block_elements", [1 << 20, 1 << 12], ids=["one block a tensor", "many tiles"])
def test_changes_add_up_to_the_digest_of_the_new_state(block_elements: int) -> None:
    before = small_state()
    after = next_state(before, 9, 200)
    shards = {"layers.0.mlp.weight": Shards(row_period=130, col_step=100)}
    blocks = layout_for(before, shards=shards, block_elements=block_elements)
    old, new = bind(blocks.layout, before), bind(blocks.layout, after)
    for stage in (digest.sparse_digest, cpu.staged_digest):
        found = state_digest(before)
        for block in blocks:
            first, second = gather(block, old), gather(block, new)
            at = np.flatnonzero(first != second).astype(np.uint32)
            found = found.plus(total(stage(at, first[at], second[at], block, blocks.layout).values()))
        assert found == state_digest(after)


def test_every_single_change_is_seen() -> None:
    seen = {state_digest({"w": tensor("BF16", (1,), np.array([bits]))}) for bits in SPECIAL_BF16}
    assert len(seen) == len(SPECIAL_BF16)


def test_exchanged_elements_rows_and_tensors_are_seen() -> None:
    state = {"a": weights((40, 30), 1), "b": weights((40, 30), 2)}
    original = state_digest(state)
    rows, elements = copied(state), copied(state)
    rows["a"].matrix[[3, 7]] = rows["a"].matrix[[7, 3]]
    elements["a"].matrix[0, :2] = elements["a"].matrix[0, 1::-1]
    others = [rows, elements, {"a": state["b"], "b": state["a"]}, {"a": state["a"]}]
    assert len({original, *(state_digest(other) for other in others)}) == 5


def test_signs_flipped_everywhere_are_seen() -> None:
    state = {"a": weights((64, 64), 1)}
    flipped = copied(state)
    flipped["a"].matrix[...] ^= np.uint16(0x8000)
    assert state_digest(state) != state_digest(flipped)


def test_an_empty_state_has_digest_zero() -> None:
    assert state_digest({"e": tensor("BF16", (0,), np.zeros(0, np.uint16))}) == ZERO


def test_a_digest_is_read_back_from_its_text() -> None:
    found = state_digest(small_state())
    assert parse_digest(str(found)) == found
    assert len(str(found)) == 32


def spelled_out(name: str, dtype_name: str, rows: int, cols: int, bits: list[int]) -> str:
    """Section 3 of FORMAT.md with Python's integers, element by element."""
    seed = f"syncgroup digest 1\0{dtype_name}\0{rows},{cols}\0{name}".encode()
    words = [int.from_bytes(hashlib.sha256(seed).digest()[at : at + 8], "little") for at in (0, 8, 16, 24)]

    def key(word: int, number: int) -> int:
        z = (word + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return (z ^ z >> 31) | 1

    sums = [0, 0]
    for at, element in enumerate(bits):
        y = (element * 0x9E3779B1 + 0x7F4A7C15) % 2**32
        for which in (0, 1):
            factor = key(words[2 * which], at // cols) * key(words[2 * which + 1], at % cols)
            sums[which] = (sums[which] + factor * (y ^ y >> 15)) % 2**64
    return f"{sums[0]:016x}{sums[1]:016x}"


def test_the_digest_is_the_one_that_the_format_spells_out() -> None:
    bits = [0, 1, 0x8000, 0x7FC0]
    found = str(state_digest({"w": tensor("BF16", (2, 2), np.array(bits))}))
    assert found == spelled_out("w", "BF16", 2, 2, bits) == "29f5e137eeab63a614324e0b61d5dd24"
