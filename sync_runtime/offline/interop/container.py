"""safetensors files that hold something else than a checkpoint: indices, values, compressed bytes.

Stricter than the reader of checkpoints: the metadata counts here, no key may stand twice, and the data has no holes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.offline.durable import mapped
from sync_runtime.offline.interop.documents import MAX_DOCUMENT_BYTES, parse_object, sizes
from sync_runtime.tensors.dtypes import BY_NAME
from sync_runtime.tensors.sparse import Bits

_LENGTH = struct.Struct("<Q")


class Stored(NamedTuple):
    """One tensor of a file."""

    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def num_items(self) -> int:
        """Items in it."""
        return prod(self.shape)

    def items(self) -> Bits:
        """Its items as unsigned integers, straight from the file."""
        dtype = BY_NAME[self.dtype_name]
        width_bytes = dtype.width_bytes * dtype.elements_per_item
        found: Bits = np.frombuffer(self.data, f"<u{width_bytes}")
        return found


@dataclass(frozen=True)
class Container:
    """A file's metadata and tensors."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, Stored]


class Part(NamedTuple):
    """A tensor to write."""

    dtype_name: str
    shape: tuple[int, ...]
    data: bytes


def open_container(path: Path) -> Container:
    """Maps and checks a file."""
    return parse_container(mapped(path), str(path))


def parse_container(data: memoryview, what: str) -> Container:
    """The same from bytes; raises FormatError."""
    if len(data) < _LENGTH.size:
        raise TruncatedError(f"{what} is too short to be a safetensors file")
    (length,) = _LENGTH.unpack_from(data)
    if length > MAX_DOCUMENT_BYTES:
        raise LimitError(f"{what} has a header of {length} bytes; the limit is {MAX_DOCUMENT_BYTES}")
    if length > len(data) - _LENGTH.size:
        raise TruncatedError(f"{what} ends inside its header, or is no safetensors file")
    header = parse_object(bytes(data[_LENGTH.size : _LENGTH.size + length]), f"the header of {what}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError(f"the metadata of {what} does not map strings to strings")
    body = data[_LENGTH.size + length :]
    return Container(metadata, _tensors(header, body, what))


def _tensors(header: dict[str, object], body: memoryview, what: str) -> dict[str, Stored]:
    found, ranges = {}, [(0, 0)]
    for name, fields in header.items():
        where = f"{name!r} in {what}"
        if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
            raise FormatError(f"{where} is not described as safetensors does it")
        shape, offsets = sizes(fields, "shape", where), sizes(fields, "data_offsets", where)
        dtype = BY_NAME.get(str(fields["dtype"]))
        if dtype is None:
            raise UnknownFormatError(f"{where} has dtype {fields['dtype']!r}, which this reader does not know")
        if len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * dtype.width_bytes * dtype.elements_per_item:
            raise FormatError(f"{where} has bytes that do not fit its shape")
        found[name] = Stored(dtype.name, shape, body[offsets[0] : offsets[1]])
        ranges.append((offsets[0], offsets[1]))
    ranges.sort()
    if any(first[1] != second[0] for first, second in pairwise(ranges)):
        raise FormatError(f"the tensors of {what} overlap or leave holes")
    if ranges[-1][1] > len(body):
        raise TruncatedError(f"{what} ends before its tensors do")
    if ranges[-1][1] < len(body):
        raise FormatError(f"{what} has bytes behind its tensors")
    return found


def write_container(file: BinaryIO, parts: Mapping[str, Part], metadata: Mapping[str, str]) -> None:
    """Writes a file in the order of its tensors."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, part in parts.items():
        end = at + len(part.data)
        header[name] = {"dtype": part.dtype_name, "shape": list(part.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)  # so that the first tensor stands on its alignment
    file.write(_LENGTH.pack(len(raw)) + raw)
    for part in parts.values():
        file.write(part.data)


def by_alignment(parts: Mapping[str, Part]) -> dict[str, Part]:
    """Wide items first, so that every tensor stands on its natural alignment; then by name."""

    def key(name: str) -> tuple[int, str]:
        dtype = BY_NAME[parts[name].dtype_name]
        return (-dtype.width_bytes * dtype.elements_per_item, name)

    return {name: parts[name] for name in sorted(parts, key=key)}


def only(keys: Sequence[str], container: Container, what: str) -> None:
    """Refuses a file with other tensors than these."""
    missing, more = sorted(set(keys) - set(container.tensors)), sorted(set(container.tensors) - set(keys))
    if missing:
        raise FormatError(f"{what} has no tensor {missing[0]!r}, which its index places there")
    if more:
        raise FormatError(f"{what} has a tensor {more[0]!r} that its index does not know")
