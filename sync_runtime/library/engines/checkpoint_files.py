"""A checkpoint on disk: names, shapes and dtypes of its tensors, and their elements. Only safetensors files.

The file's header says where each tensor lies; it is checked before it is believed. Knows no engine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch

from sync_runtime.errors import FormatError, LayoutError, LimitError
from sync_runtime.library.weights import wire_name

_DTYPES = {
    wire_name(dtype): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.int32, torch.float32, torch.int64,
        torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip
_INDEX = "model.safetensors.index.json"
_LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 100 << 20
"""No file of safetensors has a longer one."""


class Stored(NamedTuple):
    """A tensor in a file."""

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int
    end: int


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype that travels under a name; raises LayoutError for one that engines do not load."""
    if name not in _DTYPES:
        raise LayoutError(f"tensors of dtype {name} are not loaded here; there are: {', '.join(sorted(_DTYPES))}")
    return _DTYPES[name]


def stored_in(folder: Path) -> dict[str, Stored]:
    """All tensors of a checkpoint's folder; raises LayoutError where there is none, FormatError for broken files."""
    found: dict[str, Stored] = {}
    for file in _files(folder):
        found.update(_header(file))
    if not found:
        raise LayoutError(f"there are no safetensors files in {folder}: say the tensors by `layout`")
    return found


def read(stored: Stored) -> torch.Tensor:
    """A copy of a tensor's elements."""
    found = torch.empty(stored.shape, dtype=stored.dtype)
    octets = found.reshape(-1).view(torch.uint8) if found.numel() else torch.empty(0, dtype=torch.uint8)
    with stored.file.open("rb") as source:
        source.seek(stored.begin)
        if source.readinto(octets.numpy().data) != stored.end - stored.begin:
            raise FormatError(f"{stored.file} ends inside a tensor: fetch the checkpoint again")
    return found


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        named = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{index} is not an index of safetensors files") from error
    return [folder / Path(str(name)).name for name in sorted(named)]


def _header(file: Path) -> dict[str, Stored]:
    with file.open("rb") as source:
        first = source.read(_LENGTH.size)
        if len(first) < _LENGTH.size:
            raise FormatError(f"{file} is too short to be a safetensors file")
        (size,) = _LENGTH.unpack(first)
        if size > MAX_HEADER_BYTES:
            raise LimitError(f"the header of {file} says {size} bytes; the limit is {MAX_HEADER_BYTES}")
        text = source.read(size)
    try:
        content: Mapping[str, Mapping[str, object]] = json.loads(text)
        return {
            name: _stored(file, entry, _LENGTH.size + size) for name, entry in content.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the header of {file} is not one of safetensors") from error


def _stored(file: Path, entry: Mapping[str, object], base: int) -> Stored:
    dtype, shape, offsets = dtype_of(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list):
        raise TypeError("lists were expected")
    begin, end = (int(offset) for offset in offsets)
    sizes = tuple(int(size) for size in shape)
    if begin < 0 or end - begin != prod(sizes) * dtype.itemsize:
        raise ValueError("a tensor's place does not have its size")
    return Stored(file, sizes, dtype, base + begin, base + end)
