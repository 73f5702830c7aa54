"""Maps of vLLM's own models: canonical names show the checkpoint, and what is written there is what vLLM would load."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

import torch
from safetensors.torch import save_file
from vllm.config import VllmConfig, set_current_vllm_config

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.engines.vllm import SyncGroupInitInfo, mapped
from tests.engines.vllm import real
from tests.support.loaders import bits

KINDS = sorted(real.CONFIGURATIONS)
pytestmark = pytest.mark.timeout(120)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folder).items()}


def opened(folder: Path) -> tuple[torch.nn.Module, MappedEngine, VllmConfig]:
    config = real.vllm_config(folder)
    model = real.load(config)
    with set_current_vllm_config(config):
        return model, mapped(model, config.model_config, SyncGroupInitInfo(), Ranks()), config


def write(engine: MappedEngine, folder: Path, config: VllmConfig) -> None:
    found = engine.tensors()
    for name, tensor in stored(folder).items():
        found[name].copy_(tensor)
    with set_current_vllm_config(config):
        engine.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_names_show_the_checkpoint_bit_for_bit(kind: str, tmp_path: Path) -> None:
    folder = real.save(real.trainer_model(kind), tmp_path)
    _, engine, _ = opened(folder)
    found, wanted = engine.tensors(), stored(folder)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(bits(found[name]), bits(wanted[name]))] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_is_written_is_what_vllm_would_have_loaded(kind: str, tmp_path: Path) -> None:
    folders = [real.save(real.trainer_model(kind, seed), tmp_path / str(seed)) for seed in (0, 1)]
    model, engine, config = opened(folders[0])
    write(engine, folders[1], config)
    assert real.differing(model, real.load(real.vllm_config(folders[1]))) == []
    engine.reveal()
    wanted = stored(folders[1])
    found = engine.tensors()
    assert [name for name in wanted if not torch.equal(bits(found[name]), bits(wanted[name]))] == []


@pytest.mark.parametrize("kind", ["llama", "qwen2-tied", "qwen3"])
def test_dense_models_are_changed_in_place_to_the_last_tensor(kind: str, tmp_path: Path) -> None:
    model, engine, _ = opened(real.save(real.trainer_model(kind), tmp_path))
    memory = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert {one.untyped_storage().data_ptr() for one in engine.tensors().values()} <= memory


def test_following_the_loader_writes_nothing(tmp_path: Path) -> None:
    folder = real.save(real.trainer_model("qwen3-moe"), tmp_path)
    config = real.vllm_config(folder)
    model = real.load(config)
    before = real.bits(model)
    with set_current_vllm_config(config):
        mapped(model, config.model_config, SyncGroupInitInfo(), Ranks())
    after = real.bits(model)
    assert before.keys() == after.keys()
    assert [name for name, one in before.items() if not torch.equal(one, after[name])] == []


def test_padded_rows_of_the_vocabulary_stay_zero(tmp_path: Path) -> None:
    folders = [real.save(real.trainer_model("llama-odd-vocabulary", seed), tmp_path / str(seed)) for seed in (0, 1)]
    model, engine, config = opened(folders[0])
    write(engine, folders[1], config)
    embedding = dict(model.named_parameters())["model.embed_tokens.weight"]
    assert embedding.shape[0] > 190
    assert not embedding[190:].any()


def test_an_engine_that_makes_one_of_what_the_checkpoint_has_twice_is_refused(tmp_path: Path) -> None:
    folder = real.save(real.trainer_model("qwen2-tied"), tmp_path)
    state = stored(folder)
    state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()  # vLLM sees that they are alike, and keeps one
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LayoutError, match="one memory"):
        opened(folder)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    config = real.vllm_config(real.save(real.trainer_model("llama"), tmp_path / "llama"))
    model = real.load(config)
    other = real.vllm_config(real.save(real.trainer_model("llama-odd-vocabulary"), tmp_path / "odd"))
    with set_current_vllm_config(config), pytest.raises(LayoutError, match="cannot be followed"):
        mapped(model, other.model_config, SyncGroupInitInfo(), Ranks())
