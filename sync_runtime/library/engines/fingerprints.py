"""Bits of tensors: seen as integers, summed up so that a change shows, and made wrong on purpose. Knows no engine."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping

import torch

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 1 << 22
_ODD = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed integer: odd, and without a pattern


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's elements as integers of their width; NaN equals NaN here, and the zeros differ."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def fingerprint(tensors: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    """A number for each tensor that changes, all but surely, with any of its bits. It keeps no forger away."""
    return tuple(_sum_of(one.detach().as_subclass(torch.Tensor)) for one in tensors.values())


def spoil(tensor: torch.Tensor, where: torch.Tensor | None) -> None:
    """Turns every bit over, in place: of all elements, or of those in `where`."""
    bits = bits_of(tensor)
    bits.copy_(~bits if where is None else torch.where(where.reshape(bits.shape), ~bits, bits))


def _sum_of(tensor: torch.Tensor) -> int:
    flat = bits_of(tensor.contiguous().reshape(-1))
    total = 0
    for at in range(0, flat.numel(), _CHUNK):
        part = flat[at : at + _CHUNK].to(torch.int64)
        place = torch.arange(at + 1, at + 1 + part.numel(), device=part.device, dtype=torch.int64) * _ODD
        total += int(((part + 1) * (place | 1)).sum())
    return total
