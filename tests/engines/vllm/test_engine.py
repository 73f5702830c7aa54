"""The plug-in's life in a vLLM worker: opened once, staged in the background, switched in the pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from sync_runtime import Publisher
from sync_runtime.errors import LocalError, SyncError
from sync_runtime.library.engines.vllm import SyncGroupEngine, register
from sync_runtime.library.subscribing import SubscribeSession
from tests.engines.vllm import real
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))


class Pair:
    """A trainer with its sidecar, and a worker of vLLM with its own."""

    def __init__(self, group: InsideGroup, folder: Path, kind: str = "llama", seed: int = 0) -> None:
        self.group, self.folder, self.kind = group, folder, kind
        self.trained = real.trainer_model(kind)
        self.publisher = Publisher(self.trained, socket=group.socket("trainer-0"), engine="transformers")
        loaded = self.trained if seed == 0 else real.trainer_model(kind, seed)
        self.config = real.vllm_config(real.save(loaded, folder / "first"))
        self.model = real.load(self.config)
        register()
        made = WeightTransferEngineFactory.create_engine(
            self.config.weight_transfer_config, self.config, torch.device("cpu"), self.model
        )
        assert isinstance(made, SyncGroupEngine)
        self.engine = made
        self.open()

    @property
    def session(self) -> SubscribeSession:
        assert self.engine._follower is not None
        return self.engine._follower.session

    def open(self) -> None:
        self._inside(self.engine.init_transfer_engine, self.engine.parse_init_info(
            {"socket": self.group.socket("eu-0"), "timeout_s": 30.0}))  # fmt: skip

    def publish(self, step: int) -> int:
        nudge(self.trained, step)
        return self.publisher.publish(step=step).seq

    def update(self, **info: Any) -> None:
        """What a worker does for `/start_weight_update`, `/update_weights`, `/finish_weight_update`."""
        self.engine.start_weight_update()
        self._inside(self.engine.receive_weights, self.engine.parse_update_info(info))
        self.engine.finish_weight_update()

    def follow(self, seq: int) -> None:
        self.update(seq=seq, timeout_s=30.0)

    def wrong(self) -> list[str]:
        """Parameters that are not what vLLM would load from the trainer's weights."""
        folder = real.save(self.trained, self.folder / "now")
        return real.differing(self.model, real.load(real.vllm_config(folder)))

    def parameter(self, name: str) -> torch.Tensor:
        return dict(self.model.named_parameters())[name]

    def close(self) -> None:
        self.engine.shutdown()
        self.publisher.close(0.0)

    def _inside(self, call: Any, *arguments: Any) -> None:
        with set_current_vllm_config(self.config):
            call(*arguments)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    folder = tmp_path / "group"
    folder.mkdir()
    with InsideGroup(folder, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


@pytest.fixture
def pair(group: InsideGroup, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(group, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3"])
def test_vllm_follows_a_trainer_bit_for_bit(group: InsideGroup, tmp_path: Path, kind: str) -> None:
    pair = Pair(group, tmp_path, kind)
    for step in (1, 2):
        pair.follow(pair.publish(step))
    assert pair.engine.version == pair.publisher.version
    assert pair.wrong() == []
    pair.update(scrub=True)
    pair.close()


def test_weights_of_another_checkpoint_are_replaced_whole(group: InsideGroup, tmp_path: Path) -> None:
    pair = Pair(group, tmp_path, seed=7)
    assert pair.engine.version is None
    pair.follow(pair.publish(1))
    assert pair.wrong() == []
    pair.close()


def test_nothing_is_visible_before_the_update(pair: Pair) -> None:
    before = real.bits(pair.model)
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    after = real.bits(pair.model)
    assert all(torch.equal(one, after[name]) for name, one in before.items())
    pair.follow(seq)
    assert pair.wrong() == []


def test_an_update_without_news_changes_nothing(pair: Pair) -> None:
    before = real.bits(pair.model)
    pair.update()
    after = real.bits(pair.model)
    assert all(torch.equal(one, after[name]) for name, one in before.items())
    seq = pair.publisher.publish(step=1).seq  # no element has changed
    pair.follow(seq)
    assert pair.engine.version == pair.publisher.version
    assert pair.wrong() == []


def test_a_version_that_is_not_there_is_refused_and_the_weights_stay(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    with pytest.raises(LocalError, match="not staged yet"):
        pair.update(seq=5)
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
    with pytest.raises(LocalError, match="repair"):
        pair.update(scrub=True)
    wait_for(lambda: pair.session.staging.staged is not None, 30, what="a repair")
    pair.update(scrub=True)
    assert pair.wrong() == []


def test_a_map_that_has_become_stale_is_found(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    layer = pair.model.get_submodule("model.layers.0.self_attn.o_proj")
    layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)  # type: ignore[operator]
    with pytest.raises(SyncError, match="o_proj"):
        pair.update(scrub=True)


def test_weights_that_were_moved_in_place_are_found(pair: Pair) -> None:
    pair.follow(pair.publish(1))
    fused = pair.parameter("model.layers.1.mlp.gate_up_proj.weight").detach()
    fused.copy_(torch.cat(list(fused.chunk(2))[::-1]))  # as kernels do that want the other half first
    with pytest.raises(LocalError, match="repair"):
        pair.update(scrub=True)


def test_an_engine_that_was_not_opened_says_so_before_anything_happens(pair: Pair) -> None:
    pair.engine.shutdown()
    with pytest.raises(LocalError, match="init_weight_transfer_engine"):
        pair.engine.start_weight_update()
    assert pair.engine.version is None


def test_an_engine_that_is_opened_again_between_staging_and_the_update_gets_the_version_again(pair: Pair) -> None:
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    pair.open()
    pair.follow(seq)
    assert pair.wrong() == []


def test_a_sidecar_that_goes_away_between_staging_and_the_update_costs_nothing(pair: Pair) -> None:
    seq = pair.publish(1)
    assert pair.session.wait(seq, 30.0) is not None
    pair.group.stop("eu-0")
    before = real.bits(pair.model)
    with pytest.raises(SyncError):
        pair.update(seq=seq)
    after = real.bits(pair.model)
    assert all(torch.equal(one, after[name]) for name, one in before.items())
    pair.group.start("eu-0")
    pair.follow(seq)
    assert pair.wrong() == []


def test_an_update_in_the_words_of_another_backend_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="update_info"):
        pair.engine.update_weights({"names": ["model.norm.weight"]})
    pair.engine.update_weights({})
