"""verl's checkpoint engine `syncgroup`: verl's base class and registry, real models of transformers, real sidecars."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.import_utils import import_external_libs
from verl.workers.config import CheckpointEngineConfig

from sync_runtime import Subscriber
from sync_runtime.errors import LayoutError, LocalError
from sync_runtime.library.engines.transformers import engine_copy
from tests.engines.verl.pair import MODULE, Pair, engine, handed, same_bits, saved, train
from tests.support.following import follow
from tests.support.inside import InsideGroup
from tests.support.language_models import VOCABULARY, tiny_llama

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
    "initializer_range": 0.3,
}  # fmt: skip


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**_SIZES, tie_word_embeddings=False))  # type: ignore[no-untyped-call]


def mixture() -> Any:
    config = Qwen3MoeConfig(
        **_SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, tie_word_embeddings=False
    )
    return Qwen3MoeForCausalLM(config)  # type: ignore[no-untyped-call]


MODELS: dict[str, Callable[[], Any]] = {
    "llama, tied": tiny_llama, "llama": lambda: tiny_llama(tied=False), "qwen3": qwen3, "mixture of experts": mixture,
}  # fmt: skip


def test_verls_configuration_finds_the_engine_and_its_base_class_is_satisfied() -> None:
    config = CheckpointEngineConfig(backend="syncgroup", custom_backend_module=MODULE)
    import_external_libs(config.custom_backend_module)
    found = CheckpointEngineRegistry.get(config.backend)
    assert issubclass(found, CheckpointEngine)
    assert not inspect.isabstract(found)
    assert found.wire_format == "named_tensors"
    for name in ("prepare", "build_topology", "finalize", "send_weights", "receive_weights"):
        wanted = list(inspect.signature(getattr(CheckpointEngine, name)).parameters)
        assert list(inspect.signature(getattr(found, name)).parameters) == wanted


def test_of_workers_at_one_sidecar_the_first_follows_and_the_others_read() -> None:
    import_external_libs(MODULE)
    found = CheckpointEngineRegistry.get("syncgroup")
    said = [{"sidecar": place, "version": None, "copy": f"{place}{at}"} for at, place in enumerate("ttaba")]
    trainers, rollouts = found.build_topology(2, 3, said)
    assert {len(one) for one in trainers.values()} == {2}
    assert {len(one) for one in rollouts.values()} == {3}
    assert rollouts["source"] == [None, None, "a2"]
    assert len({*trainers["number"], *rollouts["number"]}) == 1
    with pytest.raises(LocalError, match=r"5 workers are prepared, not 2 \+ 4"):
        found.build_topology(2, 4, said)


def test_workers_at_one_sidecar_share_a_copy_and_get_the_same_bits(group: InsideGroup, checkpoint: Path) -> None:
    pair, model = Pair(group, checkpoint, beside=2), tiny_llama()
    for step in range(2):
        train(model, step)
        found = pair.update_all(handed(model).items(), step)
        assert len(found) == 3
        assert all(same_bits(one, handed(model)) for one in found)
    pair.rollouts[0].close()
    pair.rollout, pair.beside = pair.beside[0], pair.beside[1:]  # the first has gone: the next one follows
    train(model, 7)
    assert all(same_bits(one, handed(model)) for one in pair.update_all(handed(model).items(), 2))
    pair.close()


REFUSED = {
    "no folder": ({"checkpoint": "/nowhere"}, "a folder with safetensors files"),
    "a name on a hub": ({"checkpoint": "org/model"}, "a folder with safetensors files"),
    "a dtype": ({"wire_dtype": "int8"}, "wire_dtype is 'int8'"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_settings_that_cannot_be_are_one_sentence(
    case: tuple[dict[str, Any], str], group: InsideGroup, checkpoint: Path
) -> None:
    with pytest.raises(LayoutError, match=case[1]):
        engine(group, "eu-0", **{"checkpoint": checkpoint, **case[0]})


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_rollout_gets_the_bits_of_every_update(make: Callable[[], Any], group: InsideGroup, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = make()
    pair = Pair(group, saved(model, tmp_path / "made"))
    for step in range(3):
        if step:
            train(model, step)
        masters = handed(model)
        assert same_bits(pair.update(masters.items(), step), masters)
        assert pair.trainer.version == pair.rollout.version
        assert pair.trainer.version.step == step
    pair.close()


WIRES = {
    "fp32 as it is": (torch.float32, None, torch.float32),
    "fp32 as fp16": (torch.float32, "float16", torch.float16),
    "a checkpoint in bf16": (torch.bfloat16, None, torch.bfloat16),
}


@pytest.mark.parametrize("case", WIRES.values(), ids=WIRES)
def test_masters_in_fp32_travel_as_the_checkpoint_and_the_settings_say(
    case: tuple[torch.dtype, str | None, torch.dtype], group: InsideGroup, tmp_path: Path
) -> None:
    stored, wire, expected = case
    pair = Pair(group, saved(tiny_llama().to(stored), tmp_path / "made"), wire_dtype=wire)
    masters = tiny_llama(seed=3)
    found = pair.update(handed(masters).items(), 0)
    assert {one.dtype for one in found.values()} == {expected}
    assert same_bits(found, handed(masters))
    pair.close()


def test_workers_elsewhere_follow_the_same_versions_with_an_engine_of_theirs(pair: Pair, group: InsideGroup) -> None:
    model, live = tiny_llama(), engine_copy(tiny_llama(seed=9), torch.bfloat16)
    with Subscriber(live, engine="transformers", socket=group.socket("eu-1")) as elsewhere:
        for step in range(2):
            train(model, step)
            pair.update(handed(model).items(), step)
            follow(elsewhere, step + 1)
            assert same_bits(live.state_dict(), handed(model))


def test_an_update_without_news_is_a_version_all_the_same(pair: Pair) -> None:
    masters = handed(tiny_llama())
    for step in range(2):
        assert same_bits(pair.update(masters.items(), step), masters)
    assert pair.rollout.version.seq == 2


def test_updates_without_a_number_are_told_apart_too(pair: Pair) -> None:
    model = tiny_llama()
    for seed in range(3):
        train(model, seed)
        assert same_bits(pair.update(handed(model).items(), None), handed(model))


def test_signed_zeros_nan_payloads_and_views_arrive(group: InsideGroup, tmp_path: Path) -> None:
    model = tiny_llama(tied=False).to(torch.bfloat16)
    pair = Pair(group, saved(model, tmp_path / "made"))
    masters = handed(model)
    pair.update(masters.items(), 0)
    name = "model.layers.0.mlp.gate_proj.weight"
    bits = masters[name].view(torch.int16)
    bits[0, :4] = torch.tensor([-0x8000, 0, 0x7FC1, -0x0001], dtype=torch.int16)  # -0, +0, two NaNs
    masters[name] = masters[name].t().contiguous().t()
    assert not masters[name].is_contiguous()
    found = pair.update(masters.items(), 1)
    assert found[name].view(torch.int16)[0, :4].tolist() == [-0x8000, 0, 0x7FC1, -0x0001]
    assert same_bits(found, masters)
    masters[name] = masters[name].clone()
    masters[name].view(torch.int16)[0, 0] = 0  # from -0 to +0: no number has changed, a bit has
    assert same_bits(pair.update(masters.items(), 2), masters)
    pair.close()


def test_a_memory_that_verl_uses_again_for_the_next_tensor_does_no_harm(pair: Pair) -> None:
    model = tiny_llama()
    train(model, 1)
    masters = handed(model)
    shared = torch.empty(max(one.numel() for one in masters.values()))

    def bucket() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in masters.items():
            view = shared[: tensor.numel()].view(tensor.shape)
            view.copy_(tensor)
            yield name, view

    found = pair.update(bucket(), 1)
    shared.zero_()
    assert same_bits(found, masters)


def test_a_trainer_that_keeps_its_copy_elsewhere_publishes_the_same(group: InsideGroup, checkpoint: Path) -> None:
    pair, masters = Pair(group, checkpoint, device="cpu"), handed(tiny_llama())
    assert same_bits(pair.update(masters.items(), 0), masters)
    pair.close()
