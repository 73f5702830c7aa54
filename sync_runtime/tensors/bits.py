"""Raw bits of tensors: torch or numpy in, unsigned matrices out, without a copy where memory allows.

Imports no torch: a torch tensor can only come from a process that has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sync_runtime.errors import LayoutError
from sync_runtime.tensors.blocks import Block, Piece
from sync_runtime.tensors.dtypes import WireDtype, wire_dtype
from sync_runtime.tensors.layout import Layout
from sync_runtime.tensors.sparse import Bits, within

_NUMPY_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64",
    "complex64": "C64", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_VIEW_NAMES = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


@dataclass(frozen=True)
class BitTensor:
    """A tensor as a matrix of raw elements, with the dtype and shape it travels under."""

    dtype: WireDtype
    shape: tuple[int, ...]
    matrix: Bits

    def tile(self, rows: slice, cols: slice) -> Bits:
        """A part of the matrix: a view through strides."""
        return self.matrix[rows, cols]


@dataclass(frozen=True)
class CastTensor(BitTensor):
    """An fp32 tensor seen in the dtype it travels under: cast where it is looked at, never as a whole.

    `matrix` holds the fp32 bits. Rounds to the nearest, ties to even. Every NaN becomes one, quiet and positive: what a
    cast makes of NaNs differs from one processor to the next, and a delta must not.
    """

    def tile(self, rows: slice, cols: slice) -> Bits:
        """A part of the matrix, cast: memory of its own."""
        wide = self.matrix[rows, cols]
        is_nan = (wide & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        if self.dtype.name == "F16":
            with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinity, as it should
                halves = wide.view(np.float32).astype(np.float16).view(np.uint16)
            return np.where(is_nan, np.uint16(0x7E00), halves)
        rounded = (wide + np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(is_nan, np.uint16(0x7FC0), rounded.astype(np.uint16))


_CASTS = {("F32", "BF16"), ("F32", "F16")}

State = Mapping[str, Any]
"""Name -> torch tensor on the CPU, numpy array, or BitTensor."""


def bit_tensor(tensor: Any, name: str = "tensor") -> BitTensor:
    """The raw bits of a tensor; they share its memory unless it is not contiguous."""
    if isinstance(tensor, BitTensor):
        return tensor
    if isinstance(tensor, np.ndarray | np.generic):
        return _from_numpy(np.asarray(tensor), str(tensor.dtype), name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _from_torch(torch, tensor, name)
    raise LayoutError(f"{name} is a {type(tensor).__name__}; a state maps names to torch tensors or numpy arrays")


def from_buffer(buffer: Any, dtype_name: str, shape: tuple[int, ...]) -> BitTensor:
    """Bits over a buffer of little-endian items (a mapped file)."""
    dtype = wire_dtype(dtype_name)
    flat = np.frombuffer(buffer, dtype=dtype.bits_dtype)
    return BitTensor(dtype, shape, _matrix(flat, dtype, shape))


def gather(block: Block, state: Mapping[int, BitTensor]) -> Bits:
    """A block's elements in index order; a view where the tile is contiguous."""
    parts = [rectangle(piece, state[piece.tensor]).reshape(-1) for piece in block.pieces]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def rectangle(piece: Piece, tensor: BitTensor) -> Bits:
    """A piece of a tensor; a view through strides unless it is cast."""
    return tensor.tile(*_slices(piece))


def _slices(piece: Piece) -> tuple[slice, slice]:
    rows = slice(piece.row_start, piece.row_start + piece.num_rows)
    return rows, slice(piece.col_start, piece.col_start + piece.num_cols)


def scatter(block: Block, state: Mapping[int, BitTensor], positions: Any, bits: Bits) -> None:
    """Writes absolute bits into a block's elements, at positions that ascend. Doing it twice does nothing more."""
    first = 0
    for piece in block.pieces:
        inside = within(positions, first, piece.num_elements)
        if inside.stop > inside.start:
            _write(state[piece.tensor].matrix[_slices(piece)], positions[inside], first, bits[inside])
        first += piece.num_elements


def _write(tile: Bits, positions: Any, first: int, bits: Bits) -> None:
    """Into one piece, whose index begins at `first`. Most pieces are whole rows, so that one index is enough."""
    if bits.size == tile.size:  # all of it
        tile[...] = bits.reshape(tile.shape)
        return
    local = positions.astype(np.int64)
    local -= first
    if tile.flags.c_contiguous:
        tile.reshape(-1)[local] = bits
    else:
        row, col = np.divmod(local, tile.shape[1])
        tile[row, col] = bits


def bind(layout: Layout, state: State, *, writable: bool = False) -> dict[int, BitTensor]:
    """The state's bits by the layout's numbers; raises LayoutError where the two do not fit.

    An fp32 tensor may stand for one that travels as bf16 or fp16: it is cast as it is read. `writable`: the bits will
    be written, so they must be the tensor's own memory, neither a copy nor a cast of it.
    """
    unknown = sorted(set(state) - set(layout.index_of))
    if unknown:
        raise LayoutError(f"the layout has no tensor {unknown[0]!r} ({len(unknown)} such names)")
    bound = {}
    for at, spec in enumerate(layout.tensors):
        if spec.name not in state:
            raise LayoutError(f"the state has no tensor {spec.name!r}")
        found = bit_tensor(state[spec.name], spec.name)
        if not writable and (found.dtype.name, spec.dtype.name) in _CASTS:
            found = CastTensor(spec.dtype, found.shape, found.matrix)
        if found.dtype != spec.dtype or found.shape != spec.shape:
            have, want = f"{found.dtype.name}{list(found.shape)}", f"{spec.dtype.name}{list(spec.shape)}"
            raise LayoutError(f"{spec.name!r} is {have}, the layout says {want}")
        if writable and not (found.matrix.flags.writeable and _is_own_memory(state[spec.name], found)):
            raise LayoutError(f"{spec.name!r} cannot be written in place: make it contiguous and writable")
        bound[at] = found
    return bound


def memory_of(tensor: Any) -> tuple[int, tuple[int, ...], str] | None:
    """What two names share if they are one tensor: address, shape, dtype. None for empty tensors."""
    found = bit_tensor(tensor)
    own = found.matrix.size and _is_own_memory(tensor, found)
    return (found.matrix.ctypes.data, found.shape, found.dtype.name) if own else None


def _is_own_memory(tensor: Any, found: BitTensor) -> bool:
    if isinstance(tensor, BitTensor) or not found.matrix.size:
        return True
    address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.ctypes.data
    return bool(address == found.matrix.ctypes.data)


def _from_numpy(array: Any, dtype_name: str, name: str) -> BitTensor:
    wire_name = _NUMPY_NAMES.get(dtype_name)
    if wire_name is None:
        raise LayoutError(f"{name} has dtype {dtype_name}, which is not a wire dtype")
    dtype = wire_dtype(wire_name)
    flat = np.ascontiguousarray(array).reshape(-1).view(dtype.bits_dtype)
    return BitTensor(dtype, tuple(array.shape), _matrix(flat, dtype, tuple(array.shape)))


def _from_torch(torch: Any, tensor: Any, name: str) -> BitTensor:
    if tensor.device.type != "cpu":
        raise LayoutError(f"{name} is on {tensor.device}; this path reads the CPU's memory")
    shape = tuple(tensor.shape)
    wire_name = _NUMPY_NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if wire_name is None:
        raise LayoutError(f"{name} has dtype {tensor.dtype}, which is not a wire dtype")
    plain = tensor.detach().contiguous().reshape(-1)
    array = plain.view(getattr(torch, _VIEW_NAMES[plain.element_size()])).numpy()
    dtype = wire_dtype(wire_name)
    return BitTensor(dtype, shape, _matrix(array.view(dtype.bits_dtype), dtype, shape))


def _matrix(flat: Bits, dtype: WireDtype, shape: tuple[int, ...]) -> Bits:
    cols = (shape[-1] if shape else 1) * dtype.elements_per_item
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return flat.reshape(rows, cols)
