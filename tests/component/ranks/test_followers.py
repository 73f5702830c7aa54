"""Ranks of somebody's engine, each with its part in a memory of its own: all show a version or none does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Publisher
from sync_runtime.errors import LayoutError, LocalError, SyncError
from sync_runtime.library.engines.following import Follower, Opening
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.loaders import Fused, checkpoint, engines_of, ranks_of, same
from tests.support.sharded import SMALL_ELEMENTS, together

pytestmark = pytest.mark.timeout(400)
LEAF = Member("eu-0", "eu", ("trainer-0",))
RANKS = 2
PATIENCE_S = 90.0
"""Kernels run in an interpreter, on machines that have more to do."""


class Engine:
    """A trainer that cuts for two ranks, and an engine of two."""

    def __init__(self, group: InsideGroup, cuts: Any = RANKS) -> None:
        self.state = checkpoint()
        self.publisher = Publisher(self.state, socket=group.socket("trainer-0"), cuts=cuts)
        self.models = [Fused(rank, RANKS) for rank in range(RANKS)]
        for model in self.models:
            model.load_weights(self.state.items())
        self.engines = engines_of(self.models, SMALL_ELEMENTS)
        opening = Opening(group.socket("eu-0"), timeout_s=PATIENCE_S, patience_s=PATIENCE_S)
        pairs = zip(self.engines, ranks_of(RANKS), strict=True)
        found = together(
            *(partial(Follower, engine, opening, ranks) for engine, ranks in pairs), timeout_s=2 * PATIENCE_S
        )
        assert all(isinstance(one, Follower) for one in found), found
        self.followers = [one for one in found if isinstance(one, Follower)]

    def publish(self, step: int) -> int:
        for tensor in self.state.values():
            tensor.view(torch.int16).reshape(-1)[step % 3 :: 3] += step
        return self.publisher.publish(step=step).seq

    def update(self, **asked: Any) -> list[Any]:
        return together(*(partial(one.update, **asked) for one in self.followers), timeout_s=2 * PATIENCE_S)

    def follow(self, seq: int, **more: Any) -> None:
        assert self.update(seq=seq, timeout_s=PATIENCE_S, **more) == [None] * RANKS
        assert [one.version for one in self.followers] == [self.publisher.version] * RANKS

    def is_right(self) -> bool:
        expected = [Fused(rank, RANKS) for rank in range(RANKS)]
        for model in expected:
            model.load_weights(self.state.items())
        return all(same(one, other) for one, other in zip(self.models, expected, strict=True))

    def close(self) -> None:
        together(*(one.close for one in self.followers), lambda: self.publisher.close(0.0))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def test_every_rank_follows_with_its_part_and_passes_the_scrub(group: InsideGroup) -> None:
    engine = Engine(group)
    for step in (1, 2):
        engine.follow(engine.publish(step), scrub=True)
        assert engine.is_right()
    engine.close()


def test_a_rank_that_fails_after_leave_was_given_leaves_no_rank_with_a_version(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(group)
    seq = engine.publish(1)
    with monkeypatch.context() as broken:
        broken.setattr(engine.engines[1], "flush", _out_of_memory)
        told = engine.update(seq=seq, timeout_s=PATIENCE_S)
    assert isinstance(told[1], torch.OutOfMemoryError)
    assert isinstance(told[0], LocalError)
    assert "rank 1 of 2" in str(told[0])
    assert [one.version for one in engine.followers] == [None, None]
    engine.follow(seq, scrub=True)
    assert engine.is_right()
    engine.close()


def test_a_rank_that_fails_before_anything_is_written_leaves_all_with_what_they_had(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    before = engine.publisher.version
    seq = engine.publish(2)
    with monkeypatch.context() as broken:
        broken.setattr(engine.followers[1].session, "wait", _refuse)
        told = engine.update(seq=seq, timeout_s=PATIENCE_S)
    assert all(isinstance(one, SyncError) for one in told)
    assert [one.version for one in engine.followers] == [before, before]
    engine.follow(seq)
    assert engine.is_right()
    engine.close()


def test_a_wrong_bit_in_one_rank_is_found_and_repaired(group: InsideGroup) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    engine.models[1].qkv.weight.data.view(torch.int16)[1, 3] ^= 1
    told = engine.update(scrub=True)
    assert all(isinstance(one, LocalError) for one in told), told
    wait_for(
        lambda: all(one.session.staging.staged is not None for one in engine.followers), PATIENCE_S, what="a repair"
    )
    assert engine.update(scrub=True) == [None] * RANKS
    assert engine.is_right()
    engine.close()


def test_a_rank_that_cannot_read_its_weights_keeps_nobody_waiting(group: InsideGroup) -> None:
    engine = Engine(group)
    engine.follow(engine.publish(1))
    moved = engine.models[1].o
    moved.weight = torch.nn.Parameter(moved.weight.detach().t().contiguous().t(), requires_grad=False)
    told = engine.update(scrub=True)
    assert isinstance(told[1], LayoutError)
    assert "rank 1 of 2" in str(told[0])
    engine.close()


def test_a_trainer_that_cuts_otherwise_is_named_to_every_rank(group: InsideGroup) -> None:
    engine = Engine(group, cuts=None)
    told = engine.update(seq=engine.publish(1), timeout_s=PATIENCE_S)
    assert all(isinstance(one, LayoutError) and "Publisher.cuts" in str(one) for one in told), told
    assert [type(one) for one in engine.update()] == [LayoutError, LayoutError]
    engine.close()


def _out_of_memory() -> None:
    raise torch.OutOfMemoryError("no memory is left on the device")


def _refuse(*_: object) -> None:
    raise LocalError("this rank was not asked")
