"""Takes typed sections off a body of hostile bytes, one after the other. Views where memory is aligned, else copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.errors import FormatError, TruncatedError
from sync_runtime.tensors.dtypes import BITS_DTYPES
from sync_runtime.tensors.sparse import U32


class Sections:
    """A cursor over a body. Every take is checked against what is left."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    @property
    def left_bytes(self) -> int:
        """What has not been taken."""
        return len(self._body) - self._at

    def u8(self, count: int) -> NDArray[np.uint8]:
        """Bytes, padded to four."""
        found: NDArray[np.uint8] = self._take(count, np.dtype(np.uint8))
        self.skip_padding()
        return found

    def u16(self, count: int) -> NDArray[np.uint16]:
        """16-bit words, not padded."""
        found: NDArray[np.uint16] = self._take(count, np.dtype(np.uint16))
        return found

    def u32(self, count: int) -> U32:
        """32-bit words."""
        found: U32 = self._take(count, np.dtype(np.uint32))
        return found

    def u64(self) -> int:
        """One 64-bit number."""
        low, high = self.u32(2)
        return int(low) | int(high) << 32

    def elements(self, count: int, width_bits: int) -> U32:
        """Elements of a width, widened, padded to four."""
        found: U32 = self._take(count, BITS_DTYPES[width_bits]).astype(np.uint32)
        self.skip_padding()
        return found

    def bits(self, count: int) -> U32:
        """The words of a bit string; the rest of the last one must be zero."""
        words = self.u32(-(-count // 32))
        if count % 32 and words[-1] >> np.uint32(count % 32):
            raise FormatError("the bits after the end of a bit string are not zero")
        return words

    def skip_padding(self) -> None:
        """Zero bytes up to a multiple of four."""
        end = self._at + -self._at % 4
        if end > len(self._body) or any(self._body[self._at : end]):
            raise FormatError("padding is missing or not zero")
        self._at = end

    def finish(self) -> None:
        """Nothing may be left."""
        if self.left_bytes:
            raise FormatError(f"{self.left_bytes} bytes are left over at the end of a block")

    def _take(self, count: int, dtype: np.dtype[Any]) -> Any:
        size = count * dtype.itemsize
        if size > self.left_bytes:
            raise TruncatedError("a section of a block goes beyond its body")
        found = np.frombuffer(self._body[self._at : self._at + size], dtype.newbyteorder("<"))
        self._at += size
        if not found.flags.aligned or not found.dtype.isnative:
            found = found.astype(dtype)  # one memory layout, one compiled loop
            found.flags.writeable = False
        return found
