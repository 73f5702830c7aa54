"""The plug-in's life in a scheduler: opened by the first update, staged in the background, switched between two calls.

The calls go through SGLang's own updater, hooks and serializer. Whatever fails is an answer, and never a raise: SGLang
ends the server for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sglang", reason="runs in SGLang's own environment: make test-engines")

import torch

from sync_runtime import Publisher
from sync_runtime.library.engines.sglang import RANK
from sync_runtime.library.subscribing import SubscribeSession
from tests.engines.sglang import real
from tests.support.engine_models import CheckpointTrainer
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))


class Pair:
    """A trainer with its sidecar, and a server of SGLang with its own."""

    def __init__(self, group: InsideGroup, folder: Path, kind: str = "llama", seed: int = 0) -> None:
        self.group, self.folder, self.kind = group, folder, kind
        self.trained = real.trainer_model(kind)
        self.publisher = Publisher(self.trained, socket=group.socket("trainer-0"), engine="transformers")
        loaded = self.trained if seed == 0 else real.trainer_model(kind, seed)
        self.server = real.Server(real.save(loaded, folder / "first"))
        self.model = self.server.model
        assert self.update() == (True, "Success")

    @property
    def session(self) -> SubscribeSession:
        assert RANK.follower is not None
        return RANK.follower.session

    def publish(self, step: int) -> int:
        nudge(self.trained, step)
        return self.publisher.publish(step=step).seq

    def update(self, **request: Any) -> tuple[bool, str]:
        return self.server.update(socket=self.group.socket("eu-0"), open_timeout_s=30.0, **request)

    def follow(self, seq: int) -> None:
        assert self.update(seq=seq, timeout_s=30.0) == (True, "Success")

    def wrong(self) -> list[str]:
        """Parameters that are not what SGLang would load from the trainer's weights."""
        folder = real.save(self.trained, self.folder / "now")
        return real.differing(self.model, real.load(real.config_of(folder)))

    def parameter(self, name: str) -> torch.Tensor:
        return dict(self.model.named_parameters())[name]

    def close(self) -> None:
        RANK.close()
        self.publisher.close(0.0)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    folder = tmp_path / "group"
    folder.mkdir()
    with InsideGroup(folder, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made
        RANK.close()


@pytest.fixture
def pair(group: InsideGroup, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(group, tmp_path)
    yield made
    made.close()


def same(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return before.keys() == after.keys() and all(torch.equal(one, after[name]) for name, one in before.items())


@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3"])
def test_sglang_follows_a_trainer_bit_for_bit(group: InsideGroup, tmp_path: Path, kind: str) -> None:
    pair = Pair(group, tmp_path, kind)
    for step in (1, 2):
        pair.follow(pair.publish(step))
    assert RANK.version == pair.publisher.version
    assert pair.wrong() == []
    assert pair.update(scrub=True) == (True, "Success")
    pair.close()


def test_experts_are_followed_in_place_bit_for_bit(group: InsideGroup, tmp_path: Path) -> None:
    trainer = CheckpointTrainer("qwen3-moe", tmp_path)
    server = real.Server(trainer.folder)
    with Publisher(trainer.state, socket=group.socket("trainer-0")) as publisher:
        assert server.update(socket=group.socket("eu-0"), open_timeout_s=30.0) == (True, "Success")
        folder = trainer.step(1)
        assert server.update(seq=publisher.publish(step=1).seq, timeout_s=30.0) == (True, "Success")
        assert real.differing(server.model, real.load(real.config_of(folder))) == []


def test_weights_of_another_checkpoint_are_replaced_whole(group: InsideGroup, tmp_path: Path) -> None:
    pair = Pair(group, tmp_path, seed=7)
    assert RANK.version is None
    pair.follow(pair.publish(1))
    assert pair.wrong() == []
    pair.close()


def test_nothing_is_visible_before_the_update(pair: Pair) -> None:
    before = real.bits(pair.model)
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    assert same(before, real.bits(pair.model))
    pair.follow(seq)
    assert pair.wrong() == []


def test_an_update_without_news_changes_nothing_and_succeeds(pair: Pair) -> None:
    before, flushed = real.bits(pair.model), pair.server.flushed
    assert pair.update() == (True, "Success")
    assert same(before, real.bits(pair.model))
    assert pair.server.flushed == flushed + 1  # keys and values of older weights are of no version


def test_a_version_that_is_not_there_is_an_answer_and_the_weights_stay(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    labels = list(pair.server.versions)
    success, message = pair.update(seq=5)
    assert not success
    assert "not staged yet" in message
    assert pair.server.versions == labels  # no version is reported that is not live
    assert pair.wrong() == []


def test_signed_zeros_and_nan_payloads_arrive_in_a_fused_weight(pair: Pair) -> None:
    odd = torch.tensor([-0x8000, 0x7FC1, -0x003E], dtype=torch.int16)  # minus zero, two NaN
    attention = pair.trained.model.layers[0].self_attn
    attention.k_proj.weight.detach().view(torch.int16)[0, :3] = odd
    pair.follow(pair.publisher.publish(step=1).seq)
    fused = pair.parameter("model.layers.0.self_attn.qkv_proj.weight").detach().view(torch.int16)
    assert torch.equal(fused[attention.q_proj.weight.shape[0], :3], odd)
    assert pair.wrong() == []


@pytest.mark.parametrize("name", ["layers.0.self_attn.qkv_proj.weight", "embed_tokens.weight", "norm.weight"])
def test_a_wrong_bit_is_found_by_the_scrub_and_repaired(pair: Pair, name: str) -> None:
    pair.follow(pair.publish(1))
    pair.parameter(f"model.{name}").detach().view(torch.int16).reshape(-1)[3] ^= 1
    success, message = pair.update(scrub=True)
    assert not success
    assert "repair" in message
    wait_for(lambda: pair.session.staging.staged is not None, 30, what="a repair")
    assert pair.update(scrub=True) == (True, "Success")
    assert pair.wrong() == []


def test_a_map_that_has_become_stale_is_an_answer(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    layer: Any = pair.model.get_submodule("model.layers.0.self_attn.o_proj")
    layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)
    success, message = pair.update(scrub=True)
    assert not success
    assert "o_proj" in message


def test_weights_that_were_moved_in_place_are_found(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    fused = pair.parameter("model.layers.1.mlp.gate_up_proj.weight").detach()
    fused.copy_(torch.cat(list(fused.chunk(2))[::-1]))  # as kernels do that want the other half first
    success, message = pair.update(scrub=True)
    assert not success
    assert "repair" in message


def test_a_failure_inside_torch_is_an_answer_and_the_next_update_completes_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = pair.publish(1)
    engine = RANK.engine
    assert engine is not None

    def out_of_memory() -> None:
        raise torch.OutOfMemoryError("no memory is left on the device")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "flush", out_of_memory)
        success, message = pair.update(seq=seq, timeout_s=30.0)
    assert not success
    assert "no memory" in message
    assert RANK.version is None
    pair.follow(seq)
    assert RANK.version == pair.publisher.version
    assert pair.wrong() == []


def test_a_request_in_other_words_is_an_answer(pair: Pair) -> None:
    pair.server.begin()
    success, message = pair.server.send([("model.norm.weight", torch.zeros(64))])
    pair.server.end()
    assert not success
    assert "JSON" in message
    assert pair.wrong() == []


def test_no_sidecar_is_an_answer_and_the_server_goes_on(tmp_path: Path) -> None:
    server = real.Server(real.save(real.trainer_model("llama"), tmp_path / "model"))
    before = real.bits(server.model)
    success, message = server.update(socket=str(tmp_path / "nobody.sock"), open_timeout_s=0.2)
    assert not success
    assert "nobody.sock" in message
    assert RANK.follower is None
    assert same(before, real.bits(server.model))


def test_a_server_that_hangs_up_and_opens_again_gets_the_version_again(pair: Pair) -> None:
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    assert pair.update(close=True) == (True, "Success")
    assert RANK.version is None
    pair.follow(seq)
    assert pair.wrong() == []


def test_a_sidecar_that_goes_away_between_staging_and_the_update_costs_nothing(pair: Pair) -> None:
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    pair.group.stop("eu-0")
    before = real.bits(pair.model)
    success, _ = pair.update(seq=seq)
    assert not success
    assert same(before, real.bits(pair.model))
    pair.group.start("eu-0")
    pair.follow(seq)
    assert pair.wrong() == []
