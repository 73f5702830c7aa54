"""verl's own worker classes in one process, without Ray: their methods are called as its manager would call them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from sync_runtime.errors import LayoutError
from tests.engines.verl.pair import Pair, same_bits
from tests.engines.verl.workers import Actor, LoadingAdapter, Rollout, actor_config
from tests.support.one_rank_mesh import one_rank_mesh

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]


class Workers:
    """An actor over verl's FSDP2 engine, and a rollout's worker, around a pair of checkpoint engines."""

    def __init__(self, pair: Pair, checkpoint: Path) -> None:
        config = actor_config(str(checkpoint), {"checkpoint": str(checkpoint)}).actor_rollout_ref
        model, actor = omega_conf_to_dataclass(config.model), omega_conf_to_dataclass(config.actor)
        engine = FSDPEngineWithLMHead(model, actor.engine, actor.optim, actor.checkpoint)
        engine.initialize()
        self.pair = pair
        self.actor, self.rollout = Actor.__new__(Actor), Rollout.__new__(Rollout)  # Ray's part of them is left out
        self.actor.config, self.actor.actor = config, SimpleNamespace(engine=engine)
        self.actor.checkpoint_engine, self.rollout.checkpoint_engine = pair.trainer, pair.rollout
        self.rollout.server_adapter = LoadingAdapter(omega_conf_to_dataclass(config.rollout), model)

    def update(self, step: int) -> Any:
        """The manager's steps; figures of the trainer."""
        self.pair.prepare()

        async def both() -> Any:
            sent = self.actor.update_weights(global_steps=step)
            figures, _ = await asyncio.gather(sent, self.rollout.update_weights(global_steps=step))
            return figures

        return asyncio.run(both())

    def agree(self) -> bool:
        """Whether the server has the trainer's bits."""
        return same_bits(self.rollout.state()[1], self.actor.state())


@pytest.fixture
def workers(pair: Pair, checkpoint: Path) -> Iterator[Workers]:
    with one_rank_mesh():
        yield Workers(pair, checkpoint)


def test_a_server_has_the_bits_of_verls_sharded_actor_after_every_step_of_training(workers: Workers) -> None:
    assert workers.update(0)["syncgroup/version"] == 1
    for step in (1, 2):
        workers.actor.train(step)
        assert not workers.agree(), "nothing was trained"
        assert workers.update(step)["syncgroup/version"] == step + 1
        assert workers.agree()
    assert workers.rollout.state()[0] == [0, 1, 2]


def test_an_actor_whose_names_are_not_the_checkpoints_fails_and_goes_on(workers: Workers) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    workers.update(0)
    workers.actor.train(1)
    workers.actor.rename(name, "elsewhere")
    with pytest.raises(LayoutError, match="'elsewhere' was handed over"):
        asyncio.run(workers.actor.update_weights(global_steps=1))
    workers.actor.rename(name, name)
    assert not workers.agree()
    assert workers.update(1)["syncgroup/version"] == 2
    assert workers.agree()
