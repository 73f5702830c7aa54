"""PULSE patches in the envelope PULSEPT1, formats 1 to 3: bf16 only, every tensor listed, digests of all of them.

    `PULSEPT1` | u32 header size | header: canonical JSON | one zstd frame: per tensor, by name, indices and values

    format 1   delta-u16-esc, absolute values
    format 2   rice-gap, zz-delta-u8esc: zigzag of (new - old) mod 2^16 as bytes, 0xFF and a u16 behind for the rest
    format 3   exp-class-rice, the same values

The digests are XXH3-128 of the new tensors, so the whole new state is verified, and with it the base.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sync_runtime.errors import (
    DigestError,
    FormatError,
    LayoutError,
    LimitError,
    TruncatedError,
    UnknownFormatError,
    WrongBaseError,
)
from sync_runtime.offline.durable import durable_file, mapped
from sync_runtime.offline.interop.checksums import xxh3_128
from sync_runtime.offline.interop.documents import MAX_DOCUMENT_BYTES, count, field, objects, parse_object, sizes
from sync_runtime.offline.interop.items import (
    I64,
    changed_positions,
    check_count,
    check_dtype,
    check_positions,
    items_of,
    num_items,
    overwritten,
    raw_bytes,
)
from sync_runtime.offline.interop.model import Foreign, Origin
from sync_runtime.offline.interop.positions import (
    decode_classes,
    decode_rice,
    decode_u16,
    encode_classes,
    encode_rice,
    encode_u16,
)
from sync_runtime.offline.interop.target import Export, Pair, Written
from sync_runtime.offline.interop.zstd import compress_parts, decompress
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.layout import canonical_json
from sync_runtime.tensors.sparse import Bits

MAGIC = b"PULSEPT1"
VARIANTS = ("pulsept1-v1", "pulsept1-v2", "pulsept1-v3")
_LENGTH = struct.Struct("<I")
_PREFIX = "xxh3_128:"
_MAX_ELEMENTS = 1 << 32
_INDICES = {1: "delta-u16-esc", 2: "rice-gap", 3: "exp-class-rice"}
_VALUES = "zz-delta-u8esc"
_SMALL = 0xFF
_MAX_CLASS_BYTES = 8 << 10
"""Headers of 256 classes."""


class _Entry(NamedTuple):
    name: str
    shape: tuple[int, ...]
    changed: int
    index_bytes: int
    value_bytes: int
    digest: bytes


class PulsePatch(Foreign):
    """An opened patch."""

    lists_all = True

    def __init__(self, data: memoryview, what: str) -> None:
        header, packed = _envelope(data, what)
        self._version = field(header, "formatVersion", int, what)
        if self._version not in _INDICES:
            raise UnknownFormatError(f"{what} is PULSEPT1 of format {self._version}; known are 1, 2 and 3")
        self._entries = {entry.name: entry for entry in _entries(header, self._version, what)}
        digests = [entry.digest for entry in self._entries.values()]
        if _state_digest(digests) != _digest(header, "stateDigest", what):
            raise DigestError(f"the tensors' digests in {what} do not add up to its state's")
        size_bytes = sum(entry.index_bytes + entry.value_bytes for entry in self._entries.values())
        payload = memoryview(decompress(packed, size_bytes, what) if size_bytes else b"")
        self._streams, at = {}, 0
        for entry in self._entries.values():
            middle, end = at + entry.index_bytes, at + entry.index_bytes + entry.value_bytes
            self._streams[entry.name], at = (payload[at:middle], payload[middle:end]), end
        self._base = _digest(header, "baseStateDigest", what) if "baseStateDigest" in header else None
        seqs = (count(header, "baseStep", what), count(header, "step", what))
        checked = "the XXH3-128 of every tensor of the new state"
        self.origin = Origin(VARIANTS[self._version - 1], f"PULSE step {seqs[1]} after {seqs[0]}", checked, seqs)
        self.names = frozenset(self._entries)

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The base with the patch's values in their places; its digest is verified, changed or not."""
        entry, (indices, values) = self._entries[name], self._streams[name]
        check_dtype("BF16", old, name)
        if entry.shape != old.shape:
            raise LayoutError(f"{name!r} has shape {list(old.shape)} in the base and {list(entry.shape)} in the patch")
        check_count(entry.changed, num_items(old), name)
        before = items_of(old)
        positions = self._positions(indices, entry, before)
        check_positions(positions, before.size, name)
        found = np.frombuffer(values, "<u2").astype(np.uint16) if self._version == 1 else None
        if found is None:
            found = decode_values(values, before[positions], name)
        new = overwritten(old, positions, found)
        if xxh3_128(raw_bytes(new)) != entry.digest:
            raise DigestError(f"{name!r} does not get the digest that the patch promises: is the base another one?")
        return new

    def check_base(self, tensors: Iterator[tuple[str, BitTensor]]) -> None:
        """Where the patch names its base: another one is a fault of sequence, not damage."""
        if self._base is None:
            return
        if _state_digest([xxh3_128(raw_bytes(tensor)) for _, tensor in tensors]) != self._base:
            raise WrongBaseError("the patch names another base than this: give the checkpoint that it starts from")

    def _positions(self, indices: memoryview, entry: _Entry, before: Bits) -> I64:
        if self._version == 1:
            return decode_u16(indices, entry.changed, before.size, entry.name)
        if self._version == 2:
            return decode_rice(indices, entry.changed, before.size, entry.name)
        return decode_classes(indices, entry.changed, before, entry.name)


def read(path: Path) -> PulsePatch:
    """Opens a patch."""
    return PulsePatch(mapped(path), str(path))


def decode_values(data: memoryview, before: Bits, name: str) -> Bits:
    """New elements of zz-delta-u8esc."""
    if len(data) < before.size:
        raise TruncatedError(f"the values of {name!r} are cut off")
    symbols = np.frombuffer(data, np.uint8, before.size)
    escaped = symbols == _SMALL
    if len(data) != before.size + 2 * int(np.count_nonzero(escaped)):
        raise FormatError(f"the values of {name!r} do not have the size that their escapes imply")
    large = np.frombuffer(data, "<u2", offset=before.size)
    zigzag = symbols.astype(np.uint16)
    zigzag[escaped] = large
    if not zigzag.all() or (large.size and int(large.min()) < _SMALL):
        raise FormatError(f"a value of {name!r} is no change, or not in its shortest form")
    steps = (zigzag >> np.uint16(1)) ^ (np.uint16(0) - (zigzag & np.uint16(1)))
    return before + steps


def encode_values(before: Bits, after: Bits) -> bytes:
    """The same backwards."""
    steps = (after - before).view(np.int16).astype(np.int32)
    zigzag = ((steps << 1) ^ (steps >> 15)).astype(np.uint16)
    symbols = np.minimum(zigzag, _SMALL).astype(np.uint8)
    return symbols.tobytes() + zigzag[zigzag >= _SMALL].astype("<u2").tobytes()


def write(export: Export) -> Written:
    """Writes a patch."""
    version = VARIANTS.index(export.variant) + 1
    entries, parts, before, changed = [], [], [], 0
    for pair in export.pairs():
        _check_writable(pair)
        positions = changed_positions(pair.old, pair.new)
        indices, values = _streams(pair, positions, version)
        digest = xxh3_128(raw_bytes(pair.new))
        entries.append((pair, int(positions.size), len(indices), len(values), digest))
        parts += [indices, values]
        before.append(xxh3_128(raw_bytes(pair.old)))
        changed += positions.size
    base = _text(_state_digest(before))
    model = {
        "id": export.meta.get("model", ""), "digest": export.meta.get("modelDigest", base),
        "paramCount": sum(num_items(entry[0].new) for entry in entries),
    }  # fmt: skip
    header = {
        "formatVersion": version, "step": export.number("step", export.target_seq),
        "baseStep": export.number("baseStep", export.base_seq), "model": model,
        "tensors": [_described(*entry, version=version) for entry in entries],
        "stateDigest": _text(_state_digest([entry[-1] for entry in entries])), "baseStateDigest": base,
    }  # fmt: skip
    document = canonical_json(header)
    with durable_file(export.output) as file:
        file.write(MAGIC + _LENGTH.pack(len(document)) + document + compress_parts(parts))
    return Written(changed, sum(1 for entry in entries if entry[1]))


def _streams(pair: Pair, positions: I64, version: int) -> tuple[bytes, bytes]:
    old, new = items_of(pair.old), items_of(pair.new)
    if version == 1:
        return encode_u16(positions), new[positions].astype("<u2").tobytes()
    indices = encode_rice(positions) if version == 2 else encode_classes(positions, old)
    return indices, encode_values(old[positions], new[positions])


def _described(pair: Pair, changed: int, index_bytes: int, value_bytes: int, digest: bytes, *, version: int) -> object:
    described = {
        "name": pair.name, "shape": list(pair.new.shape), "numel": num_items(pair.new), "dtype": "bf16",
        "changed": changed, "idxEnc": _INDICES[version], "idxBytes": index_bytes, "valBytes": value_bytes,
        "tensorDigest": _text(digest),
    }  # fmt: skip
    return described if version == 1 else described | {"valEnc": _VALUES}


def _check_writable(pair: Pair) -> None:
    if pair.new.dtype.name != "BF16":
        raise LayoutError(f"{pair.name!r} is {pair.new.dtype.name}; a PULSEPT1 patch lists every tensor, and only bf16")
    if num_items(pair.new) >= _MAX_ELEMENTS:
        raise LimitError(f"{pair.name!r} has 2^32 elements or more, which a PULSEPT1 patch cannot count")


def _envelope(data: memoryview, what: str) -> tuple[dict[str, object], memoryview]:
    start = len(MAGIC) + _LENGTH.size
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise FormatError(f"{what} is no PULSEPT1 patch")
    if len(data) < start:
        raise TruncatedError(f"{what} is cut off")
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > MAX_DOCUMENT_BYTES:
        raise LimitError(f"{what} has a header of {length} bytes; the limit is {MAX_DOCUMENT_BYTES}")
    if length > len(data) - start:
        raise TruncatedError(f"{what} ends inside its header")
    return parse_object(bytes(data[start : start + length]), f"the header of {what}"), data[start + length :]


def _entries(header: dict[str, object], version: int, what: str) -> list[_Entry]:
    found: list[_Entry] = []
    for tensor in objects(header, "tensors", what):
        name = field(tensor, "name", str, what)
        where = f"{name!r} in {what}"
        if found and name <= found[-1].name:
            raise FormatError(f"the tensors of {what} do not ascend strictly by name: {name!r}")
        coding = (field(tensor, "dtype", str, where), field(tensor, "idxEnc", str, where), tensor.get("valEnc"))
        if coding != ("bf16", _INDICES[version], None if version == 1 else _VALUES):
            raise UnknownFormatError(f"{where} is coded as {coding}, which format {version} does not know")
        sizes_of = [count(tensor, key, where) for key in ("numel", "changed", "idxBytes", "valBytes")]
        shape, (elements, changed, index_bytes, value_bytes) = sizes(tensor, "shape", where), sizes_of
        if elements != prod(shape) or elements >= _MAX_ELEMENTS:
            raise FormatError(f"{where} has a number of elements that is not its shape's, or too large")
        check_count(changed, elements, where)
        _check_sizes(changed, index_bytes, value_bytes, version, where)
        found.append(_Entry(name, shape, changed, index_bytes, value_bytes, _digest(tensor, "tensorDigest", where)))
    return found


def _check_sizes(changed: int, index_bytes: int, value_bytes: int, version: int, where: str) -> None:
    """What the changes can cost at most; only then is room made for them."""
    low, high = (2 * changed, 2 * changed) if version == 1 else (changed, 3 * changed)
    most = 6 * changed if version == 1 else 16 * changed + _MAX_CLASS_BYTES
    if not low <= value_bytes <= high or index_bytes > most or (not changed and index_bytes):
        raise LimitError(f"{where} has {changed} changes and cannot need {index_bytes} and {value_bytes} bytes")


def _digest(content: dict[str, object], key: str, what: str) -> bytes:
    text = field(content, key, str, what)
    try:
        raw = bytes.fromhex(text.removeprefix(_PREFIX))
    except ValueError as error:
        raise FormatError(f"{key!r} of {what} is not a digest") from error
    if not text.startswith(_PREFIX) or len(raw) != 16 or _text(raw) != text:
        raise FormatError(f"{key!r} of {what} is not a digest")
    return raw


def _state_digest(digests: list[bytes]) -> bytes:
    return xxh3_128(np.frombuffer(b"".join(digests), np.uint8))


def _text(digest: bytes) -> str:
    return _PREFIX + digest.hex()
