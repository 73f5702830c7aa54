"""The object that TRL's trainers take, driven as they drive it, through a real sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the library needs torch")
import torch

from sync_runtime import Subscriber
from sync_runtime.errors import LayoutError, LocalError, SidecarLostError
from sync_runtime.library.engines.trl import GatheredEngine, WeightTransfer
from sync_runtime.library.shards import Shard
from tests.support.device_models import same_state
from tests.support.following import follow
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup
from tests.support.mesh_models import Net, train, whole_state

pytestmark = pytest.mark.timeout(60)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def trainable(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What the trainer hands over."""
    return ((name, one.detach()) for name, one in model.named_parameters() if one.requires_grad)


def synchronise(transfer: WeightTransfer, model: torch.nn.Module) -> None:
    """In the trainer's order."""
    transfer.pause()
    transfer.send_weights(trainable(model))
    transfer.resume()


def test_every_send_is_a_version_that_workers_follow(group: InsideGroup) -> None:
    model = Net()
    model.odd.requires_grad_(requires_grad=False)
    transfer = WeightTransfer(wire_dtype=torch.bfloat16, socket=group.socket("trainer-0"), timeout=20.0)
    transfer.trainer = SimpleNamespace(model=model)
    transfer.init_weight_transfer()
    synchronise(transfer, model)
    live = whole_state(Net())
    held = {**live, "head.weight": live["embed.weight"]}
    with Subscriber(held, socket=group.socket("eu-0")) as subscriber:
        for step in (1, 2):
            train(model, step)
            synchronise(transfer, model)
            assert transfer.version is not None
            assert transfer.version.step == step
            follow(subscriber, transfer.version.seq)
            assert same_state(live, whole_state(model))
    transfer.destroy()
    transfer.destroy()
    assert transfer.version is None


def test_a_send_that_fails_raises_after_all_was_taken_off_the_iterator(group: InsideGroup) -> None:
    model = Net()
    transfer = WeightTransfer(SimpleNamespace(model=model), socket=group.socket("trainer-0"), timeout=0.2, patience=0.2)
    transfer.init_weight_transfer()
    left = iter([("up.weight", torch.zeros(12, 16)), ("stranger", torch.zeros(1)), ("down.weight", torch.zeros(1))])
    with pytest.raises(LayoutError, match="'stranger'"):
        transfer.send_weights(left)
    assert next(left, None) is None
    synchronise(transfer, model)
    before = transfer.version
    group.stop("trainer-0")
    train(model, 1)
    with pytest.raises(SidecarLostError):
        synchronise(transfer, model)
    assert transfer.version == before
    transfer.destroy()


def test_a_transfer_without_a_model_says_what_to_do() -> None:
    with pytest.raises(LocalError, match=r"transfer\.trainer"):
        WeightTransfer().init_weight_transfer()
    with pytest.raises(LocalError, match="before"):
        WeightTransfer(SimpleNamespace(model=Net())).send_weights(iter(()))


def test_parameters_that_are_spread_are_kept_as_they_were_handed_over() -> None:
    part = Shard(torch.zeros(2, 8), (4, 8), (0, 0), (2, None))
    whole = torch.arange(32.0).view(4, 8)
    model: Any = {"b": torch.ones(3), "w": part, "z": part}
    engine = GatheredEngine(model)
    with pytest.raises(LayoutError, match="was not handed over"):
        engine.check_complete()
    with pytest.raises(LayoutError, match="whole parameters"):
        engine.take("w", torch.zeros(2, 8))
    engine.take("w", whole)
    engine.check_complete()
    assert torch.equal(engine.tensors()["w"], whole)
    assert engine.ties() == {"z": "w"}
    model["b"] = torch.full((3,), 2.0)
    assert torch.equal(engine.tensors()["b"], model["b"])
    assert not engine.shards()


def test_spread_masters_are_kept_as_they_travel() -> None:
    part = Shard(torch.zeros(2, 8), (4, 8), (0, 0), (2, None))
    engine = GatheredEngine({"b": torch.ones(3), "w": part}, torch.bfloat16)
    whole = torch.linspace(-1, 1, 32).view(4, 8)
    engine.take("w", whole)
    assert torch.equal(engine.tensors()["w"], whole.to(torch.bfloat16))
    assert engine.tensors()["b"].dtype == torch.float32
