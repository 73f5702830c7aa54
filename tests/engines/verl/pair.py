"""A trainer's and a rollout's checkpoint engine, made by verl's registry and called in the order of verl's manager."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine import CheckpointEngineRegistry
from verl.utils.import_utils import import_external_libs
from verl.utils.model import convert_weight_keys
from verl.workers.engine.fsdp.utils import unfuse_moe_params

from sync_runtime.library.engines.fingerprints import bits_of
from tests.support.inside import InsideGroup

MODULE = "sync_runtime.library.engines.verl"
State = dict[str, torch.Tensor]


def engine(group: InsideGroup, member: str, checkpoint: Path, **options: Any) -> Any:
    """As verl's workers make it."""
    import_external_libs(MODULE)
    said = {"checkpoint": str(checkpoint), "socket": group.socket(member), "wait_s": 30.0, **options}
    return CheckpointEngineRegistry.new("syncgroup", bucket_size=1 << 20, **said)


class Pair:
    """One trainer's process and one rollout's; `beside`: more workers at the rollout's sidecar."""

    def __init__(self, group: InsideGroup, checkpoint: Path, beside: int = 0, **options: Any) -> None:
        self.trainer = engine(group, "trainer-0", checkpoint, is_master=True, **options)
        self.rollout = engine(group, "eu-0", checkpoint, **options)
        self.beside = [engine(group, "eu-0", checkpoint, **options) for _ in range(beside)]

    @property
    def rollouts(self) -> list[Any]:
        """All workers of the rollout."""
        return [self.rollout, *self.beside]

    def prepare(self) -> None:
        """What the manager does before weights are sent."""
        said = [one.prepare() for one in (self.trainer, *self.rollouts)]
        trainer, rollout = self.trainer.build_topology(1, len(self.rollouts), said)
        self.trainer.init_process_group(**{name: values[0] for name, values in trainer.items()})
        for at, one in enumerate(self.rollouts):
            one.init_process_group(**{name: values[at] for name, values in rollout.items()})

    def update(self, weights: Iterable[tuple[str, torch.Tensor]], step: int | None) -> State:
        """One update; what the rollout's server would get. Raises what either end raises."""
        return self.update_all(weights, step)[0]

    def update_all(self, weights: Iterable[tuple[str, torch.Tensor]], step: int | None) -> list[State]:
        """The same, with what every worker of the rollout would hand on."""
        self.prepare()

        async def received(worker: Any) -> State:
            return {name: tensor.clone() async for name, tensor in worker.receive_weights(global_steps=step)}

        async def all_of_them() -> list[State]:
            sent = self.trainer.send_weights(iter(weights), global_steps=step)
            _, *found = await asyncio.gather(sent, *(received(one) for one in self.rollouts))
            return found

        found = asyncio.run(all_of_them())
        for one in (self.trainer, *self.rollouts):
            one.finalize()
        return found

    def send(self, weights: Iterable[tuple[str, torch.Tensor]], step: int | None) -> dict[str, float]:
        """The trainer's half alone."""
        return asyncio.run(self.trainer.send_weights(iter(weights), global_steps=step))

    def close(self) -> None:
        """All of them."""
        for one in (self.trainer, *self.rollouts):
            one.close()


def same_bits(found: State, masters: State) -> bool:
    """Whether the rollout has the trainer's tensors, all of them, as they travel."""
    return found.keys() == masters.keys() and all(
        torch.equal(bits_of(one.contiguous()), bits_of(masters[name].detach().to(one.dtype).contiguous()))
        for name, one in found.items()
    )


def saved(model: Any, folder: Path) -> Path:
    """A model's folder."""
    model.save_pretrained(folder)
    return folder


def handed(model: Any) -> State:
    """What verl hands over: a model's state under the names of the checkpoint, experts one by one."""
    named = convert_weight_keys(model.state_dict(), model)
    return dict(unfuse_moe_params(iter(named.items()), model.config.model_type))


def train(model: Any, seed: int) -> None:
    """Changes one weight of ten."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.02 * (torch.rand_like(one) < 0.1))
