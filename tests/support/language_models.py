"""Tiny language models for tests: made alike everywhere, with tied weights, in fp32."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 40
END = 1
PAD = 0


def tiny_llama(seed: int = 0, *, tied: bool = True) -> Any:
    """A Llama of two layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=tied, pad_token_id=PAD,
        bos_token_id=None, eos_token_id=None, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
