"""Real models of vLLM with tiny configurations, loaded from real checkpoints of transformers; no GPU is needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from vllm.config import DeviceConfig, LoadConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed import (
    destroy_distributed_environment,
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.model_loader import get_model_loader

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
    model: transformers.PreTrainedModel = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start at zeros and ones, which would hide mistakes
            parameter.add_(torch.randn(parameter.shape).to(dtype) * 0.1)
    return model


def save(model: transformers.PreTrainedModel, folder: Path) -> Path:
    """A checkpoint on disk."""
    model.save_pretrained(folder)
    return folder


@contextmanager
def parallel_state(rank: int, ranks: int, store: str | None = None, **degrees: int) -> Iterator[None]:
    """vLLM's process groups, on gloo."""
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()):
        init_distributed_environment(ranks, rank, store or f"file://{folder}/store", rank, backend="gloo")
        initialize_model_parallel(degrees.get("tensor", ranks), degrees.get("pipeline", 1))
        try:
            yield
        finally:
            destroy_model_parallel()
            destroy_distributed_environment()


def vllm_config(folder: Path, ranks: int = 1, *, whole_experts: bool = False) -> VllmConfig:
    """What `vllm serve FOLDER --weight-transfer-config ...` has, for this machine.

    `whole_experts`: ranks have some experts each, not a part of all of them.
    """
    model = ModelConfig(str(folder), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True)
    parallel = ParallelConfig(
        tensor_parallel_size=ranks,
        enable_expert_parallel=whole_experts,
        distributed_executor_backend="external_launcher",
    )
    return VllmConfig(
        model_config=model,
        parallel_config=parallel,
        device_config=DeviceConfig("cpu"),
        load_config=LoadConfig(load_format="safetensors"),
        weight_transfer_config=WeightTransferConfig(backend="syncgroup"),
    )


def load(config: VllmConfig, experts: str = "TRITON") -> torch.nn.Module:
    """A rank's model, as a worker loads it: built, filled from the checkpoint, processed.

    The wheel holds no kernels for CPUs, so the test chooses: linear layers as on a CPU without tile registers, and
    for experts the kernel that a GPU would have. Weights are laid out for it, and it never runs.
    """
    chosen = (UnquantizedMoeBackend[experts], TritonExperts)
    with (
        set_current_vllm_config(config),
        mock.patch("torch.cpu._is_amx_tile_supported", return_value=False),
        mock.patch.object(unquantized_fused_moe_method, "select_unquantized_moe_backend", return_value=chosen),
        mock.patch.object(UnquantizedFusedMoEMethod, "_init_moe_kernel", _no_kernel),
    ):
        loaded: torch.nn.Module = get_model_loader(config.load_config).load_model(config, config.model_config)
        return loaded


def _no_kernel(method: UnquantizedFusedMoEMethod, layer: torch.nn.Module) -> None:
    del layer
    method.moe_kernel = mock.Mock()


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
