"""Wire dtypes: their numbers in the format, their width, and where their exponent lies (FORMAT.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sync_runtime.errors import LayoutError

BITS_DTYPES: dict[int, np.dtype[np.unsignedinteger]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
}
"""The unsigned numpy type that holds an element of a width."""


@dataclass(frozen=True)
class WireDtype:
    """One dtype as it travels."""

    code: int
    name: str
    width_bits: int
    elements_per_item: int
    context_shift: int
    context_bits: int
    """0: no exponent; every element has context 0."""

    @property
    def width_bytes(self) -> int:
        """Bytes of an element."""
        return self.width_bits // 8

    @property
    def bits_dtype(self) -> np.dtype[np.unsignedinteger]:
        """The numpy type of raw elements."""
        return BITS_DTYPES[self.width_bits]

    @property
    def context_mask(self) -> int:
        """Selects the context after the shift."""
        return (1 << self.context_bits) - 1

    @property
    def num_contexts(self) -> int:
        """How many contexts there can be."""
        return 1 << self.context_bits


_ALL = (
    WireDtype(1, "BOOL", 8, 1, 0, 0),
    WireDtype(2, "U8", 8, 1, 0, 0),
    WireDtype(3, "I8", 8, 1, 0, 0),
    WireDtype(4, "F8_E4M3", 8, 1, 3, 4),
    WireDtype(5, "F8_E5M2", 8, 1, 2, 5),
    WireDtype(6, "F8_E8M0", 8, 1, 0, 0),
    WireDtype(7, "U16", 16, 1, 0, 0),
    WireDtype(8, "I16", 16, 1, 0, 0),
    WireDtype(9, "F16", 16, 1, 10, 5),
    WireDtype(10, "BF16", 16, 1, 7, 8),
    WireDtype(11, "U32", 32, 1, 0, 0),
    WireDtype(12, "I32", 32, 1, 0, 0),
    WireDtype(13, "F32", 32, 1, 23, 8),
    WireDtype(14, "U64", 32, 2, 0, 0),
    WireDtype(15, "I64", 32, 2, 0, 0),
    WireDtype(16, "F64", 32, 2, 0, 0),
    WireDtype(17, "C64", 32, 2, 23, 8),
)
BY_NAME = {dtype.name: dtype for dtype in _ALL}
BY_CODE = {dtype.code: dtype for dtype in _ALL}


def wire_dtype(name: str) -> WireDtype:
    """The dtype of a name; raises LayoutError for one that cannot travel."""
    found = BY_NAME.get(name)
    if found is None:
        raise LayoutError(f"dtype {name} is not one of the wire dtypes: {', '.join(BY_NAME)}")
    return found
