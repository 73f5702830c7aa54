"""Real models of vLLM with tiny configurations, loaded from real checkpoints of transformers; no GPU is needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
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

from tests.support.engine_models import CONFIGURATIONS, bits, differing, save, trainer_model

__all__ = [
    "CONFIGURATIONS", "bits", "differing", "load", "parallel_state", "save", "trainer_model", "vllm_config",
]  # fmt: skip


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
