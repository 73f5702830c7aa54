"""Random choices from a seed, drawn in bulk: a fuzzer asks for a dozen of them per mutant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
_BULK = 4096


class Dice:
    """The same choices for the same seed, everywhere."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.Generator(np.random.PCG64(seed))
        self._drawn: list[int] = []

    def below(self, limit: int) -> int:
        """A number from 0 on; the bias of the remainder does not matter here."""
        if not self._drawn:
            self._drawn = self._source.integers(0, 1 << 62, _BULK).tolist()
        return self._drawn.pop() % limit

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.below(100) < percent
