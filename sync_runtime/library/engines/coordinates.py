"""Where the elements of a checkpoint's tensors lie in an engine's parameters: regions of memory, and rectangles. Pure.

A loader copies regions of checkpoint tensors into regions of parameters. Where one copy fills one rectangle of the
tensor's matrix, the parameter's memory *is* that rectangle, and an element is changed in place; anything else is
replayed, or goes through the loader itself. Knows no engine and no tensor, only numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple


class Region(NamedTuple):
    """Elements of a memory, by strides."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, int]:
        """First element, and one past the last."""
        if not prod(self.shape):
            return self.offset, self.offset
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.offset, self.offset + last + 1


@dataclass(frozen=True)
class Copy:
    """One copy of a loader: elements of a checkpoint's tensor to elements of a parameter, in the same order."""

    name: str
    source: Region
    """In the whole tensor, laid out row-major."""
    parameter: str
    target: Region
    """In the parameter's storage."""


class Rectangle(NamedTuple):
    """A part of a tensor's matrix, whose columns are its last dimension and whose rows are all others."""

    row: int
    col: int
    rows: int
    cols: int


NOWHERE = Rectangle(0, 0, 0, 0)
"""Of a tensor that a rank holds nothing of."""


class Placed(NamedTuple):
    """A rectangle, and the same elements as a region of a parameter, row by row."""

    rectangle: Rectangle
    memory: Region
    """Two dimensions; one for a tensor of one dimension."""


def matrix_of(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a tensor."""
    return prod(shape[:-1]), shape[-1] if shape else 1


def placed(copy: Copy, shape: tuple[int, ...]) -> Placed | None:
    """The one rectangle that a copy fills; None where it is none, or its rows do not lie evenly in the parameter."""
    rows, cols = matrix_of(shape)
    dims = _ordered(copy)
    if not prod(size for size, _, _ in dims):
        return None
    outer, inner = dims, (1, 1, 1)
    if dims and dims[-1][1] == 1 and cols > 1:
        outer, inner = dims[:-1], dims[-1]
    inner, outer = _grown(inner, outer, cols)
    if not outer and inner[0] > cols and inner[1:] == (1, 1) and inner[0] % cols == 0:  # seen as one long row
        outer, inner = [(inner[0] // cols, cols, cols)], (cols, 1, 1)
    above = _collapsed(outer)
    if above is None or inner[0] > cols or inner[2] != 1:
        return None
    height, step, pitch = above
    row, col = divmod(copy.source.offset, cols) if cols else (0, 0)
    if (height > 1 and step != cols) or col + inner[0] > cols or row + height > rows:
        return None
    found = Rectangle(row, col, height, inner[0])
    if len(shape) < 2:
        return Placed(found, Region(copy.target.offset, (inner[0],) if shape else (), (1,) if shape else ()))
    return Placed(found, Region(copy.target.offset, (height, inner[0]), (pitch if height > 1 else inner[0], 1)))


def overlap(first: Region, second: Region) -> bool:
    """Whether two regions of one memory may share an element; False is certain."""
    (begin, end), (other, other_end) = first.extent, second.extent
    return max(begin, other) < min(end, other_end)


Dim = tuple[int, int, int]
"""Size, step in the source, step in the target."""


def _ordered(copy: Copy) -> list[Dim]:
    """The copy's dimensions, the slowest in the source first; those of one element tell nothing."""
    dims = zip(copy.source.shape, copy.source.stride, copy.target.stride, strict=True)
    return sorted((dim for dim in dims if dim[0] != 1), key=lambda dim: -dim[1])


def _grown(inner: Dim, outer: list[Dim], cols: int) -> tuple[Dim, list[Dim]]:
    """A row that the loader saw in several dimensions is one row all the same."""
    rest = list(outer)
    while rest and inner[0] > 1 and rest[-1][1] == inner[0] * inner[1] and rest[-1][2] == inner[0] * inner[2]:
        size = rest[-1][0] * inner[0]
        if size > cols:
            break
        inner = (size, inner[1], inner[2])
        rest.pop()
    return inner, rest


def _collapsed(dims: list[Dim]) -> Dim | None:
    """Several dimensions as one; None where either side does not step through them evenly."""
    found: Dim | None = None
    for size, step, pitch in reversed(dims):
        if found is None:
            found = (size, step, pitch)
        elif (step, pitch) == (found[0] * found[1], found[0] * found[2]):
            found = (size * found[0], found[1], found[2])
        else:
            return None
    return found or (1, 1, 1)
