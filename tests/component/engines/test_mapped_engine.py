"""An engine with a memory of its own follows a trainer through real sidecars: views, shadows and computed modules."""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.support.loaders import Fused, checkpoint, engine_of, same

pytestmark = pytest.mark.timeout(60)
LEAF = Member("eu-0", "eu", ("trainer-0",))


class Pair:
    """A trainer with a plain state, and an engine that keeps it in its own way."""

    def __init__(self, group: InsideGroup, seed: int = 0) -> None:
        self.state = checkpoint()
        self.publisher = Publisher(self.state, socket=group.socket("trainer-0"))
        self.model = Fused()
        self.model.load_weights(checkpoint(seed).items())
        self.engine: MappedEngine = engine_of(self.model, checkpoint(seed))
        self.session: SubscribeSession = make_session(
            self.engine,
            SubscribeOptions(),
            LibrarySettings.read(group.socket("eu-0")),
            lambda coder: FlushingCoder(coder, self.engine),
        )
        self.session.open(20.0)

    def publish(self, step: int) -> int:
        for tensor in self.state.values():
            tensor.view(torch.int16).reshape(-1)[step % 3 :: 3] += step
        return self.publisher.publish(step=step).seq

    def follow(self, seq: int) -> None:
        assert self.session.wait(seq, 20.0) is not None
        self.session.activate(5.0)
        assert self.session.version == self.publisher.version

    def is_right(self) -> bool:
        expected = Fused()
        expected.load_weights(self.state.items())
        return same(self.model, expected)

    def close(self) -> None:
        self.session.close()
        self.publisher.close(0.0)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def test_an_engine_follows_bit_for_bit_and_passes_its_scrub(group: InsideGroup) -> None:
    pair = Pair(group)
    for step in (1, 2):
        pair.follow(pair.publish(step))
        assert pair.is_right()
    assert pair.session.scrub(20.0)
    pair.close()


def test_an_engine_of_unknown_weights_gets_whole_ones(group: InsideGroup) -> None:
    pair = Pair(group, seed=5)
    assert pair.session.version is None
    pair.follow(pair.publish(1))
    assert pair.is_right()
    pair.close()


@pytest.mark.parametrize("module", ["qkv", "head", "router", "decay"])
def test_a_wrong_bit_anywhere_in_the_engine_is_found_and_mended(group: InsideGroup, module: str) -> None:
    pair = Pair(group)
    pair.follow(pair.publish(1))
    pair.model.get_submodule(module).weight.data.reshape(-1).view(torch.uint8)[1] ^= 4  # type: ignore[operator]
    assert not pair.session.scrub(20.0)
    wait_for(lambda: pair.session.staging.staged is not None, 20, what="a repair")
    pair.session.activate(5.0)
    assert pair.is_right()
    assert pair.session.scrub(20.0)
    pair.close()


def test_a_version_that_did_not_reach_the_engine_is_no_version_until_it_has(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(group)
    seq = pair.publish(1)
    assert pair.session.wait(seq, 20.0) is not None
    with monkeypatch.context() as broken:
        broken.setattr(pair.model, "load_weights", _failing)
        with pytest.raises(RuntimeError, match="no memory"):
            pair.session.activate(5.0)
    assert pair.session.version is None
    pair.session.activate(5.0)
    assert pair.session.version == pair.publisher.version
    assert pair.is_right()
    pair.close()


def _failing(_: object) -> None:
    raise RuntimeError("no memory left")
