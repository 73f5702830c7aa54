"""Where ranks' parts lie: against torch's own chunks, for any mesh."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines.placements import (
    Axis,
    Shape,
    Split,
    Splits,
    box,
    rectangle,
    replica_of,
    splits_of,
    step_of,
)


def chunk(index: torch.Tensor, split: Split, at: int) -> torch.Tensor:
    """What torch gives the rank at a place of one axis."""
    parts = index.chunk(split.parts, split.dim)
    return parts[at] if at < len(parts) else index.narrow(split.dim, 0, 0)


def expected(shape: Shape, splits: Splits, coordinate: tuple[int, ...]) -> torch.Tensor:
    index = torch.arange(prod(shape)).reshape(shape)
    for split in splits:
        index = chunk(index, split, coordinate[split.axis])
    return index


SIZES = st.integers(1, 4)
AXES = st.lists(st.builds(Axis, SIZES, st.sampled_from([None, 0, 1]), st.just(1)), max_size=3)


@given(shape=st.tuples(st.integers(1, 13), st.integers(1, 13)), axes=AXES, inner_first=st.booleans())
def test_parts_are_torchs_chunks_and_lie_on_the_step(shape: Shape, axes: list[Axis], inner_first: bool) -> None:
    if inner_first and axes and axes[0].dim is not None:
        after = prod(axis.size for axis in axes[1:] if axis.dim == axes[0].dim)
        axes = [axes[0]._replace(after=after), *axes[1:]]
    splits = splits_of(axes)
    row_step, col_step = step_of(shape, splits)
    seen = torch.zeros(shape, dtype=torch.int32)
    whole = torch.arange(prod(shape)).reshape(shape)
    for coordinate in product(*(range(axis.size) for axis in axes)):
        part = rectangle(shape, box(shape, splits, coordinate))
        rows, cols = slice(part.row, part.row + part.rows), slice(part.col, part.col + part.cols)
        index = expected(shape, splits, coordinate)
        assert torch.equal(whole[rows, cols].reshape(-1), index.reshape(-1))
        assert part.row % (row_step or shape[0]) == 0
        assert part.col % (col_step or shape[1]) == 0
        assert (part.row + part.rows) % (row_step or shape[0]) in (0, shape[0] % (row_step or shape[0]))
        if replica_of(axes, coordinate)[0] == 0:
            seen[rows, cols] += 1
    assert bool((seen == 1).all())


def test_data_parallelism_cuts_what_tensor_parallelism_left() -> None:
    splits = splits_of([Axis(2, 0, 2), Axis(2, 0)])
    assert [box((8, 4), splits, (outer, inner))[0] for outer in (0, 1) for inner in (0, 1)] == [
        (0, 2), (4, 2), (2, 2), (6, 2),
    ]  # fmt: skip
    assert step_of((8, 4), splits) == (2, None)
    assert step_of((10, 4), splits) == (1, None)  # 5 rows are 3 and 2: cuts at 3, 5 and 8


def test_parts_that_interleave_are_refused() -> None:
    with pytest.raises(LayoutError, match="interleave along dimension 0"):
        splits_of([Axis(2, 0), Axis(2, 0, 2)])


@pytest.mark.parametrize(
    ("shape", "splits", "step"),
    [
        ((6, 4, 8), (Split(0, 0, 4),), (8, None)),
        ((6, 4, 8), (Split(0, 2, 2),), (None, 4)),
        ((2, 4, 8), (Split(0, 0, 2), Split(1, 1, 2)), (2, None)),
        ((1, 7), (Split(0, 0, 4),), (1, None)),
        ((7,), (Split(0, 0, 4),), (None, 2)),
        ((1 << 23,), (Split(0, 0, 4),), (None, 1 << 20)),
        ((3 << 22,), (Split(0, 0, 4),), (None, 1 << 20)),
    ],
)
def test_steps_of_other_shapes(shape: Shape, splits: Splits, step: tuple[int | None, int | None]) -> None:
    assert step_of(shape, splits) == step


@pytest.mark.parametrize(
    ("shape", "splits", "sentence"),
    [
        ((6, 4, 8), (Split(0, 1, 2),), "first or its last dimension"),
        ((2 * 1_048_583,), (Split(0, 0, 2),), "equal pieces"),
    ],
)
def test_parts_that_are_no_rectangle_of_blocks_are_refused(shape: Shape, splits: Splits, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        step_of(shape, splits)
