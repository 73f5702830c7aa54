"""verl's own workers on CPUs: an actor that trains for real, and a rollout's checkpoint worker.

A server adapter that loads what it is handed into a model of transformers stands in for verl's: there is no vLLM here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig, AutoModelForCausalLM
from verl.checkpoint_engine import CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout import BaseRollout

ADDED = "sync_runtime.library.engines.verl"
State = dict[str, torch.Tensor]


def _defaults() -> str:
    """verl's own settings."""
    found = find_spec("verl")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml")


def actor_config(checkpoint: str, engine: dict[str, Any]) -> DictConfig:
    """What verl's command line would make of its defaults and a few words of a user's."""
    config = OmegaConf.load(_defaults())
    said = {
        "model": {
            "path": checkpoint, "load_tokenizer": False, "use_remove_padding": False,
            "override_config": {"attn_implementation": "eager"},  # verl asks for a kernel for GPUs
        },
        "actor": {
            "strategy": "fsdp2", "use_torch_compile": False, "ppo_mini_batch_size": 2,
            "ppo_micro_batch_size_per_gpu": 1,
            "fsdp_config": {"fsdp_size": -1, "use_torch_compile": False, "strategy": "fsdp2"}, "optim": {"lr": 0.05},
        },
        "rollout": {
            "name": "vllm", "log_prob_micro_batch_size_per_gpu": 1, "n": 2, "tensor_model_parallel_size": 1,
            "checkpoint_engine": {
                "backend": "syncgroup", "custom_backend_module": ADDED, "engine_kwargs": {"syncgroup": engine},
            },
        },
    }  # fmt: skip
    OmegaConf.set_struct(config, False)
    return OmegaConf.merge(config, {"actor_rollout_ref": said})


class Actor(ActorRolloutRefWorker):  # type: ignore[misc] # verl is not in the checker's environment
    """verl's actor, with a step of training that needs no rollout, and a look at the result."""

    def __init__(self, *args: Any, **options: Any) -> None:
        initialize_global_process_group_ray(backend="cpu:gloo")  # verl would name a CPU's backend twice
        super().__init__(*args, **options)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def train(self, seed: int) -> None:
        """One step of verl's own optimizer on random tokens, the same in every rank."""
        engine = self.actor.engine
        torch.manual_seed(seed)
        tokens = torch.randint(2, 40, (2, 6))
        engine.optimizer_zero_grad()
        engine.module(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        engine.optimizer_step()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def state(self) -> State:
        """The masters, whole."""
        found, _ = self.actor.engine.get_per_tensor_param()
        return {name: tensor.detach().clone() for name, tensor in found}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def rename(self, old: str, new: str) -> None:
        """From now on verl finds a parameter under another name, in every rank; `old` as `old` ends that."""
        module = self.actor.engine.module
        own = type(module).state_dict

        def renamed(*args: Any, **options: Any) -> Any:
            return {new if name == old else name: value for name, value in own(module, *args, **options).items()}

        module.state_dict = renamed


class LoadingAdapter(BaseRollout):  # type: ignore[misc]
    """A rollout's server in one process: it loads every tensor that it is handed, by name."""

    def __init__(self, config: Any, model_config: Any) -> None:
        self.config, self.model_config = config, model_config
        self.replica_rank, self.is_leader_rank = 0, True
        self.steps: list[int | None] = []
        made: Any = AutoModelForCausalLM.from_config
        self.model = made(AutoConfig.from_pretrained(model_config.path), dtype=torch.bfloat16)

    async def resume(self, tags: list[str]) -> None:
        """Nothing sleeps here."""

    async def release(self) -> None:
        """Nothing sleeps here."""

    async def update_weights(
        self, weights: AsyncIterator[tuple[str, torch.Tensor]], global_steps: int | None = None, wire_format: str = "",
        **_: Any,
    ) -> None:  # fmt: skip
        """As verl's adapters take them."""
        if wire_format != "named_tensors":
            raise ValueError(f"{wire_format} is not what the checkpoint engine hands over")
        missing = set(state := self.model.state_dict())
        async for name, tensor in weights:
            state[name].copy_(tensor)
            missing.discard(name)
        if missing:
            raise ValueError(f"{sorted(missing)} were not handed over")
        self.steps.append(global_steps)


class Rollout(CheckpointEngineWorker):  # type: ignore[misc]
    """verl's worker beside an inference server."""

    def __init__(self, rollout_config: Any, model_config: Any) -> None:
        config, model = omega_conf_to_dataclass(rollout_config), omega_conf_to_dataclass(model_config)
        super().__init__(config, model, LoadingAdapter(config, model))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def state(self) -> tuple[list[int | None], State]:
        """Which updates came, and what the server has."""
        return self.server_adapter.steps, self.server_adapter.model.state_dict()
