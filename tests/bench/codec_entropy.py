"""The bound that `tight` is measured against: what position and step cost given the old exponent, counted here alone.

Shares nothing with the coder: contexts are bf16 exponents, steps are whole differences, nothing is quantised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def _log_sum(counts: Counts) -> float:
    """Σ n·log2 n."""
    present = counts[counts > 0].astype(np.float64)
    return float((present * np.log2(present)).sum())


@dataclass
class ConditionalEntropy:
    """Counts of one kind of tensor; add blocks, then ask."""

    elements: Counts = field(default_factory=lambda: np.zeros(256, np.int64))
    changed: Counts = field(default_factory=lambda: np.zeros(256, np.int64))
    steps: Counts = field(default_factory=lambda: np.zeros(256 * 65536, np.int64))

    def add(self, old: NDArray[np.uint16], new: NDArray[np.uint16]) -> None:
        """Counts one block of bf16 patterns."""
        exponent = (old >> np.uint16(7)) & np.uint16(255)
        moved = np.flatnonzero(old != new)
        context = exponent[moved].astype(np.int64)
        self.elements += np.bincount(exponent, minlength=256)
        self.changed += np.bincount(context, minlength=256)
        keys, counts = np.unique(context * 65536 + (new[moved] - old[moved]), return_counts=True)
        self.steps[keys] += counts

    @property
    def num_changed(self) -> int:
        """Changed elements."""
        return int(self.changed.sum())

    @property
    def position_bytes(self) -> float:
        """H(changed or not | exponent)."""
        rest = self.elements - self.changed
        return (_log_sum(self.elements) - _log_sum(self.changed) - _log_sum(rest)) / 8

    @property
    def step_bytes(self) -> float:
        """H(difference | exponent, changed)."""
        return (_log_sum(self.changed) - _log_sum(self.steps)) / 8

    @property
    def total_bytes(self) -> float:
        """Both."""
        return self.position_bytes + self.step_bytes
