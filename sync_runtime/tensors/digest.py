"""The digest as a noun: two 64-bit words that add up, and the keys of a tensor (FORMAT.md, section 3). Pure."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from sync_runtime.errors import FormatError
from sync_runtime.tensors.layout import TensorSpec

_MASK = 0xFFFFFFFFFFFFFFFF
_TEXT = re.compile(r"[0-9a-f]{32}")
_SEED = b"syncgroup digest 1"


class Digest(NamedTuple):
    """128 bits of a state, a tensor, a block, or of the difference of two."""

    a: int
    b: int

    def plus(self, other: Digest) -> Digest:
        """Word by word mod 2^64."""
        return Digest((self.a + other.a) & _MASK, (self.b + other.b) & _MASK)

    def minus(self, other: Digest) -> Digest:
        """Word by word mod 2^64."""
        return Digest((self.a - other.a) & _MASK, (self.b - other.b) & _MASK)

    def __str__(self) -> str:
        return f"{self.a:016x}{self.b:016x}"


ZERO = Digest(0, 0)


def total(digests: Iterable[Digest]) -> Digest:
    """The digest of a whole from its parts."""
    found = ZERO
    for digest in digests:
        found = found.plus(digest)
    return found


def parse_digest(text: object) -> Digest:
    """Reads 32 hexadecimal digits."""
    if not isinstance(text, str) or not _TEXT.fullmatch(text):
        raise FormatError("a digest is not 32 lower-case hexadecimal digits")
    return Digest(int(text[:16], 16), int(text[16:], 16))


class TensorKeys(NamedTuple):
    """The four words that tell a tensor's elements from every other tensor's."""

    row_a: int
    col_a: int
    row_b: int
    col_b: int


def tensor_keys(tensor: TensorSpec) -> TensorKeys:
    """Keys from name, dtype and shape."""
    shape = ",".join(str(size) for size in tensor.shape)
    text = b"\0".join([_SEED, tensor.dtype.name.encode(), shape.encode(), tensor.name.encode()])
    return TensorKeys(*struct.unpack("<4Q", hashlib.sha256(text).digest()))
