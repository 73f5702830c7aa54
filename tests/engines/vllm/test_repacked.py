"""What vLLM does not keep as it was loaded: experts that are packed, weights that are computed. A dense path, exact."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.weight_utils import composed_weight_loader, default_weight_loader

from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import MappedEngine, Ranks
from sync_runtime.library.engines.vllm import SyncGroupInitInfo, mapped, repacked_modules
from tests.engines.vllm import real

pytestmark = pytest.mark.timeout(120)
NORM = "model.norm.weight"


def opened(folder: Path, *, computes: bool = False) -> tuple[torch.nn.Module, MappedEngine, object]:
    config = real.vllm_config(folder)
    model = real.load(config)
    if computes:
        _compute_the_norm(model)
    with set_current_vllm_config(config):
        return model, mapped(model, config.model_config, SyncGroupInitInfo(), Ranks()), config


def _compute_the_norm(model: torch.nn.Module) -> None:
    """As Mamba's decay is loaded: copied, then changed in place, by vLLM's own helper."""
    parameter = dict(model.named_parameters())[NORM]
    parameter.weight_loader = composed_weight_loader(default_weight_loader, lambda one: -torch.exp(one.float()))  # type: ignore[attr-defined]
    parameter.weight_loader(parameter, parameter.detach().clone())  # type: ignore[attr-defined]


def test_packed_experts_are_known_as_such(tmp_path: Path) -> None:
    model = real.load(real.vllm_config(real.save(real.trainer_model("qwen3-moe"), tmp_path)))
    found = list(repacked_modules(model))
    assert found
    assert all("experts" in path for path in found)


def test_a_dense_model_has_nothing_that_is_packed(tmp_path: Path) -> None:
    model = real.load(real.vllm_config(real.save(real.trainer_model("qwen3"), tmp_path)))
    assert list(repacked_modules(model)) == []


def test_a_computing_loader_gets_the_whole_tensor_and_computes_again(tmp_path: Path) -> None:
    folders = [real.save(real.trainer_model("llama", seed), tmp_path / str(seed)) for seed in (0, 1)]
    model, engine, config = opened(folders[0], computes=True)
    found = engine.tensors()
    second = {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folders[1]).items()}
    for name, tensor in second.items():
        found[name].copy_(tensor)
    with set_current_vllm_config(config):  # type: ignore[arg-type]
        engine.flush()
    live = dict(model.named_parameters())[NORM].detach()
    assert torch.equal(live, (-torch.exp(second[NORM].float())).to(live.dtype))
    other = real.load(real.vllm_config(folders[1]))
    assert real.differing(model, other) == [NORM]


def test_a_wrong_bit_in_packed_memory_shows_in_its_names(tmp_path: Path) -> None:
    folder = real.save(real.trainer_model("qwen3-moe"), tmp_path)
    model, engine, _ = opened(folder)
    path = next(iter(repacked_modules(model)))
    memory = next(model.get_submodule(path).parameters()).detach()
    memory.reshape(-1).view(torch.uint8)[0] ^= 1
    engine.reveal()
    stored = {name: checkpoint_files.read(one) for name, one in checkpoint_files.stored_in(folder).items()}
    wrong = [
        name
        for name, one in engine.tensors().items()
        if not torch.equal(one.view(torch.int16), stored[name].view(torch.int16))
    ]
    assert wrong
    assert all(".experts." in name for name in wrong)
