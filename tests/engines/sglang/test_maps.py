"""Maps of SGLang's own models: canonical names show the checkpoint; what is written there is what SGLang would load."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sglang", reason="runs in SGLang's own environment: make test-engines")

import torch
from sglang.srt.runtime_context import get_exec, get_spec

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.engines.sglang import Request, mapped
from tests.engines.sglang import real
from tests.support.loaders import bits

KINDS = sorted(real.CONFIGURATIONS)
pytestmark = pytest.mark.timeout(120)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folder).items()}


def opened(folder: Path) -> tuple[torch.nn.Module, MappedEngine]:
    config = real.config_of(folder)
    model = real.load(config)
    return model, mapped(model, config, Request(), Ranks(), lambda: None)


def write(engine: MappedEngine, folder: Path) -> None:
    found = engine.tensors()
    for name, tensor in stored(folder).items():
        found[name].copy_(tensor)
    engine.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_names_show_the_checkpoint_bit_for_bit(kind: str, tmp_path: Path) -> None:
    folder = real.save(real.trainer_model(kind), tmp_path)
    _, engine = opened(folder)
    found, wanted = engine.tensors(), stored(folder)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(bits(found[name]), bits(wanted[name]))] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_is_written_is_what_sglang_would_have_loaded(kind: str, tmp_path: Path) -> None:
    folders = [real.save(real.trainer_model(kind, seed), tmp_path / str(seed)) for seed in (0, 1)]
    model, engine = opened(folders[0])
    write(engine, folders[1])
    assert real.differing(model, real.load(real.config_of(folders[1]))) == []
    engine.reveal()
    wanted, found = stored(folders[1]), engine.tensors()
    assert [name for name in wanted if not torch.equal(bits(found[name]), bits(wanted[name]))] == []


@pytest.mark.parametrize("kind", ["llama", "qwen2-tied", "qwen3", "qwen3-moe"])
def test_plain_models_are_changed_in_place_to_the_last_tensor(kind: str, tmp_path: Path) -> None:
    model, engine = opened(real.save(real.trainer_model(kind), tmp_path))
    memory = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert {one.untyped_storage().data_ptr() for one in engine.tensors().values()} <= memory


def test_following_the_loader_writes_nothing(tmp_path: Path) -> None:
    folder = real.save(real.trainer_model("qwen3-moe"), tmp_path)
    config = real.config_of(folder)
    model = real.load(config)
    before = real.bits(model)
    mapped(model, config, Request(), Ranks(), lambda: None)
    after = real.bits(model)
    assert before.keys() == after.keys()
    assert [name for name, one in before.items() if not torch.equal(one, after[name])] == []


def test_padded_rows_of_the_vocabulary_stay_zero(tmp_path: Path) -> None:
    folders = [real.save(real.trainer_model("llama-odd-vocabulary", seed), tmp_path / str(seed)) for seed in (0, 1)]
    model, engine = opened(folders[0])
    write(engine, folders[1])
    embedding = dict(model.named_parameters())["model.embed_tokens.weight"]
    assert embedding.shape[0] > 190
    assert not embedding[190:].any()


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    model = real.load(real.config_of(real.save(real.trainer_model("llama"), tmp_path / "llama")))
    other = real.config_of(real.save(real.trainer_model("llama-odd-vocabulary"), tmp_path / "odd"))
    with pytest.raises(LayoutError, match="cannot be followed"):
        mapped(model, other, Request(), Ranks(), lambda: None)


def test_what_an_update_of_parameters_does_not_reach_is_refused(tmp_path: Path) -> None:
    folder = real.save(real.trainer_model("llama"), tmp_path)
    config = real.config_of(folder)
    model = real.load(config)

    def refused(match: str) -> None:
        with pytest.raises(LayoutError, match=match):
            mapped(model, config, Request(), Ranks(), lambda: None)

    with get_spec().override(speculative_algorithm="EAGLE"):
        refused("draft")
    with get_exec().moe.override(enable_eplb=True):
        refused("EPLB")
    model.post_load_weights = lambda: None  # type: ignore[assignment]
    refused("derived")


def test_a_name_on_a_hub_needs_the_trainer_s_layout(tmp_path: Path) -> None:
    model = real.load(real.config_of(real.save(real.trainer_model("llama"), tmp_path)))
    config = SimpleNamespace(model_path="organisation/model", dtype=torch.bfloat16, hf_config=SimpleNamespace())
    with pytest.raises(LayoutError, match="layout"):
        mapped(model, config, Request(), Ranks(), lambda: None)
