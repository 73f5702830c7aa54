"""verl's own manager, actor and checkpoint workers over Ray, with real sidecars between trainer and rollout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import ray
import torch
from verl.checkpoint_engine import CheckpointEngineManager
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout import RolloutReplica

from sync_runtime.errors import LayoutError
from tests.engines.verl.workers import Actor, Rollout, State, actor_config
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup
from tests.support.language_models import tiny_llama

pytestmark = [pytest.mark.timeout(1500), pytest.mark.filterwarnings("default")]
RANKS = 2


class Replica(RolloutReplica):  # type: ignore[misc]
    """A replica of one worker, whose server is in the worker."""

    def __init__(self, worker: Any) -> None:
        self.workers = [worker]
        self.servers: list[Any] = []

    async def launch_servers(self) -> None:
        """There is none."""


class Running(NamedTuple):
    """A trainer of two ranks and a rollout, both under verl's manager."""

    actors: Any
    rollout: Any
    manager: Any
    group: InsideGroup


def workers(kind: type, count: int, **arguments: Any) -> Any:
    pool = RayResourcePool([count], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(cls=ray.remote(kind), **arguments)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu")


@pytest.fixture(scope="module")  # Ray and its processes take their time
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tmp_path = tmp_path_factory.mktemp("verl")
    tiny_llama().save_pretrained(tmp_path / "checkpoint")
    members = [TRAINER, Member("eu-0", "eu", ("trainer-0",))]
    with InsideGroup(tmp_path, members, ringBytes=1 << 20) as group:
        group.start_all()
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, _node_ip_address="127.0.0.1")
        try:
            yield made(group, str(tmp_path / "checkpoint"))
        finally:
            ray.shutdown()


def made(group: InsideGroup, checkpoint: str) -> Running:
    def config(member: str) -> Any:
        engine = {"checkpoint": checkpoint, "socket": group.socket(member), "wait_s": 60.0}
        return actor_config(checkpoint, engine).actor_rollout_ref

    actors = workers(Actor, RANKS, config=config("trainer-0"), role="actor")
    actors.init_model()
    rollout = workers(Rollout, 1, rollout_config=config("eu-0").rollout, model_config=config("eu-0").model)
    said = omega_conf_to_dataclass(config("trainer-0").rollout.checkpoint_engine)
    manager = CheckpointEngineManager(said, actors, [Replica(one) for one in rollout.workers])
    return Running(actors, rollout, manager, group)


def same(masters: State, served: State) -> bool:
    return masters.keys() == served.keys() and all(
        torch.equal(masters[name].to(torch.bfloat16).view(torch.int16), one.view(torch.int16))
        for name, one in served.items()
    )


def served(running: Running) -> tuple[list[int], State]:
    ((steps, found),) = running.rollout.state()
    return steps, found


def next_step(running: Running) -> int:
    steps, _ = served(running)
    return max(steps, default=-1) + 1


def test_rollouts_of_verl_have_the_bits_of_a_sharded_trainer_after_every_update(running: Running) -> None:
    seen, first = [], next_step(running)
    for step in range(first, first + 3):
        running.actors.train(step)
        figures = running.manager.update_weights(global_steps=step)
        assert figures["syncgroup/publish_s"] > 0
        steps, found = served(running)
        assert steps[-1] == step
        assert all(same(masters, found) for masters in running.actors.state())
        seen.append((figures["syncgroup/version"], found))
    assert [version - seen[0][0] for version, _ in seen] == [0, 1, 2]
    assert not any(same(one, other) for (_, one), (_, other) in pairwise(seen)), "nothing was trained"


def test_a_trainer_whose_update_fails_goes_on_with_the_next_one(running: Running) -> None:
    step, name = next_step(running), "model.layers.0.mlp.up_proj.weight"
    running.manager.update_weights(global_steps=step)
    _, before = served(running)
    running.actors.train(step + 1)
    running.actors.rename(name, "elsewhere")
    with pytest.raises(LayoutError, match="'elsewhere' was handed over"):
        running.manager.update_weights(global_steps=step + 1)
    assert same(served(running)[1], before)
    running.actors.rename(name, name)
    running.manager.update_weights(global_steps=step + 1)
    steps, after = served(running)
    assert steps[-2:] == [step, step + 1]
    assert all(same(masters, after) for masters in running.actors.state())
    assert not same(before, after), "nothing was trained"
