"""What is replayed: the sizes and times of RL on an 8B model, each with its source, and how a run is scaled down.

No GPU of that size is here. Workers and trainer sleep for the times below, and payloads are opaque bytes of the sizes
below; the network, the sidecars and the work leases are real. Pure: knows neither processes nor links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FULL_BYTES = 15_600_000_000
"""Qwen3-8B in bf16, as the authors of SparrowRL (now AuroraRL) publish it (arXiv 2602.11456)."""
DENSITY = 0.01
"""Of the elements, what one step changes. Published for this size: 0.7 % to 2.6 %."""
PAIR_BYTES = 6.0
"""int32 position and bf16 value of one changed element, uncompressed, as TRL, verl and vLLM have it."""
IDEAL_TOKENS_PER_S = 16_500.0
"""Of the same model with trainer and rollouts in one place (same source)."""
STEP_S = 50.0
"""Between two versions of a 7B model, on which PULSE's published utilisation rests (arXiv 2602.03839)."""
TRAIN_SHARE = 0.5
"""Of a step; nobody published it. Training runs beside sampling, so that it delays versions and costs no tokens."""
GROUPS_PER_STEP = 64
"""Prompt groups; ours. A result is a group, so it bounds how finely work can be split."""
MAX_STALENESS = 1
"""Versions a worker may be behind, as in SparrowRL: the newest one and the one before."""
AHEAD_STEPS = 2
"""How many steps before they are needed prompts are handed out, so that workers never wait for the trainer."""
WARM_UP_STEPS = 2
"""Not counted: until then workers sample under the first version, whatever the network does."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one version for one receiver."""

    full: int
    pairs: int
    fast: int
    tight: int


@dataclass(frozen=True)
class Replay:
    """One run's figures, perhaps scaled down."""

    sizes: Sizes
    step_s: float
    train_s: float
    tokens_per_s: float
    steps: int
    regions: int
    groups_per_step: int = GROUPS_PER_STEP

    @property
    def group_tokens(self) -> int:
        """Of one prompt group."""
        return max(1, round(self.tokens_per_s * self.step_s / self.groups_per_step))

    @property
    def total_steps(self) -> int:
        """With those that are not counted."""
        return self.steps + WARM_UP_STEPS

    def speeds(self, weights: tuple[float, ...] = (1.0,)) -> list[float]:
        """Tokens/s of each region's worker, in these proportions over and over; the sum is always the same."""
        shares = [weights[region % len(weights)] for region in range(self.regions)]
        return [self.tokens_per_s * share / sum(shares) for share in shares]


def recorded(fast_bytes: float, tight_bytes: float, *, steps: int, regions: int) -> Replay:
    """The replay at full size, from our codecs' bytes per changed element."""
    changed = FULL_BYTES / 2 * DENSITY
    sizes = Sizes(
        full=FULL_BYTES,
        pairs=round(changed * PAIR_BYTES),
        fast=round(changed * fast_bytes),
        tight=round(changed * tight_bytes),
    )
    return Replay(sizes, STEP_S, STEP_S * TRAIN_SHARE, IDEAL_TOKENS_PER_S, steps, regions)


def scaled(replay: Replay, scale: float) -> Replay:
    """Sizes and times divided alike: shorter, with the same ratios.

    Round trips and what a process costs are not divided, so that a scaled run flatters nobody.
    """
    sizes = replay.sizes
    return replace(
        replay,
        sizes=Sizes(*(max(1, round(size / scale)) for size in (sizes.full, sizes.pairs, sizes.fast, sizes.tight))),
        step_s=replay.step_s / scale,
        train_s=replay.train_s / scale,
    )
