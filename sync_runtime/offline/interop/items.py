"""Tensors as flat lists of items, which is how other tools count: an item is what one index of theirs names.

Our elements are at most four bytes wide, so an item of eight bytes is two of them. Pure.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from sync_runtime.errors import FormatError, LayoutError, LimitError
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.sparse import Bits

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


def items_of(tensor: BitTensor) -> Bits:
    """The tensor's items as unsigned integers; a view where memory allows."""
    flat = tensor.matrix.reshape(-1)
    return flat if tensor.dtype.elements_per_item == 1 else flat.view(np.uint64)


def num_items(tensor: BitTensor) -> int:
    """How many there are."""
    return prod(tensor.shape)


def raw_bytes(tensor: BitTensor) -> U8:
    """The tensor's bytes as safetensors stores them: little-endian, row-major."""
    little = tensor.dtype.bits_dtype.newbyteorder("<")
    return np.ascontiguousarray(tensor.matrix, little).reshape(-1).view(np.uint8)


def of_bytes(like: BitTensor, raw: U8) -> BitTensor:
    """A tensor of the same kind from its bytes."""
    little = raw.view(like.dtype.bits_dtype.newbyteorder("<"))
    return BitTensor(
        like.dtype, like.shape, little.astype(like.dtype.bits_dtype, copy=False).reshape(like.matrix.shape)
    )


def of_items(like: BitTensor, items: Bits) -> BitTensor:
    """A tensor of the same kind from its items."""
    return BitTensor(like.dtype, like.shape, items.view(like.dtype.bits_dtype).reshape(like.matrix.shape))


def overwritten(old: BitTensor, positions: I64, values: Bits) -> BitTensor:
    """A copy with some items replaced; the positions were checked."""
    items = np.array(items_of(old))
    items[positions] = values
    return of_items(old, items)


def changed_positions(old: BitTensor, new: BitTensor) -> I64:
    """Which items differ, bit for bit."""
    return np.flatnonzero(items_of(old) != items_of(new)).astype(np.int64, copy=False)


def check_positions(positions: I64, count: int, name: str) -> None:
    """Refuses positions that are not strictly ascending or not those of a tensor with `count` items."""
    if not positions.size:
        return
    steps = np.diff(positions)
    if steps.size and int(steps.min()) == 0:
        raise FormatError(f"{name!r} has an index twice: which value is meant cannot be known")
    if steps.size and int(steps.min()) < 0:
        raise FormatError(f"the indices of {name!r} do not ascend")
    if int(positions[0]) < 0 or int(positions[-1]) >= count:
        raise FormatError(f"{name!r} has {count} elements, and an index outside them")


def check_count(changed: int, count: int, name: str) -> None:
    """Refuses more changes than there are items, before anything is allocated for them."""
    if changed > count:
        raise LimitError(f"{name!r} has {count} elements and cannot have {changed} changes")


def check_dtype(found: str, old: BitTensor, name: str) -> None:
    """Refuses values of another dtype than the base's: a cast would not be exact."""
    if found != old.dtype.name:
        raise LayoutError(f"{name!r} is {old.dtype.name} in the base and {found} in the delta; nothing is cast here")
