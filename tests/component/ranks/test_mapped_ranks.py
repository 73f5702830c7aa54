"""Ranks of an engine with a memory of its own, at one sidecar: fused rows, columns, and small tensors that are cut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher
from sync_runtime.library.engines.flushing import FlushingCoder
from sync_runtime.library.engines.mapped import MappedEngine
from sync_runtime.library.settings import LibrarySettings, SubscribeOptions
from sync_runtime.library.subscriber import make_session
from sync_runtime.library.subscribing import SubscribeSession
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.loaders import Fused, checkpoint, cut_for, engines_of, same
from tests.support.sharded import SMALL_ELEMENTS, together

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))
RANKS = 2


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def opened(group: InsideGroup, engine: MappedEngine, rank: int) -> SubscribeSession:
    options, settings = SubscribeOptions("library", None, rank, RANKS), LibrarySettings.read(group.socket("eu-0"))
    session = make_session(engine, options, settings, lambda coder: FlushingCoder(coder, engine))
    session.open(20.0)
    return session


def loaded(state: dict[str, torch.Tensor], rank: int) -> Fused:
    model = Fused(rank, RANKS)
    model.load_weights(state.items())
    return model


def test_ranks_follow_together_and_each_has_its_part(group: InsideGroup) -> None:
    state = checkpoint()
    models = [loaded(state, rank) for rank in range(RANKS)]
    engines = engines_of(models, SMALL_ELEMENTS)
    publisher = Publisher(cut_for(state, RANKS, SMALL_ELEMENTS), socket=group.socket("trainer-0"), coder="library")
    found = together(*(partial(opened, group, engine, rank) for rank, engine in enumerate(engines)))
    sessions = [one for one in found if isinstance(one, SubscribeSession)]
    assert len(sessions) == RANKS, found
    for step in (1, 2):
        for tensor in state.values():
            tensor.view(torch.int16).reshape(-1)[step % 3 :: 3] += step
        version = publisher.publish(step=step)

        def there(wanted: object = version) -> bool:
            sessions[0].wait(None, 0.2)
            together(*(partial(one.activate, 5.0) for one in sessions))
            return all(one.version == wanted for one in sessions)

        wait_for(there, 40, what=f"step {step}")
        assert all(same(model, loaded(state, rank)) for rank, model in enumerate(models))
    assert together(*(partial(one.scrub, 20.0) for one in sessions)) == [True] * RANKS
    models[1].qkv.bias.data.view(torch.int16)[0] ^= 1  # a part of a tensor that all ranks keep whole
    assert together(*(partial(one.scrub, 20.0) for one in sessions)) == [False] * RANKS
    together(*(one.close for one in sessions), lambda: publisher.close(0.0))
