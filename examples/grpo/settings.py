"""One run, as figures: everything that its bits depend on. Knows neither torch nor SyncGroup."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Model = Literal["tiny", "smollm2"]


@dataclass(frozen=True)
class Settings:
    """A run. Two runs with equal settings in deterministic mode end with equal bits."""

    model: Model = "tiny"
    seed: int = 0
    steps: int = 120
    groups: int = 8
    """Prompt groups per step."""
    samples: int = 16
    """Answers per group: what the group's advantages are relative to."""
    max_new_tokens: int = 2
    temperature: float = 1.0
    learning_rate: float = 2e-3
    updates: int = 2
    """Optimiser steps per batch: ratios leave 1 from the second on."""
    clip: float = 0.2
    entropy: float = 0.2
    """Weight of the policy's entropy beside its reward: keeps it from settling on one answer for all questions."""
    max_grad_norm: float = 1.0
    largest: int = 4
    """Of the numbers to add."""
    width: int = 64
    """Of the tiny model's layers; a multiple of 8."""
    layers: int = 2
    """Of the tiny model."""
    ahead: int = 0
    """Steps whose prompts are handed out before the one in hand is trained; 0: answers are of the newest version."""


SMOLLM2 = Settings(
    model="smollm2", steps=40, groups=4, samples=8, max_new_tokens=6, learning_rate=1e-5, updates=1, entropy=0.0,
    largest=20,
)  # fmt: skip
TINY = Settings()


def tiny_parameters(settings: Settings) -> int:
    """Elements of the tiny model's weights; tied ones once."""
    width = settings.width
    layer = 3 * width * width + 6 * width * width + 2 * width  # attention (two heads of four share), MLP, norms
    return 14 * width + settings.layers * layer + width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--model`, and an option for every other figure."""
    parser.add_argument("--model", choices=get_args(Model), default="tiny")
    for field in dataclasses.fields(Settings):
        if field.name != "model":
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(getattr(TINY, field.name)))


def from_arguments(found: argparse.Namespace) -> Settings:
    """The figures of the model, with what was said on the command line."""
    base = SMOLLM2 if found.model == "smollm2" else TINY
    said = {field.name: getattr(found, field.name) for field in dataclasses.fields(Settings)}
    return dataclasses.replace(base, **{name: value for name, value in said.items() if value is not None})


def as_arguments(settings: Settings) -> Sequence[str]:
    """The command line that gives these settings."""
    pairs = dataclasses.asdict(settings).items()
    return [word for name, value in pairs for word in (f"--{name.replace('_', '-')}", str(value))]
