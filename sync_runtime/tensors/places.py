"""What a rank holds of tensors: rectangles of their matrices (FORMAT.md, section 2.1). Pure.

A tensor without a place is held whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sync_runtime.tensors.blocks import Piece
from sync_runtime.tensors.layout import TensorSpec


class Place(NamedTuple):
    """Where the memory of a rank lies in a tensor."""

    row: int
    """First row of the matrix."""
    col: int
    """First column, in elements."""
    shape: tuple[int, ...]
    """Of the memory, in items."""


Places = Mapping[str, Place]
WHOLE: Places = {}
"""One rank that holds everything."""


def held_spec(spec: TensorSpec, places: Places) -> TensorSpec:
    """The tensor as it is in the rank's memory."""
    place = places.get(spec.name)
    return spec if place is None else replace(spec, shape=place.shape, grid=None)


def held_origin(spec: TensorSpec, places: Places) -> tuple[int, int]:
    """Row and column of the matrix that the rank's memory begins with."""
    place = places.get(spec.name)
    return (0, 0) if place is None else (place.row, place.col)


def holds(spec: TensorSpec, places: Places, piece: Piece) -> bool | None:
    """Whether a piece of the tensor lies in the rank's memory; None: it lies partly there."""
    mine, (row, col) = held_spec(spec, places), held_origin(spec, places)
    rows = _overlap(piece.row_start, piece.num_rows, row, mine.rows)
    cols = _overlap(piece.col_start, piece.num_cols, col, mine.cols)
    if not rows or not cols:
        return False
    return True if (rows, cols) == (piece.num_rows, piece.num_cols) else None


def _overlap(begin: int, size: int, other: int, other_size: int) -> int:
    return max(0, min(begin + size, other + other_size) - max(begin, other))
