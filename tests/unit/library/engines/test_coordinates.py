"""Regions and rectangles: numbers alone."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from sync_runtime.library.engines.coordinates import Copy, Rectangle, Region, overlap, placed
from sync_runtime.library.engines.recording import region_of


def copied(source: torch.Tensor, target: torch.Tensor) -> Copy:
    """A copy between two views of meta tensors."""
    return Copy("w", region_of(source), "p", region_of(target))


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_every_cut_by_rows_and_columns_is_found_again(rows: int, cols: int, data: st.DataObject) -> None:
    row, col = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1))
    height, width = data.draw(st.integers(1, rows - row)), data.draw(st.integers(1, cols - col))
    whole = torch.arange(rows * cols).reshape(rows, cols)
    pitch = data.draw(st.integers(width, width + 3))
    memory = torch.full((height + 2, pitch), -1)
    part, target = whole[row : row + height, col : col + width], memory[1 : 1 + height, :width]
    found = placed(copied(part, target), (rows, cols))
    assert found is not None
    assert found.rectangle == Rectangle(row, col, height, width)
    target.copy_(part)
    seen = memory.as_strided(found.memory.shape, found.memory.stride, found.memory.offset)
    assert torch.equal(seen, part)


def test_one_of_many_experts_is_a_rectangle_of_rows() -> None:
    whole, memory = torch.empty(6, 8, device="meta"), torch.empty(4, 12, 8, device="meta")
    found = placed(copied(whole, memory[2, 6:]), (6, 8))
    assert found is not None
    assert found.memory == Region(2 * 96 + 48, (6, 8), (8, 1))


def test_stacked_experts_are_rows_of_one_matrix() -> None:
    whole, memory = torch.empty(4, 6, 8, device="meta"), torch.empty(2, 6, 8, device="meta")
    found = placed(copied(whole[2:], memory), (4, 6, 8))
    assert found is not None
    assert found.rectangle == Rectangle(12, 0, 12, 8)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 0), (5, 1)], ids=str)
def test_odd_shapes_are_whole_or_nothing(shape: tuple[int, ...]) -> None:
    whole = torch.empty(shape, device="meta")
    found = placed(copied(whole, torch.empty(shape, device="meta")), shape)
    assert (found is not None) == (whole.numel() > 0)


def test_a_row_that_the_loader_saw_as_heads_is_one_row() -> None:
    whole, memory = torch.empty(4, 6, device="meta"), torch.empty(4, 6, device="meta")
    assert placed(copied(whole.view(4, 2, 3), memory.view(4, 2, 3)), (4, 6)) is not None
    assert placed(copied(whole.view(-1), memory.view(-1)), (4, 6)) is not None


def test_transposed_memory_is_no_rectangle() -> None:
    whole, memory = torch.empty(4, 6, device="meta"), torch.empty(6, 4, device="meta")
    assert placed(copied(whole.t(), memory), (4, 6)) is None
    assert placed(copied(whole, memory.t()), (4, 6)) is None


def test_rows_that_are_interleaved_are_no_rectangle() -> None:
    whole, memory = torch.empty(8, 6, device="meta"), torch.empty(4, 6, device="meta")
    assert placed(copied(whole[::2], memory), (8, 6)) is None


def test_a_tensor_beyond_two_to_the_31_is_placed_by_exact_numbers() -> None:
    rows, cols = 1 << 18, 1 << 14
    whole, memory = torch.empty(rows, cols, device="meta"), torch.empty(rows // 2 + 7, cols, device="meta")
    found = placed(copied(whole[rows // 2 :], memory[7:]), (rows, cols))
    assert found is not None
    assert found.rectangle == Rectangle(rows // 2, 0, rows // 2, cols)
    assert found.memory.offset == 7 * cols
    assert found.memory.extent[1] == (rows // 2 + 7) * cols


def test_neighbours_do_not_overlap() -> None:
    assert not overlap(Region(0, (2, 3), (3, 1)), Region(6, (1, 3), (3, 1)))
    assert overlap(Region(0, (2, 3), (3, 1)), Region(5, (1,), (1,)))
    assert not overlap(Region(3, (0,), (1,)), Region(0, (9,), (1,)))
