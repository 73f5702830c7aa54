"""Binds tensors to a section: addresses and strides that kernels follow, so that nothing is copied to be read.

A tile is read where it lies, through its strides. Blocks of several small tensors are gathered into one buffer that is
made once; `refresh` fills it. Kernels then see every block as one rectangle.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import triton
import triton.language as tl

from sync_runtime.errors import LayoutError
from sync_runtime.tensors.device.bitops import bits_pointer
from sync_runtime.tensors.device.sections import Section
from sync_runtime.tensors.layout import Layout, TensorSpec
from sync_runtime.tensors.places import WHOLE, Places, held_origin, held_spec

BITS_OF_WIDTH = {8: torch.uint8, 16: torch.int16, 32: torch.int32}
"""What holds raw elements of a width in torch."""
TORCH_DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "F16": torch.float16, "BF16": torch.bfloat16, "U32": torch.uint32, "I32": torch.int32, "F32": torch.float32,
    "U64": torch.uint64, "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
"""What holds items of a wire dtype."""
if hasattr(torch, "float8_e8m0fnu"):  # younger than the oldest torch that is supported
    TORCH_DTYPES["F8_E8M0"] = torch.float8_e8m0fnu
CASTS = {"BF16": 1, "F16": 2}
"""Wire dtypes that fp32 masters may travel as, by the number that kernels know the cast by."""
_GATHER = 1024


@dataclass(frozen=True)
class Rectangles:
    """Where the elements of blocks or pieces lie. All on the device."""

    address: torch.Tensor
    """int64[K]"""
    row_stride: torch.Tensor
    """int64[K], in elements"""
    col_stride: torch.Tensor
    """int64[K], in elements"""
    cols: torch.Tensor
    """int32[K]"""


@dataclass(frozen=True)
class Bound:
    """A state of one section, as kernels find it. Holds the tensors, so that their memory stays."""

    section: Section
    blocks: Rectangles
    pieces: Rectangles
    flat: bool
    """Whether every block is contiguous memory."""
    cast: int
    """0: the memory has the wire dtype; else it is fp32 and travels under this number of `CASTS`."""
    nan_bits: int
    """What the device's cast makes of a NaN; -1 where it keeps sign and payload."""
    packed: torch.Tensor
    """Elements of the blocks of several pieces, one after the other."""
    packed_pieces: torch.Tensor
    """int32: their pieces."""
    packed_target: torch.Tensor
    """int64: address where each of these pieces is gathered to."""
    tensors: tuple[torch.Tensor, ...]
    host_pieces: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    """[P, 3]: address, row stride, column stride."""

    @property
    def memory_bits(self) -> int:
        """Bits of an element in memory: 32 under a cast."""
        return 32 if self.cast else self.section.dtype.width_bits

    def refresh(self) -> None:
        """Gathers the blocks of several small tensors anew; tiles are read where they lie."""
        if self.packed_pieces.numel():
            shape = self.section.piece_shape
            _gather_pieces[(self.packed_pieces.numel(),)](
                self.packed_pieces, self.packed_target, self.pieces.address, self.pieces.row_stride,
                self.pieces.col_stride, shape, self.memory_bits, _GATHER,
            )  # fmt: skip


@triton.jit
def _gather_pieces(
    which, target, address, row_stride, col_stride, shape, WIDTH: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """One program per piece: its elements, row-major, to the target address."""
    pid = tl.program_id(0).to(tl.int64)
    piece = tl.load(which + pid)
    source = bits_pointer(tl.load(address + piece), WIDTH)
    sink = bits_pointer(tl.load(target + pid), WIDTH)
    rows, cols = tl.load(shape + 2 * piece), tl.load(shape + 2 * piece + 1)
    across, down = tl.load(col_stride + piece), tl.load(row_stride + piece)
    for first in range(0, rows * cols, SIZE):
        i = first + tl.arange(0, SIZE)  # [SIZE]
        inside = i < rows * cols
        row = i // cols
        offset = row.to(tl.int64) * down + (i - row * cols).to(tl.int64) * across
        tl.store(sink + i, tl.load(source + offset, mask=inside, other=0), mask=inside)


def nan_bits_of_cast(device: torch.device, dtype: torch.dtype) -> int:
    """What this device's cast from fp32 makes of NaNs: the bits of all of them, or -1 where they stay apart.

    To bf16: 0x7FFF for all on NVIDIA GPUs, 0x7FC0 for all on most CPUs. To fp16: 0x7FFF for all on NVIDIA GPUs; CPUs
    keep the sign and the upper ten bits of the payload and set the quiet bit. So CPU and GPU casts differ in NaNs.
    """
    probe = torch.tensor([0x7FC00000, 0x7FA02000, 0x7FFFFFFF, -0x400000, -1], dtype=torch.int64).to(torch.int32)
    cast = probe.view(torch.float32).to(device).to(dtype).view(torch.int16).tolist()
    found = {word & 0xFFFF for word in cast}
    return found.pop() if len(found) == 1 else -1


def bind(
    layout: Layout, section: Section, state: Mapping[str, torch.Tensor], *, masters: bool = False,
    places: Places = WHOLE,
) -> Bound:  # fmt: skip
    """The section's part of a state; `masters`: fp32 tensors that travel as bf16 or fp16.

    `places`: what the state's memory holds of tensors that are spread over ranks; the section has blocks therein alone.

    Raises LayoutError where state and layout do not fit.
    """
    cast = CASTS.get(section.dtype.name, 0) if masters else 0
    size = 4 if cast else section.dtype.width_bytes
    found: dict[int, tuple[int, int, int]] = {}
    kept = []
    for number in sorted({int(piece.tensor) for block in section.blocks for piece in block.pieces}):
        spec = layout.tensors[number]
        if spec.name not in state:
            raise LayoutError(f"the state has no tensor {spec.name!r}")
        tensor = state[spec.name].detach()
        address, down, across = _matrix(tensor, held_spec(spec, places), section, torch.float32 if cast else None)
        row, col = held_origin(spec, places)
        # Where the whole tensor would begin; only what lies in this memory is ever reached from there.
        found[number] = (address - (row * down + col * across) * size, down, across)
        kept.append(tensor)
    host = np.array(
        [
            (address + (piece.row_start * down + piece.col_start * across) * size, down, across)
            for block in section.blocks
            for piece in block.pieces
            for address, down, across in (found[piece.tensor],)
        ],
        np.int64,
    ).reshape(-1, 3)
    return _bound(section, host, tuple(kept), cast=cast)


def _matrix(
    tensor: torch.Tensor, spec: TensorSpec, section: Section, wanted: torch.dtype | None
) -> tuple[int, int, int]:
    """(address, row stride, column stride) in elements, of a tensor seen as the layout's matrix."""
    if tensor.device.type != section.device.type:
        reachable = tensor.device.type == "cpu" and tensor.is_pinned()
        if not reachable:
            raise LayoutError(f"{spec.name!r} is on {tensor.device}; kernels reach {section.device} and pinned memory")
    if tensor.dtype != (wanted or TORCH_DTYPES.get(spec.dtype.name)):
        raise LayoutError(f"{spec.name!r} is {tensor.dtype}; the layout says {spec.dtype.name}")
    if tuple(tensor.shape) != spec.shape:
        raise LayoutError(f"{spec.name!r} has the shape {tuple(tensor.shape)}; the layout says {spec.shape}")
    down, across = _strides(tensor, spec)
    per_item = spec.dtype.elements_per_item
    if per_item > 1 and spec.shape and spec.shape[-1] > 1 and across != 1:
        raise LayoutError(f"{spec.name!r} has items of eight bytes that are not adjacent: make it contiguous")
    return tensor.data_ptr(), down * per_item, across if per_item == 1 else 1


def _strides(tensor: torch.Tensor, spec: TensorSpec) -> tuple[int, int]:
    """Row and column stride in items; rows of several dimensions must follow each other evenly."""
    dims = [(size, stride) for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True) if size > 1]
    for (_, outer), (size, inner) in pairwise(dims):
        if outer != size * inner:
            raise LayoutError(f"the rows of {spec.name!r} do not lie evenly in memory: make it contiguous")
    across = tensor.stride()[-1] if tensor.dim() else 1
    return (dims[-1][1] if dims else 0), across


def _bound(
    section: Section,
    host: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    kept: tuple[torch.Tensor, ...],
    *,
    cast: int,
) -> Bound:
    device, dtype = section.device, section.dtype
    first_piece = np.cumsum([0] + [len(block.pieces) for block in section.blocks])[:-1]
    packed_sizes = [block.num_elements if len(block.pieces) > 1 else 0 for block in section.blocks]
    starts = np.cumsum([0, *((size + 7) // 8 * 8 for size in packed_sizes)])
    memory_bits = 32 if cast else dtype.width_bits
    packed = torch.zeros(int(starts[-1]), dtype=BITS_OF_WIDTH[memory_bits], device=device)
    blocks, flat = [], True
    packed_pieces, packed_target = [], []
    for at, block in enumerate(section.blocks):
        piece = block.pieces[0]
        if len(block.pieces) > 1:
            address = packed.data_ptr() + int(starts[at]) * memory_bits // 8
            blocks.append((address, block.num_elements, 1, block.num_elements))
            offset = 0
            for k, member in enumerate(block.pieces):
                packed_pieces.append(int(first_piece[at]) + k)
                packed_target.append(address + offset * memory_bits // 8)
                offset += member.num_elements
        else:
            address, down, across = (int(word) for word in host[first_piece[at]])
            contiguous = (across == 1 or piece.num_cols == 1) and (down == piece.num_cols or piece.num_rows == 1)
            flat = flat and contiguous
            blocks.append((address, down, across, piece.num_cols))
    table = np.array(blocks, np.int64).reshape(-1, 4)
    widths = np.array([piece.num_cols for block in section.blocks for piece in block.pieces], np.int64)
    return Bound(
        section=section,
        blocks=_rectangles(table, device),
        pieces=_rectangles(np.concatenate([host, widths[:, None]], axis=1), device),
        flat=flat,
        cast=cast,
        nan_bits=nan_bits_of_cast(device, TORCH_DTYPES[dtype.name]) if cast else 0,
        packed=packed,
        packed_pieces=torch.tensor(packed_pieces, dtype=torch.int32, device=device),
        packed_target=torch.tensor(packed_target, dtype=torch.int64, device=device),
        tensors=kept,
        host_pieces=host,
    )


def _rectangles(table: np.ndarray[tuple[int, int], np.dtype[np.int64]], device: torch.device) -> Rectangles:
    columns = [torch.as_tensor(np.ascontiguousarray(table[:, k]), device=device) for k in range(4)]
    return Rectangles(columns[0], columns[1], columns[2], columns[3].to(torch.int32))
