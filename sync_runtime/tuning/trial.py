"""One paired comparison of two stream counts: which one is the smallest that carries the link's rate?

Links drift, so counts are compared in neighbouring samples and in both orders (base, trial, trial, base, …): a drift
that favours one pair harms the next. Knows rates only, neither links nor bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Verdict = Literal["accept", "reject"]

FACTOR = 1.5
UP_GAIN = 0.03
"""More streams must earn at least this much. Larger thresholds rest too far below the plateau's end."""
DOWN_LOSS = 0.015
"""Fewer streams may cost at most this much. The gap to UP_GAIN is the hysteresis."""
MAX_PAIRS = 4
CLEAR = 0.12
"""A first pair this far from its threshold decides alone; noise of payloads is below it."""
_ORDER = (False, True, True, False)
"""Whether the trial count carries the next sample; repeated."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A comparison under way. It starts with a sample of the base, taken before."""

    base_streams: int
    trial_streams: int
    rates: tuple[float, ...]
    """In the order of `_ORDER`; the first is the base's."""
    whole: bool
    """Whether it compares whole payloads, or windows."""
    allowed_loss: float = DOWN_LOSS
    """What fewer streams may still cost: less after each step that did cost something, or small steps would add up."""

    @property
    def upward(self) -> bool:
        """More streams are tried, not fewer."""
        return self.trial_streams > self.base_streams

    @property
    def tries_now(self) -> bool:
        """The next sample belongs to the trial's count."""
        return _ORDER[len(self.rates) % len(_ORDER)]

    @property
    def wanted_streams(self) -> int:
        """What carries the next sample."""
        return self.trial_streams if self.tries_now else self.base_streams

    def with_rate(self, rate_bytes_per_s: float) -> Trial:
        """The trial after its next sample."""
        return replace(self, rates=(*self.rates, rate_bytes_per_s))

    @property
    def gains(self) -> tuple[float, ...]:
        """Per complete pair the logarithm of trial over base."""
        pairs = zip(self.rates[::2], self.rates[1::2], strict=False)
        return tuple(
            math.log(second / first) if number % 2 == 0 else math.log(first / second)
            for number, (first, second) in enumerate(pairs)
        )

    @property
    def gain(self) -> float:
        """Mean gain of the trial's count so far, as a share."""
        gains = self.gains
        return math.expm1(sum(gains) / len(gains)) if gains else 0.0

    def verdict(self) -> Verdict | None:
        """Whether the trial's count replaces the base; None: not known yet.

        All pairs must agree; where they go on disagreeing their mean decides.
        """
        gains = self.gains
        if not gains or len(self.rates) % 2:
            return None
        threshold = math.log1p(UP_GAIN) if self.upward else math.log1p(-self.allowed_loss)
        if len(gains) == 1:
            distance = gains[0] - threshold
            if abs(distance) < CLEAR:
                return None
            return "accept" if distance > 0 and self.upward else "reject" if distance < 0 else None
        passed = sum(gain >= threshold for gain in gains)
        if passed in (0, len(gains)):
            return "accept" if passed else "reject"
        if len(gains) < MAX_PAIRS:
            return None
        return "accept" if sum(gains) / len(gains) >= threshold else "reject"


def larger(streams: int, most: int) -> int:
    """One step up, at least one stream more, inside the bound."""
    return min(max(round(streams * FACTOR), streams + 1), most)


def smaller(streams: int, fewest: int) -> int:
    """One step down, at least one stream fewer, inside the bound."""
    return max(min(round(streams / FACTOR), streams - 1), fewest)
