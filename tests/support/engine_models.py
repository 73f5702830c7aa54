"""Tiny models as trainers have them, as checkpoints that engines of others load; engines' models compared by bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers

from sync_runtime.library.engines.checkpoint_files import read, stored_in
from sync_runtime.library.engines.transformers import engine_copy
from sync_runtime.library.shards import Shard

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "vocab_size": 192, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": False}),
    "qwen3-moe": ("Qwen3Moe", {"tie_word_embeddings": False, "mlp_only_layers": [], **EXPERTS}),
    "llama-odd-vocabulary": ("Llama", {"tie_word_embeddings": False, "vocab_size": 190}),
}
"""By name: the class of transformers, and what differs from SIZES."""


def trainer_model(kind: str, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> transformers.PreTrainedModel:
    """A model as a trainer has it."""
    family, more = CONFIGURATIONS[kind]
    config = getattr(transformers, f"{family}Config")(**(SIZES | more))
    torch.manual_seed(seed)
    model: transformers.PreTrainedModel = engine_copy(getattr(transformers, f"{family}ForCausalLM")(config), dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start at zeros and ones, which would hide mistakes
            parameter.add_(torch.randn(parameter.shape).to(dtype) * 0.1)
    return model


def save(model: transformers.PreTrainedModel, folder: Path) -> Path:
    """A checkpoint on disk."""
    model.save_pretrained(folder)
    return folder


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters, as bytes, detached from the model."""
    return {
        name: parameter.detach().as_subclass(torch.Tensor).contiguous().clone().reshape(-1).view(torch.uint8)
        for name, parameter in model.named_parameters()
    }


def differing(first: torch.nn.Module, second: torch.nn.Module) -> list[str]:
    """Parameters whose bits are not the same."""
    mine, theirs = bits(first), bits(second)
    assert mine.keys() == theirs.keys()
    return [name for name, one in mine.items() if not torch.equal(one, theirs[name])]


class CheckpointTrainer:
    """A trainer whose state has the names of its checkpoint, also where transformers stacks experts in memory."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = save(trainer_model(kind), folder / "step0")
        self.state = {name: read(one) for name, one in stored_in(self.folder).items()}

    def step(self, number: int) -> Path:
        """Changes some elements in place; the folder of a checkpoint with all of them."""
        for tensor in self.state.values():
            tensor.view(torch.int16).reshape(-1)[number::50] ^= 1
        folder = self.folder.parent / f"step{number}"
        shutil.copytree(self.folder, folder)
        safetensors.torch.save_file(self.state, folder / "model.safetensors", {"format": "pt"})
        return folder


def part(whole: torch.Tensor, shard: object, held: torch.Tensor) -> torch.Tensor:
    """What a rank holds of a tensor."""
    if not isinstance(shard, Shard) or not held.numel():
        return whole if held.numel() else held
    rows = whole.reshape(-1, whole.shape[-1])
    (row, col), (height, width) = shard.start, held.reshape(-1, held.shape[-1]).shape
    return rows[row : row + height, col : col + width].reshape(held.shape)
