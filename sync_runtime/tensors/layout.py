"""Layouts: names, order, shapes, dtypes, ties and grid, as both sides agree on them (FORMAT.md, section 2).

A layout is made once per lineage; everything else (blocks, groups, the hash) is derived from it. Pure: no input or
output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple

from sync_runtime.errors import FormatError, LayoutError, LimitError, UnknownFormatError
from sync_runtime.tensors.dtypes import BY_NAME, WireDtype, wire_dtype

FORMAT = "syncgroup-layout/1"
DEFAULT_BLOCK_ELEMENTS = 1 << 20
MAX_BLOCK_ELEMENTS = 1 << 24
MAX_TENSORS = 1 << 20
MAX_NAME_BYTES = 1024
MAX_DIMENSIONS = 16
MAX_TENSOR_ELEMENTS = 1 << 48
MAX_DOCUMENT_BYTES = 256 << 20
SMALL_ELEMENTS = 1 << 16
"""A tensor below this is packed with others, unless ranks hold parts of it."""


class Grid(NamedTuple):
    """How a tensor's matrix is cut: rows at multiples of step, beginning anew at multiples of period."""

    row_period: int
    row_step: int
    col_step: int


class Shards(NamedTuple):
    """Declared sharding of one tensor, in items of its shape: the heights and widths that ranks own."""

    row_period: int | None = None
    col_step: int | None = None


NO_SHARDS = Shards()


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a layout."""

    name: str
    dtype: WireDtype
    shape: tuple[int, ...]
    grid: Grid | None
    """None: packed with others."""

    @property
    def cols(self) -> int:
        """Elements in a row of the matrix."""
        return (self.shape[-1] if self.shape else 1) * self.dtype.elements_per_item

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return prod(self.shape[:-1]) if self.shape else 1

    @property
    def numel(self) -> int:
        """Elements, not items."""
        return self.rows * self.cols


@dataclass(frozen=True)
class Layout:
    """The agreed description of a state."""

    tensors: tuple[TensorSpec, ...]
    tied: tuple[tuple[str, str], ...] = ()
    block_elements: int = DEFAULT_BLOCK_ELEMENTS

    def __post_init__(self) -> None:
        if not 1 <= self.block_elements <= MAX_BLOCK_ELEMENTS:
            raise LimitError(f"block_elements is {self.block_elements}; the limit is {MAX_BLOCK_ELEMENTS}")
        if len(self.tensors) > MAX_TENSORS or len(self.tied) > MAX_TENSORS:
            raise LimitError(f"a layout has at most {MAX_TENSORS} tensors")
        _check_order([tensor.name for tensor in self.tensors], "tensors")
        _check_order([alias for alias, _ in self.tied], "ties")
        names = {tensor.name for tensor in self.tensors}
        for alias, name in self.tied:
            if alias in names or name not in names:
                raise LayoutError(f"tie {alias} -> {name} does not lead from a new name to a tensor of the layout")
        for tensor in self.tensors:
            _check_tensor(tensor)

    @cached_property
    def document(self) -> bytes:
        """The canonical JSON."""
        rows = [[t.name, t.dtype.name, list(t.shape), None if t.grid is None else list(t.grid)] for t in self.tensors]
        content = {"block_elements": self.block_elements, "format": FORMAT, "tensors": rows, "tied": self.tied}
        return canonical_json(content)

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 of the document."""
        return hashlib.sha256(self.document).digest()

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """Where a tensor stands; aliases lead to their tensor."""
        found = {tensor.name: position for position, tensor in enumerate(self.tensors)}
        found.update({alias: found[name] for alias, name in self.tied})
        return found


def canonical_json(content: object) -> bytes:
    """The one way to write a document."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def parse_canonical_json(document: bytes, what: str, limit_bytes: int) -> dict[str, object]:
    """Reads a document and refuses any other spelling of the same content."""
    if len(document) > limit_bytes:
        raise LimitError(f"the {what} has {len(document)} bytes; the limit is {limit_bytes}")
    try:
        content = json.loads(document.decode("ascii"))
        spelled = canonical_json(content)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise FormatError(f"the {what} is not JSON") from error
    if not isinstance(content, dict):
        raise FormatError(f"the {what} is not a JSON object")
    if spelled != document:
        raise FormatError(f"the {what} is not in canonical form")
    return content


def default_grid(*, rows: int, cols: int, block_elements: int, shards: Shards = NO_SHARDS) -> Grid:
    """The grid of a tensor; no finer than its sharding needs."""
    period = min(rows, shards.row_period or rows)
    col_step = min(cols, shards.col_step or cols, block_elements)
    return Grid(period, min(period, max(1, block_elements // col_step)), col_step)


def make_layout(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]],
    *,
    tied: Mapping[str, str] | None = None,
    shards: Mapping[str, Shards] | None = None,
    block_elements: int = DEFAULT_BLOCK_ELEMENTS,
) -> Layout:
    """A layout of (name, dtype, shape) in any order."""
    declared = shards or {}
    specs = []
    for name, dtype_name, shape in sorted(tensors, key=lambda entry: entry[0].encode()):
        spec = TensorSpec(name, wire_dtype(dtype_name), tuple(int(size) for size in shape), None)
        wanted = declared.get(name, NO_SHARDS)
        if spec.numel >= SMALL_ELEMENTS or (spec.numel and wanted != NO_SHARDS):
            if wanted.col_step:
                wanted = wanted._replace(col_step=wanted.col_step * spec.dtype.elements_per_item)
            grid = default_grid(rows=spec.rows, cols=spec.cols, block_elements=block_elements, shards=wanted)
            spec = TensorSpec(spec.name, spec.dtype, spec.shape, grid)
        specs.append(spec)
    ties = tuple(sorted((tied or {}).items(), key=lambda pair: pair[0].encode()))
    return Layout(tuple(specs), ties, block_elements)


def parse_layout(document: bytes) -> Layout:
    """Reads the canonical JSON of a layout; hostile bytes raise FormatError or LayoutError."""
    content = parse_canonical_json(document, "layout", MAX_DOCUMENT_BYTES)
    if content.get("format") != FORMAT:
        raise UnknownFormatError(f"the layout's format is {content.get('format')!r}; this reader knows {FORMAT}")
    if set(content) != {"format", "tensors", "tied", "block_elements"}:
        raise FormatError("the layout has other fields than the format names")
    block_elements, rows, ties = content["block_elements"], content["tensors"], content["tied"]
    if type(block_elements) is not int or not isinstance(rows, list) or not isinstance(ties, list):
        raise FormatError("a field of the layout has the wrong type")
    tensors = tuple(_parse_tensor(row) for row in rows)
    tied = tuple(_parse_tie(row) for row in ties)
    return Layout(tensors, tied, block_elements)


def _parse_tensor(row: object) -> TensorSpec:
    if not isinstance(row, list) or len(row) != 4:
        raise FormatError("a tensor of the layout is not [name, dtype, shape, grid]")
    name, dtype_name, shape, grid = row
    if not isinstance(name, str) or not isinstance(dtype_name, str) or not isinstance(shape, list):
        raise FormatError("a tensor of the layout is not [name, dtype, shape, grid]")
    if dtype_name not in BY_NAME:
        raise UnknownFormatError(f"dtype {dtype_name!r} of {name!r} is unknown")
    if any(type(size) is not int for size in shape):
        raise FormatError(f"the shape of {name!r} does not consist of integers")
    if grid is not None and (
        not isinstance(grid, list) or len(grid) != 3 or any(type(size) is not int for size in grid)
    ):
        raise FormatError(f"the grid of {name!r} is neither null nor three integers")
    return TensorSpec(name, BY_NAME[dtype_name], tuple(shape), None if grid is None else Grid(*grid))


def _parse_tie(row: object) -> tuple[str, str]:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(name, str) for name in row):
        raise FormatError("a tie of the layout is not [alias, name]")
    return (row[0], row[1])


def _check_order(names: list[str], what: str) -> None:
    try:
        spelled = [name.encode() for name in names]
    except UnicodeEncodeError as error:
        raise LayoutError(f"a name among the {what} is not valid Unicode") from error
    if any(len(name) > MAX_NAME_BYTES for name in spelled):
        raise LimitError(f"a name among the {what} is longer than {MAX_NAME_BYTES} bytes")
    if any(first >= second for first, second in pairwise(spelled)):
        raise LayoutError(f"the {what} do not ascend strictly by name")


def _check_tensor(tensor: TensorSpec) -> None:
    if len(tensor.shape) > MAX_DIMENSIONS or any(size < 0 for size in tensor.shape):
        raise LayoutError(f"the shape of {tensor.name!r} has more than {MAX_DIMENSIONS} or negative dimensions")
    if tensor.numel > MAX_TENSOR_ELEMENTS:
        raise LimitError(f"{tensor.name!r} has {tensor.numel} elements; the limit is {MAX_TENSOR_ELEMENTS}")
    if tensor.grid is None and tensor.numel >= SMALL_ELEMENTS:
        raise LayoutError(f"{tensor.name!r} has {tensor.numel} elements and no grid; only small tensors are packed")
    if tensor.grid is None:
        return
    period, row_step, col_step = tensor.grid
    if not 1 <= row_step <= period <= tensor.rows or not 1 <= col_step <= tensor.cols:
        raise LayoutError(f"the grid of {tensor.name!r} does not fit its matrix")
    if row_step * col_step > MAX_BLOCK_ELEMENTS:
        raise LimitError(f"the grid of {tensor.name!r} makes blocks above {MAX_BLOCK_ELEMENTS} elements")
