"""Sums, with a reward that can be checked: the problems of a step, and what an answer is worth.

Which problems a step has depends on the seed and the step alone. The trainer judges answers itself: what workers send
is tokens, never rewards. Knows neither torch nor SyncGroup.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .model import Text
from .settings import Settings

RIGHT = 1.0
NEAR = 0.3
"""For a number that is off by one."""
WELL_FORMED = 0.1
"""For a number and nothing else, whatever it is."""
ENDED = 0.05
"""For an answer that ends at all: a model that knows nothing finds this first."""


@dataclass(frozen=True)
class Problem:
    """A sum."""

    a: int
    b: int

    @property
    def answer(self) -> int:
        """What it comes to."""
        return self.a + self.b


def problems_of(settings: Settings, step: int) -> list[Problem]:
    """The problems of one step, one per group."""
    chosen = random.Random(f"{settings.seed}/{step}")  # noqa: S311 a stream that repeats, not a secret
    return [
        Problem(chosen.randint(0, settings.largest), chosen.randint(0, settings.largest))
        for _ in range(settings.groups)
    ]


def reward_of(problem: Problem, text: Text, tokens: Sequence[int]) -> float:
    """What an answer is worth: at most 1, for the right number and an end."""
    if not tokens or tokens[-1] != text.end:
        return 0.0
    said = text.decode(tokens[:-1]).strip()
    if not (said.isascii() and said.isdigit()):
        return ENDED
    distance = abs(int(said) - problem.answer)
    return RIGHT if distance == 0 else NEAR if distance == 1 else WELL_FORMED
