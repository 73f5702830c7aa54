"""The stream of a redo list beside its plain definition: every entry where it belongs, in ascending order."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.delta.apply import StagedBlock
from sync_runtime.offline import layout_of
from sync_runtime.session.lists import ListStream
from sync_runtime.tensors.bits import bind, scatter
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.sparse import within

SHAPES = {"large": (24, 256), "wide": (3, 700), "row": (7,), "small": (2, 3), "bytes": (11, 13)}
DTYPES = {"bytes": np.uint8, "wide": np.uint32}


def state_of() -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, DTYPES.get(name, np.float16)) for name, shape in SHAPES.items()}


def plain(blocks: BlockMap, staged: Mapping[int, StagedBlock]) -> dict[int, dict[int, int]]:
    """Tensor -> position -> bits, one element after the other."""
    found: dict[int, dict[int, int]] = {}
    for number, entry in staged.items():
        block = blocks.block(number)
        for position, bits in zip(entry.positions.tolist(), entry.bits.tolist(), strict=True):
            rest = position
            for piece in block.pieces:
                if rest < piece.num_elements:
                    row, col = divmod(rest, piece.num_cols)
                    cols = blocks.layout.tensors[piece.tensor].cols
                    at = (row + piece.row_start) * cols + col + piece.col_start
                    found.setdefault(piece.tensor, {})[at] = bits
                    break
                rest -= piece.num_elements
    return found


def read(data: bytes, blocks: BlockMap) -> dict[int, dict[int, int]]:
    found, at = {}, 0
    while at < len(data):
        tensor, zero, count = struct.unpack_from("<IIQ", data, at)
        assert zero == 0
        width = blocks.layout.tensors[tensor].dtype.width_bits // 8
        positions = np.frombuffer(data, "<u8", count, at + 16)
        bits = np.frombuffer(data, f"<u{width}", count, at + 16 + 8 * count)
        assert np.all(positions[1:] > positions[:-1])
        found[tensor] = dict(zip(positions.tolist(), bits.tolist(), strict=True))
        end = at + 16 + (8 + width) * count
        at = -(-end // 8) * 8
        assert not any(data[end:at])
    return found


@st.composite
def lists(draw: st.DrawFn) -> tuple[BlockMap, dict[int, StagedBlock]]:
    blocks = BlockMap(layout_of(state_of(), block_elements=draw(st.sampled_from([64, 500, 1 << 12]))))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    share = draw(st.sampled_from([0.001, 0.3, 1.0]))
    staged = {}
    for number in range(blocks.num_blocks):
        block = blocks.block(number)
        positions = np.flatnonzero(random.random(block.num_elements) < share).astype(np.uint32)
        if positions.size:
            dtype = block.dtype.bits_dtype
            bits = random.integers(0, np.iinfo(dtype).max, positions.size, dtype, endpoint=True)
            staged[number] = StagedBlock(positions, bits)
    return blocks, staged


@given(lists())
def test_every_entry_is_where_the_plain_definition_has_it(made: tuple[BlockMap, dict[int, StagedBlock]]) -> None:
    blocks, staged = made
    stream = ListStream(blocks, staged)
    data = b"".join(bytes(chunk) for chunk in stream.chunks())
    assert len(data) == stream.size_bytes
    assert read(data, blocks) == plain(blocks, staged)


@given(lists())
def test_what_is_scattered_is_what_the_plain_definition_has(made: tuple[BlockMap, dict[int, StagedBlock]]) -> None:
    blocks, staged = made
    state = bind(blocks.layout, state_of(), writable=True)
    for number, entry in staged.items():
        scatter(blocks.block(number), state, entry.positions, entry.bits)
    wanted = plain(blocks, staged)
    for tensor, bits in state.items():
        flat = np.zeros(bits.matrix.size, bits.matrix.dtype)
        for at, value in wanted.get(tensor, {}).items():
            flat[at] = value
        assert np.array_equal(bits.matrix.reshape(-1), flat)


@pytest.mark.parametrize(("first", "count", "found"), [(0, 4, (0, 1)), (3, 1, (0, 1)), (4, 5, (1, 1)), (9, 9, (1, 3))])
def test_positions_within_a_range(first: int, count: int, found: tuple[int, int]) -> None:
    assert within(np.array([3, 9, 17, 18], np.uint32), first, count) == slice(*found)
