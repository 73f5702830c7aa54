"""Where a rank's memory lies in a tensor that a mesh of ranks has cut. Pure: arithmetic alone, no torch.

A mesh is a box of ranks. Each of its axes either repeats a tensor or cuts one of the tensor's dimensions into equal
chunks, rounded up, of which the last ones are shorter or empty. What every rank has must be one rectangle of the
tensor's matrix (last dimension as columns, all others as rows), and all cuts must lie at multiples of one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from sync_runtime.errors import LayoutError
from sync_runtime.tensors.layout import DEFAULT_BLOCK_ELEMENTS

MIN_COL_STEP = 1024
"""Rows longer than a block are cut into equal pieces; a rank's part that has none of at least this size is refused."""


class Axis(NamedTuple):
    """What one axis of the mesh does to a tensor."""

    size: int
    """Ranks along it."""
    dim: int | None = None
    """The tensor's dimension that it cuts; None: it repeats the tensor."""
    after: int = 1
    """How many chunks of this dimension axes to the right have made before this one cut it further."""


class Split(NamedTuple):
    """A cut of one dimension by one axis."""

    axis: int
    dim: int
    parts: int


class Rectangle(NamedTuple):
    """A rank's part of the tensor's matrix."""

    row: int
    col: int
    rows: int
    cols: int


Step = tuple[int | None, int | None]
Shape = tuple[int, ...]
Splits = tuple[Split, ...]


def splits_of(axes: Sequence[Axis]) -> Splits:
    """Cuts in the order in which they were made; raises LayoutError where parts of several ranks interleave.

    Axes cut from left to right, but for one that says that axes to its right came first: data parallelism over tensor
    parallelism cuts what each rank of the inner mesh already has.
    """
    found: list[Split] = []
    late: list[Split] = []
    for at, axis in enumerate(axes):
        if axis.dim is None or axis.size == 1:
            continue
        split = Split(at, axis.dim, axis.size)
        inner = prod(other.size for other in axes[at + 1 :] if other.dim == axis.dim)
        if axis.after == 1:
            found.append(split)
        elif axis.after == inner:
            late.insert(0, split)  # the one furthest right came first
        else:
            raise LayoutError(
                f"ranks interleave along dimension {axis.dim}: its chunks were cut {axis.after} times before, and the "
                f"other axes of the mesh cut it {inner} times"
            )
    return (*found, *late)


def box(shape: Shape, splits: Splits, coordinate: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """First index and size along every dimension, for the rank at a place of the mesh."""
    ranges = [(0, size) for size in shape]
    for split in splits:
        begin, size = ranges[split.dim]
        chunk = -(-size // split.parts)
        skipped = min(size, chunk * coordinate[split.axis])
        ranges[split.dim] = (begin + skipped, min(chunk, size - skipped))
    return tuple(ranges)


def rectangle(shape: Shape, ranges: Sequence[tuple[int, int]]) -> Rectangle:
    """A box as a rectangle of the matrix; raises LayoutError where its rows do not follow each other."""
    if not all(size for _, size in ranges):
        return Rectangle(0, 0, 0, 0)
    row, rows = 0, 1
    for (begin, size), whole in zip(ranges[:-1], shape[:-1], strict=True):
        if rows > 1 and size != whole:
            raise LayoutError(
                f"the shape {list(shape)} is cut in the middle, into {[size for _, size in ranges]}: ranks may cut its "
                "first or its last dimension"
            )
        row, rows = row * whole + begin, rows * size
    col, cols = ranges[-1] if ranges else (0, 1)
    return Rectangle(row, col, rows, cols)


@lru_cache(maxsize=4096)
def step_of(shape: Shape, splits: Splits) -> Step:
    """Rows and columns at whose multiples all ranks' parts begin and end; never both None. Raises LayoutError."""
    rows, cols = prod(shape[:-1]), shape[-1] if shape else 1
    row_step = col_step = 0
    axes = {split.axis: split.parts for split in splits}
    numbers = sorted(axes)
    for place in product(*(range(axes[axis]) for axis in numbers)):
        coordinate = [0] * (max(numbers, default=0) + 1)
        for axis, at in zip(numbers, place, strict=True):
            coordinate[axis] = at
        part = rectangle(shape, box(shape, splits, coordinate))
        if not part.rows:
            continue
        row_step = gcd(row_step, part.row, *_unless(part.row + part.rows, rows))
        col_step = gcd(col_step, part.col, *_unless(part.col + part.cols, cols))
    if not col_step:
        return row_step or rows, None
    return row_step or None, _within(col_step, DEFAULT_BLOCK_ELEMENTS)


def replica_of(axes: Sequence[Axis], coordinate: Sequence[int]) -> tuple[int, int]:
    """Which of how many ranks with the same part this is."""
    number, count = 0, 1
    for axis, at in zip(axes, coordinate, strict=True):
        if axis.dim is None:
            number, count = number * axis.size + at, count * axis.size
    return number, count


def _unless(value: int, other: int) -> tuple[int, ...]:
    return () if value == other else (value,)


def _within(step: int, limit: int) -> int:
    """The largest divisor of a step that is not above a limit."""
    for parts in range(-(-step // limit), step // MIN_COL_STEP + 1):
        if step % parts == 0:
            return step // parts
    if step <= limit:
        return step
    raise LayoutError(f"ranks cut rows after {step} elements, which cannot be cut further into equal pieces")
