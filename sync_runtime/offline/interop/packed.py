"""A tensor's change as slime, miles, SkyRL and ModelExpress write it: bytes under zstd, a checksum of the result.

    xor         as many bytes as the tensor has: old ^ new
    overwrite   u32 count, u32 byte positions, new bytes

XOR against the wrong base gives garbage and applied twice it goes back: the checksum of the result is what stands
between, and it is always verified here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sync_runtime.errors import FormatError, LayoutError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.offline.interop import checksums
from sync_runtime.offline.interop.container import Stored
from sync_runtime.offline.interop.items import U8, check_positions, of_bytes, raw_bytes
from sync_runtime.offline.interop.model import Foreign, Origin
from sync_runtime.offline.interop.zstd import check_frame, compress, decompress
from sync_runtime.tensors.bits import BitTensor

ENCODINGS = ("xor", "overwrite")
_COUNT = struct.Struct("<I")
_MAX_POSITIONS_BYTES = 1 << 32


class Packed(NamedTuple):
    """One tensor's change."""

    encoding: str
    data: memoryview
    algorithm: str
    checksum: str


class PackedTensors(Foreign):
    """Changes by name, from any container."""

    def __init__(self, origin: Origin, changes: Mapping[str, Packed]) -> None:
        self.origin, self._changes = origin, changes
        self.names = frozenset(changes)

    def patched(self, name: str, old: BitTensor) -> BitTensor:
        """The base with the change applied; its checksum is verified."""
        packed, before = self._changes[name], raw_bytes(old)
        apply = xored if packed.encoding == "xor" else overwritten
        after = apply(packed.data, before, f"the change of {name!r}")
        checksums.verify(packed.algorithm, after, packed.checksum, name)
        return of_bytes(old, after)


def packed_bytes(stored: Stored, name: str) -> memoryview:
    """The compressed bytes of a tensor in a container."""
    if stored.dtype_name != "U8" or len(stored.shape) != 1:
        raise FormatError(f"{name!r} is {stored.dtype_name}{list(stored.shape)}; compressed bytes are U8 in a row")
    return stored.data


def xored(data: memoryview, before: U8, what: str) -> U8:
    """The tensor's new bytes."""
    change = np.frombuffer(decompress(data, before.size, what), np.uint8)
    return np.bitwise_xor(before, change)


def overwritten(data: memoryview, before: U8, what: str) -> U8:
    """The same for positions and bytes. They are u32: above 4 GiB the writers wrap silently, so that is refused."""
    if before.size > _MAX_POSITIONS_BYTES:
        raise LayoutError(f"{what} has 32-bit positions and its tensor {before.size} bytes: they cannot be trusted")
    size_bytes = check_frame(data, what).content_bytes
    if size_bytes is None:
        raise UnknownFormatError(f"{what} does not say how large it unpacks, as its writers do")
    if size_bytes > _COUNT.size + 5 * before.size:
        raise LimitError(f"{what} unpacks to {size_bytes} bytes, more than its tensor could need")
    content = decompress(data, size_bytes, what)
    if len(content) < _COUNT.size:
        raise TruncatedError(f"{what} has no count")
    (count,) = _COUNT.unpack_from(content)
    if len(content) != _COUNT.size + 5 * count:
        raise FormatError(f"{what} announces {count} bytes and holds another number of them")
    positions = np.frombuffer(content, "<u4", count, _COUNT.size).astype(np.int64)
    check_positions(positions, before.size, what)
    after = before.copy()
    after[positions] = np.frombuffer(content, np.uint8, count, _COUNT.size + 4 * count)
    return after


def pack_xor(old: BitTensor, new: BitTensor, algorithm: str) -> tuple[bytes, str] | None:
    """(compressed bytes, checksum of the new tensor); None where nothing changed."""
    before, after = raw_bytes(old), raw_bytes(new)
    change = np.bitwise_xor(before, after)
    if not change.any():
        return None
    return compress(change.data), checksums.BY_NAME[algorithm](after)
