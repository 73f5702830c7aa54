"""Weights that stand in for an 8B model's: as small as one of its deltas, and changed in every bit by every step.

Their delta cannot be coded in less than the weights themselves, so that a version is a payload of a known size, while
publisher, sidecars, subscribers and digests do what they always do. The same everywhere for the same number.
"""

from __future__ import annotations

import torch

_COLS = 1024
_TENSORS = 4


def stand_in(size_bytes: int) -> dict[str, torch.Tensor]:
    """bf16 tensors of about so many bytes, all with the bits of step 0."""
    rows = max(1, round(size_bytes / 2 / _COLS / _TENSORS))
    weights = {f"layers.{at}.weight": torch.empty(rows, _COLS, dtype=torch.bfloat16) for at in range(_TENSORS)}
    change(weights, 0)
    return weights


def change(weights: dict[str, torch.Tensor], step: int) -> None:
    """New bits for all elements; finite ones."""
    generator = torch.Generator().manual_seed(step)
    for tensor in weights.values():
        bits = tensor.view(torch.int16)
        bits.random_(-(1 << 15), 1 << 15, generator=generator)
        bits.bitwise_and_(~0x0080)  # an exponent that is never all ones


def size_of(weights: dict[str, torch.Tensor]) -> int:
    """Bytes."""
    return sum(tensor.nbytes for tensor in weights.values())
