"""Lists of new bits on the CPU: parsed, folded, and scattered into live tensors (coder `sidecar`).

A list holds absolute bits, so a scatter that was interrupted is simply done again, and of several lists the later one's
bits win. The sidecar has checked what the bits lead to; here every number is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.errors import LocalProtocolError
from sync_runtime.tensors.layout import Layout, TensorSpec

_RECORD = struct.Struct("<IIQ")
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class NewBits:
    """What some elements of a tensor become."""

    positions: NDArray[np.int64]
    """Elements of the tensor's matrix, row-major, ascending."""
    bits: NDArray[np.unsignedinteger]


@dataclass
class BitList:
    """New bits by tensor number."""

    tensors: dict[int, NewBits] = field(default_factory=dict)

    @property
    def num_elements(self) -> int:
        """How many elements a scatter writes."""
        return sum(int(new.positions.size) for new in self.tensors.values())


def max_list_bytes(layout: Layout) -> int:
    """No list of a layout is longer."""
    return sum(_RECORD.size + spec.numel * (8 + spec.dtype.width_bytes) + 8 for spec in layout.tensors)


def parse_list(data: NDArray[np.uint8], layout: Layout, between: Callable[[], None]) -> BitList:
    """Reads a list; `between` is called between tensors. Bits stay where they are: keep `data`."""
    found: dict[int, NewBits] = {}
    at, previous = 0, -1
    while at < data.size:
        if data.size - at < _RECORD.size:
            raise LocalProtocolError("a list ends inside a record's head")
        tensor, zero, count = _RECORD.unpack_from(data.data, at)
        at += _RECORD.size
        if zero or not previous < tensor < len(layout.tensors):
            raise LocalProtocolError(f"a list names tensor {tensor} after {previous}; there are {len(layout.tensors)}")
        spec = layout.tensors[tensor]
        size = count * (8 + spec.dtype.width_bytes)
        padded = -(-size // 8) * 8
        if not 0 < count <= spec.numel or data.size - at < padded:
            raise LocalProtocolError(f"a list has {count} elements of {spec.name!r}, which do not fit")
        found[tensor] = _record(data[at : at + padded], count, spec)
        at, previous = at + padded, tensor
        between()
    return BitList(found)


def _record(data: NDArray[np.uint8], count: int, spec: TensorSpec) -> NewBits:
    positions = data[: 8 * count].view("<i8")
    end = count * (8 + spec.dtype.width_bytes)
    if positions[0] < 0 or positions[-1] >= spec.numel or (positions[1:] <= positions[:-1]).any() or data[end:].any():
        raise LocalProtocolError(f"the list of {spec.name!r} does not ascend inside the tensor, or is padded wrongly")
    return NewBits(positions, data[8 * count : end].view(spec.dtype.bits_dtype.newbyteorder("<")))


def folded(earlier: BitList, later: BitList, between: Callable[[], None]) -> BitList:
    """A list with the entries of both; the later one's where both have a position."""
    found = dict(earlier.tensors)
    for tensor, new in later.tensors.items():
        found[tensor] = _merged(found[tensor], new) if tensor in found else new
        between()
    return BitList(found)


def _merged(earlier: NewBits, later: NewBits) -> NewBits:
    kept = ~np.isin(earlier.positions, later.positions, assume_unique=True)
    positions = np.concatenate([earlier.positions[kept], later.positions])
    order = np.argsort(positions, kind="stable")  # two ascending runs: merged, not sorted
    return NewBits(positions[order], np.concatenate([earlier.bits[kept], later.bits])[order])


def scatter(layout: Layout, live: Mapping[str, torch.Tensor], new: BitList) -> None:
    """Writes a list into live tensors. Doing it twice does nothing more."""
    for number, entries in new.tensors.items():
        spec = layout.tensors[number]
        _scatter_tensor(live[spec.name], spec, entries)


def _scatter_tensor(tensor: torch.Tensor, spec: TensorSpec, entries: NewBits) -> None:
    if not tensor.is_contiguous() and spec.dtype.elements_per_item > 1:
        copy = tensor.contiguous()  # halves of items that are apart cannot be seen as one matrix
        _scatter_tensor(copy, spec, entries)
        tensor.copy_(copy)
        return
    width = spec.dtype.width_bytes
    if tensor.is_contiguous():
        places: tuple[NDArray[np.int64], ...] = (entries.positions,)
        target = tensor.reshape(-1).view(_INTEGERS[width])
    else:
        places = np.unravel_index(entries.positions, tensor.shape)
        target = tensor.view(_INTEGERS[width])
    signed = np.ascontiguousarray(entries.bits).view(f"<i{width}" if width > 1 else np.uint8)
    if tensor.device.type == "cpu":
        target.numpy()[places] = signed  # one thread: waking others costs more than the pause may
        return
    target.index_put_(tuple(_moved(place, tensor) for place in places), _moved(signed, tensor))


def _moved(values: NDArray[np.generic], beside: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(beside.device)
