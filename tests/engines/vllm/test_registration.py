"""vLLM finds the plug-in by itself."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs in vLLM's own environment: make test-engines")

from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.plugins import load_general_plugins

from sync_runtime.library.engines.vllm import BACKEND, SyncGroupEngine, register
from tests.engines.vllm import real


def test_vllm_is_no_older_than_the_plug_in_says() -> None:
    assert tuple(int(part) for part in importlib.metadata.version("vllm").split(".")[:2]) >= (0, 32)


def test_the_wheel_carries_the_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="syncgroup")
    assert found.load() is register


def test_vllm_s_own_search_registers_the_backend() -> None:
    load_general_plugins()
    assert WeightTransferEngineFactory._registry[BACKEND]() is SyncGroupEngine


def test_registering_twice_is_no_error() -> None:
    register()
    register()


def test_the_factory_makes_an_engine_from_the_configuration(tmp_path: Path) -> None:
    register()
    config = real.vllm_config(real.save(real.trainer_model("llama"), tmp_path))
    model = real.load(config)
    made = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend=BACKEND), config, config.device_config.device, model
    )
    assert isinstance(made, SyncGroupEngine)
    assert isinstance(made, WeightTransferEngine)
    with pytest.raises(ValueError, match="init_info"):
        made.parse_init_info({"address": "elsewhere"})
