"""Device memory that stages use one after the other: masks while comparing, lane words or records while coding.

What a stage left there is lost when the next one takes it. Both run on one stream's order; the caller sees to it.
"""

from __future__ import annotations

import torch

_SLACK = 64
"""A part more than is asked for, so that sizes that creep upwards do not ask every time."""


class Scratch:
    """Grows to the most that was ever asked for, and stays."""

    def __init__(self, device: torch.device) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8, device=device)

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """So many items; any contents."""
        size_bytes = count * dtype.itemsize
        if self._bytes.numel() < size_bytes:
            device = self._bytes.device
            self._bytes = torch.empty(0, dtype=torch.uint8, device=device)  # given back before more is asked for
            self._bytes = torch.empty(size_bytes + size_bytes // _SLACK // 16 * 16, dtype=torch.uint8, device=device)
        return self._bytes[:size_bytes].view(dtype)
