"""Checkpoints on disk: one safetensors file, or a folder of shards with an index; mapped tensor by tensor.

Only the tensors in use are mapped, so memory stays near the largest of them. Headers are hostile: every offset is
checked against the file before it is used.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sync_runtime.errors import FormatError, LayoutError
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.dtypes import BY_NAME
from sync_runtime.tensors.layout import Layout, make_layout

MAX_HEADER_BYTES = 100 << 20
_INDEX_SUFFIX = ".safetensors.index.json"
_LENGTH = struct.Struct("<Q")
_KEPT_TENSORS = 2
"""Blocks of neighbouring tensors may be in work at the same time."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor's bytes lie."""

    file: Path
    dtype_name: str
    shape: tuple[int, ...]
    begin: int
    size_bytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A state on disk."""

    path: Path
    files: tuple[Path, ...]
    """What has to be copied to have the checkpoint elsewhere; the index included."""
    entries: Mapping[str, Entry]

    def layout(self) -> Layout:
        """The layout of its tensors."""
        return make_layout((name, entry.dtype_name, entry.shape) for name, entry in self.entries.items())

    def copied(self, target: Path) -> Checkpoint:
        """A copy under another path, which must not exist."""
        if not self.path.is_dir():
            shutil.copyfile(self.path, target)
        else:
            target.mkdir()
            for file in self.files:
                shutil.copyfile(file, target / file.name)
        return open_checkpoint(target)


def open_checkpoint(path: Path) -> Checkpoint:
    """Reads the headers of a file or a folder; raises FormatError where they are not sound."""
    if not path.is_dir():
        return Checkpoint(path, (path,), _read_header(path))
    indexes = sorted(path.glob(f"*{_INDEX_SUFFIX}"))
    shards = sorted(path.glob("*.safetensors"))
    if len(indexes) == 1:
        return _indexed(path, indexes[0])
    if not indexes and len(shards) == 1:
        return Checkpoint(path, (shards[0],), _read_header(shards[0]))
    raise FormatError(f"{path} holds {len(shards)} safetensors files and {len(indexes)} indexes: which are meant?")


def stored_names(checkpoint: Checkpoint, layout: Layout) -> list[list[str]]:
    """By the layout's numbers: under which of a tensor's names the checkpoint stores it; its own name first.

    Of tied names checkpoints often hold one alone, and not always the one that travels.
    """
    found = [[spec.name] for spec in layout.tensors]
    for alias, name in layout.tied:
        found[layout.index_of[name]].append(alias)
    return [[name for name in names if name in checkpoint.entries] for names in found]


class MappedState(Mapping[int, BitTensor]):
    """A checkpoint's tensors by the layout's numbers, mapped when asked for and let go soon after."""

    def __init__(self, checkpoint: Checkpoint, layout: Layout, *, writable: bool = False) -> None:
        self._names = stored_names(checkpoint, layout)
        _check_fit(checkpoint, layout, self._names)
        self._checkpoint, self._layout, self._writable = checkpoint, layout, writable
        self._kept: OrderedDict[int, BitTensor] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, at: int) -> BitTensor:
        with self._lock:
            found = self._kept.get(at)
            if found is None:
                found = _mapped(self._checkpoint.entries[self._names[at][0]], writable=self._writable)
                self._kept[at] = found
                while len(self._kept) > _KEPT_TENSORS:
                    self._kept.popitem(last=False)
            return found

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._layout.tensors)))

    def __len__(self) -> int:
        return len(self._layout.tensors)


def _check_fit(checkpoint: Checkpoint, layout: Layout, stored: list[list[str]]) -> None:
    names = {spec.name for spec in layout.tensors} | {alias for alias, _ in layout.tied}
    unknown = sorted(set(checkpoint.entries) - names)
    if unknown:
        raise LayoutError(f"{checkpoint.path} has a tensor {unknown[0]!r} that the other side does not have")
    for spec, held in zip(layout.tensors, stored, strict=True):
        if not held:
            raise LayoutError(f"{checkpoint.path} has no tensor {spec.name!r}")
        entry = checkpoint.entries[held[0]]
        if (entry.dtype_name, entry.shape) != (spec.dtype.name, spec.shape):
            have, want = f"{entry.dtype_name}{list(entry.shape)}", f"{spec.dtype.name}{list(spec.shape)}"
            raise LayoutError(f"{spec.name!r} is {have} in {checkpoint.path}, elsewhere {want}")


def _mapped(entry: Entry, *, writable: bool) -> BitTensor:
    dtype = BY_NAME[entry.dtype_name]
    cols = (entry.shape[-1] if entry.shape else 1) * dtype.elements_per_item
    shape = (prod(entry.shape[:-1]), cols)
    little = dtype.bits_dtype.newbyteorder("<")
    if not entry.size_bytes:
        return BitTensor(dtype, entry.shape, np.zeros(shape, dtype.bits_dtype))
    if os.path.getsize(entry.file) < entry.begin + entry.size_bytes:
        raise FormatError(f"{entry.file} became shorter while it was read")
    mode: Literal["r+", "c"] = "r+" if writable else "c"  # private, not read-only: one array type, one compiled loop
    mapped: Any = np.memmap(entry.file, little, mode, entry.begin, shape)
    matrix = mapped.view(np.ndarray)
    if not writable and not matrix.flags.aligned:
        matrix = matrix.copy()
    return BitTensor(dtype, entry.shape, matrix)


def _indexed(folder: Path, index: Path) -> Checkpoint:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{index} is not an index of shards") from error
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise FormatError(f"{index} is not an index of shards")
    if any(Path(name).name != name for name in weight_map.values()):
        raise FormatError(f"{index} leads outside its folder")
    files = sorted({folder / name for name in weight_map.values()})
    headers = {file.name: _read_header(file) for file in files}
    entries = {}
    for name, shard in weight_map.items():
        if name not in headers[shard]:
            raise FormatError(f"{index} places {name!r} in {shard}, which does not have it")
        entries[name] = headers[shard][name]
    return Checkpoint(folder, (*files, index), entries)


def _read_header(path: Path) -> dict[str, Entry]:
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        prefix = file.read(_LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if not 2 <= length <= min(MAX_HEADER_BYTES, size_bytes - _LENGTH.size):
            raise FormatError(f"{path} is not a safetensors file: its header has an impossible length")
        raw = file.read(length)
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict):
        raise FormatError(f"{path} is not a safetensors file: its header is not an object")
    start = _LENGTH.size + length
    tensors = {name: fields for name, fields in header.items() if name != "__metadata__"}
    return {name: _entry(path, name, fields, start, size_bytes) for name, fields in tensors.items()}


def _entry(path: Path, name: str, fields: object, start: int, file_bytes: int) -> Entry:
    if not isinstance(fields, dict):
        raise FormatError(f"{name!r} in {path} is not described as safetensors does it")
    dtype_name, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if dtype_name not in BY_NAME:
        raise LayoutError(f"{name!r} in {path} has dtype {dtype_name}, which is not one of the wire dtypes")
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        raise FormatError(f"{name!r} in {path} is not described as safetensors does it")
    if any(type(size) is not int or size < 0 for size in (*shape, *offsets)):
        raise FormatError(f"{name!r} in {path} is not described as safetensors does it")
    dtype = BY_NAME[dtype_name]
    begin, end = offsets
    if end - begin != prod(shape) * dtype.elements_per_item * dtype.width_bytes or start + end > file_bytes:
        raise FormatError(f"{name!r} in {path} has bytes that do not fit its shape or its file")
    return Entry(path, dtype_name, tuple(shape), start + begin, end - begin)
