"""PULSE patches as grail publishes them: one zstd frame over a JSON header and, per changed tensor, indices and values.

    version 2    differences of the flat indices, int32
    version 3    differences of rows and columns, int32 each; a column is absolute where its row is new
    version 31   the same in uint8, uint16 or int32, whatever fits

A tensor is a matrix of its first dimension and all others; one with a single dimension has one column. Values are
absolute. There is neither a base's identity nor a checksum in the file: both must be known from elsewhere.
"""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sync_runtime.errors import FormatError, LayoutError, LimitError, UnknownFormatError
from sync_runtime.offline.durable import durable_file, mapped
from sync_runtime.offline.interop.documents import MAX_DOCUMENT_BYTES, count, field, objects, parse_object, sizes
from sync_runtime.offline.interop.items import (
    I64,
    changed_positions,
    check_count,
    check_dtype,
    check_positions,
    items_of,
    overwritten,
)
from sync_runtime.offline.interop.model import NOTHING_CHECKED, Foreign, Origin
from sync_runtime.offline.interop.target import Export, Pair, Written
from sync_runtime.offline.interop.zstd import FrameReader, compress
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.dtypes import BY_NAME

VARIANTS = ("grail-v3.1", "grail-v3", "grail-v2")
_VERSIONS = {"grail-v2": 2, "grail-v3": 3, "grail-v3.1": 31}
_LENGTH = struct.Struct("<I")
_MAX_INDEX = (1 << 31) - 1
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_WIDTHS = {"uint8": "u1", "uint16": "<u2", "int32": "<i4"}


class _Entry(NamedTuple):
    name: str
    shape: tuple[int, ...]
    changed: int
    dtype_name: str
    kinds: tuple[str, ...]
    """Of one or two lists of differences."""


class _Streams(NamedTuple):
    lists: tuple[I64, ...]
    values: bytes


class GrailPatch(Foreign):
    """An opened patch."""

    def __init__(self, data: memoryview, what: str) -> None:
        reader = FrameReader(data, what)
        (length,) = _LENGTH.unpack(reader.take(_LENGTH.size))
        if length > MAX_DOCUMENT_BYTES:
            raise LimitError(f"{what} has a header of {length} bytes; the limit is {MAX_DOCUMENT_BYTES}")
        header = parse_object(reader.take(length), f"the header of {what}")
        version = field(header, "version", int, what)
        if version not in _VERSIONS.values():
            raise UnknownFormatError(f"{what} is a grail patch of version {version}; known are 2, 3 and 31")
        self._entries = {entry.name: entry for entry in _entries(header, version, what)}
        self._streams = {name: _taken(reader, entry) for name, entry in self._entries.items()}
        reader.end()
        variant = next(name for name, number in _VERSIONS.items() if number == version)
        self.origin = Origin(variant, "", NOTHING_CHECKED)
        self.names = frozenset(self._entries)

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The base with the patch's values in their places."""
        entry, streams = self._entries[name], self._streams[name]
        check_dtype(entry.dtype_name, old, name)
        if entry.shape != old.shape:
            raise LayoutError(f"{name!r} has shape {list(old.shape)} in the base and {list(entry.shape)} in the patch")
        positions = decode_positions(streams.lists, entry.shape, name)
        values = items_of(old)[:0].dtype
        return overwritten(old, positions, np.frombuffer(streams.values, values.newbyteorder("<")))


def read(path: Path) -> GrailPatch:
    """Opens a patch."""
    return GrailPatch(mapped(path), str(path))


def decode_positions(lists: tuple[I64, ...], shape: tuple[int, ...], name: str) -> I64:
    """Flat positions, checked."""
    if any(part.size and int(part.min()) < 0 for part in lists):
        raise FormatError(f"the indices of {name!r} do not ascend")
    if len(lists) == 1:
        positions = np.cumsum(lists[0])
        check_positions(positions, prod(shape), name)
        return positions
    rows, steps = np.cumsum(lists[0]), lists[1]
    if rows.size:
        is_new = lists[0] != 0
        is_new[0] = True
        run = np.cumsum(steps)
        starts = np.flatnonzero(is_new)
        cols = run - np.repeat((run - steps)[starts], np.diff(starts, append=rows.size))
        if int(cols.max()) >= _columns(shape):
            raise FormatError(f"{name!r} has {_columns(shape)} columns, and an index outside them")
        rows = rows * _columns(shape) + cols
    check_positions(rows, prod(shape), name)
    return rows


def encode_positions(positions: I64, shape: tuple[int, ...], version: int) -> tuple[I64, ...]:
    """The same backwards."""
    if version == 2:
        return (np.diff(positions, prepend=0),)
    rows, cols = np.divmod(positions, _columns(shape))
    down = np.diff(rows, prepend=0)
    is_new = down != 0
    is_new[:1] = True
    return down, np.where(is_new, cols, np.diff(cols, prepend=0))


def write(export: Export) -> Written:
    """Writes a patch."""
    version = _VERSIONS[export.variant]
    tensors: list[dict[str, object]] = []
    parts: list[bytes] = []
    changed, at = 0, 0
    for pair in export.pairs():
        positions = changed_positions(pair.old, pair.new)
        if positions.size:
            described, lists, values = _packed(pair, positions, version, at)
            tensors.append(described)
            parts += [*lists, values]
            at += sum(map(len, lists)) + len(values)
            changed += positions.size
    header = json.dumps({"version": version, "tensors": tensors}, separators=(",", ":")).encode()
    with durable_file(export.output) as file:
        file.write(compress(b"".join([_LENGTH.pack(len(header)), header, *parts])))
    return Written(changed, len(tensors))


def _packed(pair: Pair, positions: I64, version: int, at: int) -> tuple[dict[str, object], list[bytes], bytes]:
    """(description, lists, values) of one tensor."""
    dtypes = {wire: name for name, wire in _DTYPES.items()}
    if pair.new.dtype.name not in dtypes or not pair.new.shape:
        kind = f"{pair.new.dtype.name}{list(pair.new.shape)}"
        raise LayoutError(f"{pair.name!r} is {kind}; a grail patch holds float tensors with a dimension at least")
    lists = encode_positions(positions, pair.new.shape, version)
    kinds = [_kind(part, smallest=number == 0) if version == 31 else "int32" for number, part in enumerate(lists)]
    if any(int(part.max()) > _MAX_INDEX for part in lists) or (version == 2 and int(positions[-1]) > _MAX_INDEX):
        raise LimitError(f"{pair.name!r} has a change above what grail counts in 32 bits")
    coded = [part.astype(_WIDTHS[kind]).tobytes() for part, kind in zip(lists, kinds, strict=True)]
    items = items_of(pair.new)[positions]
    values = items.astype(items.dtype.newbyteorder("<")).tobytes()
    index_bytes = sum(map(len, coded))
    described: dict[str, object] = {
        "name": pair.name, "shape": list(pair.new.shape), "num_nonzero": int(positions.size),
        "value_dtype": dtypes[pair.new.dtype.name],
    }  # fmt: skip
    if version == 31:
        described |= {"row_dtype": kinds[0], "col_dtype": kinds[1]}
    described |= {"indices_offset": at, "indices_size": index_bytes}
    if version != 2:
        described |= {"rows_size": len(coded[0]), "cols_size": len(coded[1])}
    return described | {"values_offset": at + index_bytes, "values_size": len(values)}, coded, values


def _kind(part: I64, *, smallest: bool) -> str:
    """Rows may be bytes; columns are two of them at least."""
    largest = int(part.max())
    if smallest and largest <= 0xFF:
        return "uint8"
    return "uint16" if largest <= 0xFFFF else "int32"


def _entries(header: dict[str, object], version: int, what: str) -> list[_Entry]:
    found: list[_Entry] = []
    at = 0
    for tensor in objects(header, "tensors", what):
        name = field(tensor, "name", str, what)
        where = f"{name!r} in {what}"
        if found and name <= found[-1].name:
            raise FormatError(f"the tensors of {what} do not ascend strictly by name: {name!r}")
        shape, changed = sizes(tensor, "shape", where), count(tensor, "num_nonzero", where)
        check_count(changed, prod(shape), where)
        said = str(tensor.get("value_dtype"))
        if said not in _DTYPES:
            raise UnknownFormatError(f"{where} has values of {said}; known are {', '.join(_DTYPES)}")
        entry = _Entry(name, shape, changed, _DTYPES[said], _kinds(tensor, version, where))
        at = _check_sizes(tensor, entry, at, where)
        found.append(entry)
    return found


def _kinds(tensor: dict[str, object], version: int, where: str) -> tuple[str, ...]:
    if version == 2:
        return ("int32",)
    if version == 3:
        return ("int32", "int32")
    kinds = (str(tensor.get("row_dtype", "int32")), str(tensor.get("col_dtype", "int32")))
    unknown = [kind for kind in kinds if kind not in _WIDTHS]
    if unknown:
        raise UnknownFormatError(f"{where} has indices of {unknown[0]}; known are {', '.join(_WIDTHS)}")
    return kinds


def _check_sizes(tensor: dict[str, object], entry: _Entry, at: int, where: str) -> int:
    """Every size follows from the number of changes; where the next tensor begins."""
    lists = [entry.changed * np.dtype(_WIDTHS[kind]).itemsize for kind in entry.kinds]
    value_bytes = entry.changed * BY_NAME[entry.dtype_name].width_bytes
    wanted = {
        "indices_offset": at, "indices_size": sum(lists), "values_offset": at + sum(lists), "values_size": value_bytes,
    }  # fmt: skip
    if len(lists) == 2:
        wanted |= {"rows_size": lists[0], "cols_size": lists[1]}
    for key, expected in wanted.items():
        if count(tensor, key, where) != expected:
            raise FormatError(f"{key!r} of {where} is {tensor[key]} where its changes make it {expected}")
    return at + sum(lists) + value_bytes


def _taken(reader: FrameReader, entry: _Entry) -> _Streams:
    lists = []
    for kind in entry.kinds:
        width = np.dtype(_WIDTHS[kind])
        lists.append(np.frombuffer(reader.take(entry.changed * width.itemsize), width).astype(np.int64))
    return _Streams(tuple(lists), reader.take(entry.changed * BY_NAME[entry.dtype_name].width_bytes))


def _columns(shape: tuple[int, ...]) -> int:
    return max(1, prod(shape[1:]))
