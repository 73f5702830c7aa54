"""Real models of SGLang with tiny configurations, loaded from real checkpoints of transformers; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import parallel_state as distributed
from sglang.srt.distributed.parallel_state import (
    destroy_distributed_environment,
    destroy_model_parallel,
    init_distributed_environment,
    init_model_parallel_group,
    initialize_model_parallel,
)
from sglang.srt.layers.dp_attention import initialize_dp_attention
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.layers.rotary_embedding import base as rotary
from sglang.srt.managers.io_struct import (
    BeginWeightUpdateReqInput,
    EndWeightUpdateReqInput,
    UpdateWeightsFromTensorReqInput,
)
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.model_loader.loader import get_model_loader
from sglang.srt.plugins import load_plugins
from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils import MultiprocessingSerializer
from torch.multiprocessing import reductions

from sync_runtime.library.engines.sglang import LOADER, Request
from tests.support.engine_models import CONFIGURATIONS, bits, differing, save, trainer_model

__all__ = [
    "CONFIGURATIONS", "Server", "bits", "differing", "load", "parallel_state", "save", "serialized", "trainer_model",
]  # fmt: skip


@contextmanager
def parallel_state(folder: Path, rank: int, ranks: int, store: str, **more: Any) -> Iterator[None]:
    """SGLang's process groups on gloo, and its settings, as a scheduler has them.

    Between several ranks it would take NCCL, also where there is no GPU: it is told not to.
    """
    args = ServerArgs(
        model_path=str(folder), device="cpu", dtype="bfloat16", skip_tokenizer_init=True, tp_size=ranks,
        disable_cuda_graph=True, attention_backend="torch_native", custom_weight_loader=[LOADER], **more,
    )  # fmt: skip
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    initialize_moe_config()
    init_distributed_environment(ranks, rank, store, rank, backend="gloo")
    make_group = partial(init_model_parallel_group, use_pynccl=False, use_custom_allreduce=False)
    with mock.patch.object(distributed, "init_model_parallel_group", make_group):
        initialize_model_parallel(backend="gloo")
    initialize_dp_attention(args)
    load_plugins()
    try:
        yield
    finally:
        destroy_model_parallel()
        destroy_distributed_environment()


def config_of(folder: Path) -> ModelConfig:
    """What a model runner has of its model."""
    return ModelConfig(str(folder), dtype="bfloat16")


def load(config: ModelConfig) -> torch.nn.Module:
    """A rank's model, as a model runner loads it: built, filled from the checkpoint, processed.

    The wheel holds no kernels for CPUs, and without a GPU SGLang would take one of vLLM's for rotary embeddings: it is
    told that this is a CPU there, and no kernel runs.
    """
    loader = get_model_loader(LoadConfig(load_format="safetensors"), config)
    with mock.patch.object(rotary, "_is_cpu", new=True):
        loaded: torch.nn.Module = loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))
    return loaded


def serialized(named_tensors: list[tuple[str, torch.Tensor]], *, as_text: bool = False) -> bytes | str:
    """As a client does it, which is another process: in a worker's, SGLang replaces how tensors are reduced."""
    replaced = reductions.reduce_tensor
    reductions.reduce_tensor = getattr(reductions, "_reduce_tensor_original", replaced)
    reductions.init_reductions()  # type: ignore[no-untyped-call]
    try:
        found: bytes | str = MultiprocessingSerializer.serialize(named_tensors, output_str=as_text)
    finally:
        reductions.reduce_tensor = replaced
        reductions.init_reductions()  # type: ignore[no-untyped-call]
    return found


class Server:
    """The parts of a scheduler that update weights, SGLang's own, over a model that was loaded; without requests."""

    def __init__(self, folder: Path) -> None:
        self.config = config_of(folder)
        self.model = load(self.config)
        self.flushed, self.versions = 0, []  # type: int, list[str | None]
        updater = WeightUpdater(
            tp_rank=get_parallel().tp_rank, device="cpu", gpu_id=0, model_config=self.config,
            custom_weight_loaders=[LOADER], get_model=lambda: self.model, update_model_fields=lambda *_, **__: None,
            recapture_cuda_graph=lambda: None, get_model_runner=lambda: None,
        )  # fmt: skip
        worker = SimpleNamespace(weight_update_runners=lambda: [("target", SimpleNamespace(weight_updater=updater))])
        worker.deserialize_own_rank = lambda payload: TpModelWorker.deserialize_own_rank(worker, payload)
        self.manager = SchedulerWeightUpdaterManager(
            tp_worker=worker, draft_worker=None, memory_saver_adapter=None, flush_cache=self._flush,
            is_fully_idle=lambda **_: True,
            scheduler=SimpleNamespace(record_weight_version_change=self._label),
        )  # fmt: skip

    def begin(self) -> None:
        """`/begin_weight_update`."""
        assert self.manager.begin_weight_update(BeginWeightUpdateReqInput()).success

    def end(self) -> None:
        """`/end_weight_update`."""
        assert self.manager.end_weight_update(EndWeightUpdateReqInput()).success

    def send(self, named_tensors: list[tuple[str, torch.Tensor]], load_format: str = LOADER) -> tuple[bool, str]:
        """`/update_weights_from_tensor`: the answer."""
        payload = serialized(named_tensors)
        answer = self.manager.update_weights_from_tensor(
            UpdateWeightsFromTensorReqInput(
                serialized_named_tensors=[payload] * get_parallel().tp_size, load_format=load_format
            )
        )
        return answer.success, answer.message

    def update(self, **request: Any) -> tuple[bool, str]:
        """All three, as a client makes them."""
        self.begin()
        answer = self.send(Request(**request).named_tensors())
        self.end()
        return answer

    def _label(self, new_version: str | None) -> None:
        self.versions.append(new_version)

    def _flush(self, **_: Any) -> bool:
        self.flushed += 1
        return True
