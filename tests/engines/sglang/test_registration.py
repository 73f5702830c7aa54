"""SGLang finds the plug-in by itself, and its hooks answer where the server would have ended."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

pytest.importorskip("sglang", reason="runs in SGLang's own environment: make test-engines")

import torch
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.utils import dynamic_import

from sync_runtime.errors import LocalError
from sync_runtime.library.engines import sglang as plugin
from tests.engines.sglang import real

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server(tmp_path: Path) -> real.Server:
    return real.Server(real.save(real.trainer_model("llama"), tmp_path))


def test_sglang_is_no_older_than_the_plug_in_says() -> None:
    parts = importlib.metadata.version("sglang").split(".")[:3]
    assert tuple(int(part) for part in parts) >= (0, 5, 21)


def test_the_wheel_carries_the_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="sglang.srt.plugins", name="syncgroup")
    assert found.load() is plugin.register


def test_sglang_s_own_search_applies_the_hooks() -> None:
    for name in ("begin_weight_update", "update_weights_from_tensor", "end_weight_update"):
        assert f"{plugin._UPDATER}.{name}" in HookRegistry._patched
        assert hasattr(getattr(WeightUpdater, name), "__wrapped__")


def test_registering_twice_is_no_error_and_changes_nothing() -> None:
    before = {target: len(hooks) for target, hooks in HookRegistry._hooks.items()}
    plugin.register()
    assert before == {target: len(hooks) for target, hooks in HookRegistry._hooks.items()}


def test_the_loader_s_name_is_where_sglang_looks_for_it() -> None:
    assert dynamic_import(plugin.LOADER) is plugin.apply


def test_a_request_survives_sglang_s_own_serializer(server: real.Server) -> None:
    asked = plugin.Request(seq=3, timeout_s=0.5, scrub=True)
    found = server.manager.tp_worker.deserialize_own_rank([real.serialized(asked.named_tensors())])
    assert plugin.Request.read(found) == asked
    assert plugin.Request.read([]) == plugin.Request()


@pytest.mark.parametrize("text", ["model.norm.weight", "[]", '{"sequence": 1}', "7"])
def test_another_request_is_refused_with_the_words_that_there_are(text: str) -> None:
    with pytest.raises(LocalError, match="patience_s"):
        plugin.Request.read([(text, torch.empty(0))])


def test_a_loader_without_its_hooks_changes_nothing_and_raises_nothing(
    server: real.Server, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.apply(server.model, [])
    assert "SGLANG_PLUGINS" in caplog.text


def test_a_server_that_was_started_without_the_loader_says_how_to_start_it(server: real.Server) -> None:
    ((_, runner),) = server.manager.tp_worker.weight_update_runners()
    runner.weight_updater.custom_weight_loaders.clear()
    success, message = server.update()
    assert not success
    assert "--custom-weight-loader" in message


def test_updates_of_others_are_left_alone(server: real.Server) -> None:
    name, wanted = "model.norm.weight", torch.full((64,), 3.0, dtype=torch.bfloat16)
    server.begin()
    success, _ = server.send([(name, wanted)], "direct")
    server.end()
    assert success
    assert torch.equal(dict(server.model.named_parameters())[name], wanted)
