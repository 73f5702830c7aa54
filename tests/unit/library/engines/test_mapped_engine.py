"""An engine's memory under canonical names: views and shadows, alone and in several ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.cuts import CutEngine
from sync_runtime.library.engines.mapped import Content, MappedEngine
from sync_runtime.library.engines.module import ModuleEngine
from sync_runtime.library.weights import Weights
from tests.support.loaders import (
    Fused,
    bits,
    checkpoint,
    engine_of,
    engines_of,
    plan_of,
    same,
    wanted_of,
)


def loaded(seed: int = 0, rank: int = 0, ranks: int = 1) -> Fused:
    model = Fused(rank, ranks)
    model.load_weights(checkpoint(seed).items())
    return model


def write(engine: MappedEngine, seed: int) -> None:
    """As a version is written: into whatever the engine gives for a name."""
    state, shards = checkpoint(seed), engine.shards()
    for name, tensor in engine.tensors().items():
        shard = shards.get(name)
        if shard is None:
            tensor.copy_(state[name])
        elif tensor.numel():
            (row, col), (rows, cols) = shard.start, tensor.shape
            tensor.copy_(state[name][row : row + rows, col : col + cols])


def test_names_show_the_checkpoint_that_the_engine_was_loaded_from() -> None:
    found = engine_of(loaded(), checkpoint()).tensors()
    assert all(torch.equal(bits(found[name]), bits(tensor)) for name, tensor in checkpoint().items())


def test_a_version_that_is_written_is_what_the_loader_would_have_made() -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    write(engine, 1)
    engine.flush()
    assert same(model, loaded(1))


def test_tensors_that_only_shadows_have_are_invisible_before_the_flush() -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    engine.tensors()["embed.weight"].zero_()
    engine.tensors()["decay.weight"].zero_()
    assert same(model, loaded())


def test_a_flush_that_was_interrupted_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    write(engine, 1)

    def failing(_: object) -> None:
        raise RuntimeError("no memory left")

    with monkeypatch.context() as broken:
        broken.setattr(model, "load_weights", failing)
        with pytest.raises(RuntimeError, match="no memory"):
            engine.flush()
    assert not same(model, loaded(1))
    engine.flush()
    assert same(model, loaded(1))


@pytest.mark.parametrize("name", ["q.bias", "embed.weight", "router.weight", "decay.weight"])
def test_a_wrong_bit_in_the_engine_shows_under_its_name(name: str) -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    memory = {"q.bias": model.qkv.bias, "embed.weight": model.head.weight, "router.weight": model.router.weight,
              "decay.weight": model.decay.weight}[name]  # fmt: skip
    memory.data.reshape(-1).view(torch.uint8)[0] ^= 1
    engine.reveal()
    wrong = [one for one, tensor in engine.tensors().items() if not torch.equal(bits(tensor), bits(checkpoint()[one]))]
    assert wrong == [name]


def test_right_memory_shows_right_however_often_one_looks() -> None:
    engine = engine_of(loaded(), checkpoint())
    for _ in range(2):
        engine.reveal()
        assert all(torch.equal(bits(tensor), bits(checkpoint()[name])) for name, tensor in engine.tensors().items())


def test_signed_zeros_and_nan_payloads_go_through_shadows_unchanged() -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    odd = torch.tensor([0x8000, 0x7FC1, 0xFFC2], dtype=torch.uint16).view(torch.int16)
    engine.tensors()["embed.weight"].view(torch.int16)[0, :3] = odd
    engine.tensors()["q.weight"].view(torch.int16)[0, :3] = odd
    engine.flush()
    for live in (model.embed.weight, model.head.weight, model.qkv.weight):
        assert torch.equal(live.detach().view(torch.int16)[0, :3], odd)
    engine.reveal()
    assert torch.equal(engine.tensors()["embed.weight"].view(torch.int16)[0, :3], odd)


def test_a_parameter_that_was_replaced_by_another_shape_is_an_error_that_names_it() -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    model.qkv.weight = torch.nn.Parameter(model.qkv.weight.detach().t().contiguous(), requires_grad=False)
    with pytest.raises(LayoutError, match=r"qkv\.weight"):
        engine.tensors()


def test_a_parameter_that_lies_elsewhere_now_is_found_there() -> None:
    model = loaded()
    engine = engine_of(model, checkpoint())
    engine.tensors()
    model.qkv.weight.data = model.qkv.weight.data.clone()
    engine.tensors()["q.weight"].zero_()
    assert not model.qkv.weight[0].any()


def test_an_engine_that_reloads_wrongly_is_refused_and_left_as_it_was() -> None:
    model = loaded()
    state = checkpoint()
    state["decay.weight"] = state["decay.weight"] + 1  # not what the engine was loaded from
    with pytest.raises(LayoutError, match="does not become what it was"):
        engine_of(model, state)
    assert same(model, loaded())


def test_a_computed_tensor_that_is_in_no_checkpoint_is_refused() -> None:
    state, model = checkpoint(), loaded()
    plan, content = plan_of(model, state), Content(wanted_of(state), {})

    def reload(_: object, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        model.load_weights(tensors)

    with pytest.raises(LayoutError, match="no checkpoint"):
        MappedEngine(model, plan, content, reload=reload)
    with pytest.raises(LayoutError, match="nobody can load it again"):
        MappedEngine(model, plan, content)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_hold_rectangles_and_small_tensors_whole(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    monkeypatch.setattr("sync_runtime.tensors.layout.SMALL_ELEMENTS", 20)
    models = [loaded(0, rank, ranks) for rank in range(ranks)]
    engines = engines_of(models, 20)
    for engine in engines:
        found = engine.tensors()
        assert torch.equal(bits(found["q.bias"]), bits(checkpoint()["q.bias"]))  # one rank has a part of it
        write(engine, 1)
        engine.flush()
    for rank, model in enumerate(models):
        assert same(model, loaded(1, rank, ranks))


def test_every_block_is_counted_by_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.tensors.layout.SMALL_ELEMENTS", 20)
    models = [loaded(0, rank, 2) for rank in range(2)]
    held = [Weights(engine, rank=rank, world_size=2) for rank, engine in enumerate(engines_of(models, 20))]
    assert held[0].layout == held[1].layout
    counted = sorted(number for weights in held for number in weights.holding.counted)
    assert counted == list(range(held[0].blocks.num_blocks))


def test_a_trainer_that_cuts_alike_has_the_same_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.tensors.layout.SMALL_ELEMENTS", 20)
    models = [loaded(0, rank, 2) for rank in range(2)]
    engine = engines_of(models, 20)[0]
    cut = CutEngine(ModuleEngine(checkpoint()), 2)
    assert Weights(cut).layout == Weights(engine, rank=0, world_size=2).layout
