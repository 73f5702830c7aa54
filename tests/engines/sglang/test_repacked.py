"""What SGLang does not keep as it was loaded: experts whose gate and up rows it interleaves, in place.

It does so after every update, also where nothing was loaded, and cannot undo it: a plug-in that left it alone would
serve shuffled experts after the first empty update. The rule is for GPUs; here the test says that this is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="runs in SGLang's own environment: make test-engines")

import torch
from sglang.srt.environ import envs
from sglang.srt.layers.quantization import unquant

from sync_runtime import Publisher
from sync_runtime.library.engines.sglang import RANK, repacked_modules
from tests.engines.sglang import real
from tests.support.engine_models import CheckpointTrainer
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup

pytestmark = pytest.mark.timeout(120)
LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture(autouse=True)
def interleaving(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(unquant, "_is_cuda", True)
    with envs.SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED.override(True):
        yield
    RANK.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    folder = tmp_path / "group"
    folder.mkdir()
    with InsideGroup(folder, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def same(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return before.keys() == after.keys() and all(torch.equal(one, after[name]) for name, one in before.items())


def test_interleaved_experts_are_known_as_such(tmp_path: Path) -> None:
    model = real.load(real.config_of(real.save(real.trainer_model("qwen3-moe"), tmp_path)))
    found = list(repacked_modules(model))
    assert found
    assert all(path.endswith("mlp.experts") for path in found)


def test_interleaved_experts_follow_a_trainer_and_survive_updates_without_news(
    group: InsideGroup, tmp_path: Path
) -> None:
    trainer = CheckpointTrainer("qwen3-moe", tmp_path)
    server = real.Server(trainer.folder)
    before = real.bits(server.model)
    with Publisher(trainer.state, socket=group.socket("trainer-0")) as publisher:
        for _ in range(2):
            assert server.update(socket=group.socket("eu-0"), open_timeout_s=30.0) == (True, "Success")
            assert same(before, real.bits(server.model))
        for step in (1, 2):
            folder = trainer.step(step)
            assert server.update(seq=publisher.publish(step=step).seq, timeout_s=30.0) == (True, "Success")
            assert real.differing(server.model, real.load(real.config_of(folder))) == []
        assert server.update(scrub=True) == (True, "Success")
        assert RANK.version == publisher.version


def test_experts_stay_what_they_were_where_nothing_could_be_opened(tmp_path: Path) -> None:
    server = real.Server(real.save(real.trainer_model("qwen3-moe"), tmp_path / "model"))
    before = real.bits(server.model)
    success, _ = server.update(socket=str(tmp_path / "nobody.sock"), open_timeout_s=0.2)
    assert not success
    assert same(before, real.bits(server.model))


def test_experts_stay_what_they_were_after_a_request_in_other_words_and_after_hanging_up(
    group: InsideGroup, tmp_path: Path
) -> None:
    trainer = CheckpointTrainer("qwen3-moe", tmp_path)
    server = real.Server(trainer.folder)
    before = real.bits(server.model)
    server.begin()
    success, _ = server.send([("model.norm.weight", torch.zeros(64))])
    server.end()
    assert not success
    assert same(before, real.bits(server.model))
    with Publisher(trainer.state, socket=group.socket("trainer-0")):
        for request in ({}, {"close": True}):
            assert server.update(socket=group.socket("eu-0"), open_timeout_s=30.0, **request) == (True, "Success")
            assert same(before, real.bits(server.model))
