"""Extraction, apply and digest in plain torch: slow, obvious, and what every kernel must equal bit for bit.

Works on any device. Integers wider than the element hold all arithmetic, so nothing depends on how torch wraps.
"""

from __future__ import annotations

import torch

_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_MASK32 = 0xFFFFFFFF


def raw_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bits, flat, as non-negative int64; items of eight bytes become two elements, low half first."""
    flat = tensor.detach().contiguous().reshape(-1)
    view = flat.view(_VIEWS.get(flat.element_size(), torch.int32))
    width_bits = 8 * view.element_size()
    return view.to(torch.int64) & ((1 << width_bits) - 1)


def extract(old: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(positions, (new - old) mod 2^w) of two tensors of one dtype; `new` is cast to the old one's dtype first."""
    wire = new.to(old.dtype)
    before, after = raw_bits(old), raw_bits(wire)
    width_bits = 8 * min(4, old.element_size())
    positions = (before != after).nonzero().reshape(-1)
    return positions, (after[positions] - before[positions]) & ((1 << width_bits) - 1)


def apply(old: torch.Tensor, positions: torch.Tensor, differences: torch.Tensor) -> torch.Tensor:
    """A new tensor with the differences added."""
    bits = raw_bits(old)
    width_bits = 8 * min(4, old.element_size())
    bits[positions] = (bits[positions] + differences) & ((1 << width_bits) - 1)
    signed = torch.where(bits >= 1 << (width_bits - 1), bits - (1 << width_bits), bits) if width_bits > 8 else bits
    return signed.to(_VIEWS[width_bits // 8]).view(old.dtype).reshape(old.shape)


def mixed(bits: torch.Tensor) -> torch.Tensor:
    """g of FORMAT.md, section 3, in int64."""
    y = (bits * 0x9E3779B1 + 0x7F4A7C15) & _MASK32  # a product mod 2^64 keeps its low 32 bits
    return y ^ (y >> 15)


def keys(key: int, count: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Odd row or column keys 0 … count - 1, as int64 with the bits of unsigned 64."""
    z = torch.arange(1, count + 1, dtype=torch.int64, device=device) * _signed(0x9E3779B97F4A7C15) + _signed(key)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return (z ^ _shifted(z, 31)) | 1


def digest(tensor: torch.Tensor, tensor_keys: tuple[int, int, int, int]) -> tuple[int, int]:
    """(A, B) of a whole tensor."""
    per_item = max(1, tensor.element_size() // 4)
    cols = (tensor.shape[-1] if tensor.dim() else 1) * per_item
    spread = mixed(raw_bits(tensor)).reshape(-1, cols) if tensor.numel() else torch.zeros(0, 1, dtype=torch.int64)
    words = []
    for row_key, col_key in (tensor_keys[0:2], tensor_keys[2:4]):
        across = (spread * keys(col_key, spread.shape[1], tensor.device)).sum(1)
        words.append(int((across * keys(row_key, spread.shape[0], tensor.device)).sum()) & 0xFFFFFFFFFFFFFFFF)
    return words[0], words[1]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
