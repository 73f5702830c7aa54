"""The models of the example, made alike everywhere: a tiny Llama over a few characters, and SmolLM2-135M.

SmolLM2 comes from a GGUF file (see `smollm2`). Weights are fp32: the trainer's masters. Workers run `engine_copy` of
them in bf16. Knows nothing of tasks, training or SyncGroup.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from . import smollm2
from .settings import Settings

WIRE = torch.bfloat16
"""What workers run, and what travels."""
_CHARACTERS = "\0\n0123456789+="


class Text(Protocol):
    """Text as tokens, and back."""

    @property
    def end(self) -> int:
        """The token that ends an answer."""

    @property
    def pad(self) -> int:
        """The token that fills rows."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""

    def question(self, a: int, b: int) -> str:
        """How this model is asked for a sum."""


@dataclass(frozen=True)
class Characters:
    """One token per character; enough for sums."""

    pad: int = 0
    end: int = 1

    def encode(self, text: str) -> list[int]:
        """Raises ValueError for other characters."""
        return [_CHARACTERS.index(character) for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Padding included."""
        return "".join(_CHARACTERS[token] for token in tokens)

    def question(self, a: int, b: int) -> str:
        """As short as can be."""
        return f"{a}+{b}="


def make_deterministic() -> None:
    """One thread and kernels that repeat: sums are added in one order, so equal inputs give equal bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch refuses to multiply on a GPU
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)


@dataclass(frozen=True)
class Policy:
    """A model and its text."""

    model: Any
    text: Text


def load(settings: Settings, gguf: Path | None = None) -> Policy:
    """The model that a run begins with; equal seeds give equal bits. `gguf`: SmolLM2's file, where not in the cache."""
    if settings.model == "smollm2":
        path = gguf or smollm2.cached()
        return Policy(smollm2.load_model(path), smollm2.load_text(path))
    return Policy(_tiny(settings), Characters())


def _tiny(settings: Settings) -> Any:
    torch.manual_seed(settings.seed)
    config = LlamaConfig(
        vocab_size=len(_CHARACTERS), hidden_size=settings.width, intermediate_size=2 * settings.width,
        num_hidden_layers=settings.layers, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1, initializer_range=0.1,
    )  # fmt: skip
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
