"""What vLLM does not keep as it was loaded: swapped experts, computed weights. Their dense path is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.weight_utils import composed_weight_loader, default_weight_loader

from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.engines.vllm import SyncGroupInitInfo, mapped, repacked_modules
from tests.engines.vllm import real
from tests.support.loaders import bits

pytestmark = pytest.mark.timeout(120)
NORM = "model.norm.weight"
SWAPPED = "FLASHINFER_CUTLASS"
"""A kernel that wants the halves of gate and up the other way round: a layout of the same shape."""


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folder).items()}


def opened(model: torch.nn.Module, config: VllmConfig) -> MappedEngine:
    with set_current_vllm_config(config):
        return mapped(model, config.model_config, SyncGroupInitInfo(), Ranks())


def write(engine: MappedEngine, folder: Path, config: VllmConfig) -> None:
    found = engine.tensors()
    for name, tensor in stored(folder).items():
        found[name].copy_(tensor)
    with set_current_vllm_config(config):
        engine.flush()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [real.save(real.trainer_model("qwen3-moe", seed), tmp_path / str(seed)) for seed in (0, 1)]


def test_repacked_experts_are_known_as_such(folders: list[Path]) -> None:
    found = list(repacked_modules(real.load(real.vllm_config(folders[0]), SWAPPED)))
    assert found
    assert all("experts" in path for path in found)
    assert list(repacked_modules(real.load(real.vllm_config(folders[0])))) == []


def test_repacked_experts_become_what_vllm_would_have_loaded(folders: list[Path]) -> None:
    config = real.vllm_config(folders[0])
    model = real.load(config, SWAPPED)
    engine = opened(model, config)
    before = {name: one.data_ptr() for name, one in model.named_parameters()}
    write(engine, folders[1], config)
    assert real.differing(model, real.load(real.vllm_config(folders[1]), SWAPPED)) == []
    assert before == {name: one.data_ptr() for name, one in model.named_parameters()}  # captured graphs go on


def test_a_wrong_bit_in_repacked_memory_shows_in_its_names_alone(folders: list[Path]) -> None:
    config = real.vllm_config(folders[0])
    model = real.load(config, SWAPPED)
    engine = opened(model, config)
    path = next(path for path in repacked_modules(model) if list(model.get_submodule(path).parameters()))
    next(model.get_submodule(path).parameters()).detach().view(torch.int16).reshape(-1)[0] ^= 1
    engine.reveal()
    found = engine.tensors()
    wrong = [name for name, one in stored(folders[0]).items() if not torch.equal(bits(found[name]), bits(one))]
    assert wrong
    assert all(".layers.0.mlp.experts." in name for name in wrong)


def test_a_computing_loader_gets_the_whole_tensor_and_computes_again(tmp_path: Path) -> None:
    first, second = (real.save(real.trainer_model("llama", seed), tmp_path / str(seed)) for seed in (0, 1))
    config = real.vllm_config(first)
    model = real.load(config)
    _compute_the_norm(model)
    write(opened(model, config), second, config)
    live = dict(model.named_parameters())[NORM].detach()
    assert torch.equal(live, (-torch.exp(stored(second)[NORM].float())).to(live.dtype))
    assert real.differing(model, real.load(real.vllm_config(second))) == [NORM]


def _compute_the_norm(model: torch.nn.Module) -> None:
    """As Mamba's decay is loaded: copied, then changed in place, by vLLM's own helper."""
    loader = composed_weight_loader(default_weight_loader, lambda one: -torch.exp(one.float()))
    parameter = dict(model.named_parameters())[NORM]
    remembered = get_layerwise_info(model.get_submodule("model.norm")).restore_metadata[0]["weight"]
    for one in (parameter, remembered):
        setattr(one, "weight_loader", loader)  # noqa: B010 an attribute that vLLM gives to parameters
    loader(parameter, parameter.detach().clone())
