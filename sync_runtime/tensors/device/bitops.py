"""Small functions that kernels share: loads of raw bits, population count, digest keys. Triton only, no launches.

Shapes: every function is element-wise and takes tensors of any one shape, except where it says otherwise.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: N803, PLR0917 -- kernels take flat arguments; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

POSITION_MASK = tl.constexpr(0xFFFFFF)
"""Low 24 bits of a list entry: the block index. The high 8 hold a context or a class."""
CONTEXT_SHIFT = tl.constexpr(24)


@triton.jit
def popcount(x):
    """Set bits of uint32; written out because the interpreter knows no intrinsic."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def bits_pointer(address, WIDTH: tl.constexpr):
    """An int64 address as a pointer to unsigned elements of WIDTH bits."""
    if WIDTH == 8:
        return address.to(tl.pointer_type(tl.uint8))
    elif WIDTH == 16:
        return address.to(tl.pointer_type(tl.uint16))
    else:
        return address.to(tl.pointer_type(tl.uint32))


@triton.jit
def rounded_bfloat16(x, NAN: tl.constexpr):
    """fp32 bits (uint32) to bf16 bits: to nearest, ties to even; of NaN see `rounded`."""
    nearest = (x + 0x7FFF + ((x >> 16) & 1)) >> 16
    if NAN < 0:
        nan = (x >> 16) | 0x40
    else:
        nan = NAN
    return tl.where((x & 0x7FFFFFFF) > 0x7F800000, nan, nearest)


@triton.jit
def rounded_float16(x, NAN: tl.constexpr):
    """fp32 bits (uint32) to fp16 bits: to nearest, ties to even, beyond the largest to infinity; of NaN see `rounded`.

    Below 2^-14 the unit is 2^-24, which is the unit of fp32 at 0.5: adding 0.5 rounds.
    """
    size, sign = x & 0x7FFFFFFF, (x >> 16) & 0x8000
    normal = tl.minimum((size - 0x38000000 + 0xFFF + ((size >> 13) & 1)) >> 13, 0x7C00)
    small = tl.minimum(size, 0x38800000).to(tl.float32, bitcast=True) + 0.5
    nearest = sign | tl.where(size < 0x38800000, small.to(tl.uint32, bitcast=True) - 0x3F000000, normal)
    if NAN < 0:
        nan = sign | 0x7E00 | ((size >> 13) & 0x3FF)
    else:
        nan = NAN
    return tl.where(size > 0x7F800000, nan, nearest)


@triton.jit
def rounded(x, CAST: tl.constexpr, NAN: tl.constexpr):
    """fp32 bits as they travel: CAST 1 as bf16, 2 as fp16.

    NAN: what every NaN becomes; -1: a NaN keeps its sign and the upper bits of its payload, and becomes quiet.
    """
    if CAST == 1:
        return rounded_bfloat16(x, NAN)
    else:
        return rounded_float16(x, NAN)


@triton.jit
def wire_bits(pointer, offset, mask, WIDTH: tl.constexpr, CAST: tl.constexpr, NAN: tl.constexpr):
    """Elements as they travel, in uint32; CAST: `pointer` is to fp32, which travels as another dtype."""
    if mask is None:
        x = tl.load(pointer + offset).to(tl.uint32)
    else:
        x = tl.load(pointer + offset, mask=mask, other=0).to(tl.uint32)
    if CAST:
        x = rounded(x, CAST, NAN)
    return x


@triton.jit
def mixed(x):
    """g of the digest, of uint32 bits."""
    y = x * 0x9E3779B1 + 0x7F4A7C15
    return y ^ (y >> 15)


@triton.jit
def digest_key(key, number):
    """Odd key of a row or column: uint64 of a uint64 key and an int64 number."""
    z = key + (number + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return (z ^ (z >> 31)) | 1


@triton.jit
def tile_offset(index, row_stride, col_stride, cols, FLAT: tl.constexpr):
    """Where the element of a block index lies in its tile (int64); FLAT: the tile is contiguous memory."""
    if FLAT:
        return index.to(tl.int64)
    else:
        row = index // cols
        return row.to(tl.int64) * row_stride + (index - row * cols).to(tl.int64) * col_stride
