"""What every engine promises, for each that can be attached here; others are held to it in their own environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.streams import state_chunks
from sync_runtime.library.weights import Weights
from tests.support.language_models import tiny_llama
from tests.support.mesh_models import Net
from tests.support.one_rank_mesh import one_rank_mesh

pytestmark = pytest.mark.timeout(60)  # the first import of transformers
AWKWARD = (0x80000000, 0x00000000, 0x7F800001, 0xFFC00000, 0x00000001)
"""Signed zeros, NaNs that differ in sign and payload, the smallest number."""


def sharded(mesh: DeviceMesh) -> torch.nn.Module:
    model = Net()
    fully_shard(model, mesh=mesh)
    return model


MODELS: Mapping[str, Callable[[DeviceMesh], torch.nn.Module]] = {
    "dtensor": sharded,
    "module": lambda mesh: Net(),
    "transformers": lambda mesh: tiny_llama(),
    "trl": sharded,
}


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_rank_mesh() as made:
        yield made


# What is handed over is copied, so it is no model's memory: engines/test_handover.py says what holds there.
@pytest.fixture(params=sorted(engines.ENGINES.keys() - {"handover"}))
def attached(request: pytest.FixtureRequest, mesh: DeviceMesh) -> tuple[torch.nn.Module, engines.Engine]:
    if request.param not in MODELS:
        pytest.skip(f"engine {request.param!r} has an environment of its own")
    model = MODELS[request.param](mesh)
    return model, engines.attach(request.param, model)


Attached = tuple[torch.nn.Module, engines.Engine]


def test_every_name_of_the_state_is_a_tensor_or_leads_to_one(attached: Attached) -> None:
    model, engine = attached
    tensors, ties = engine.tensors(), engine.ties()
    assert set(ties.values()) <= tensors.keys()
    assert not ties.keys() & tensors.keys()
    assert tensors.keys() | ties.keys() == model.state_dict().keys()
    assert ties, "the models here have tied weights"


def test_two_looks_agree(attached: Attached) -> None:
    _, engine = attached
    first, second = engine.tensors(), engine.tensors()
    assert list(first) == list(second)
    assert all(first[name].data_ptr() == second[name].data_ptr() for name in first)
    assert Weights(engine).layout.hash == Weights(engine).layout.hash


def test_tensors_are_the_models_memory_without_its_gradients(attached: Attached) -> None:
    model, engine = attached
    name, tensor = next((name, one) for name, one in engine.tensors().items() if one.dim() > 1)
    assert not tensor.requires_grad
    tensor.fill_(0.25)
    held: Any = model.state_dict()[name]
    assert bool((getattr(held, "full_tensor", lambda: held)() == 0.25).all())


def test_raw_bits_travel(attached: Attached) -> None:
    _, engine = attached
    weights = Weights(engine)
    name, tensor = next((name, one) for name, one in engine.tensors().items() if one.dim() > 1)
    bits = torch.tensor(AWKWARD, dtype=torch.int64).to(torch.int32)
    tensor.view(torch.int32).reshape(-1)[: bits.numel()] = bits
    before = sum(
        one.numel * one.dtype.width_bytes for one in weights.layout.tensors if one.name.encode() < name.encode()
    )
    state = b"".join(bytes(chunk) for chunk in state_chunks(weights))
    assert state[before : before + 4 * bits.numel()] == bits.numpy().tobytes()


def test_a_state_is_spread_nowhere_where_one_rank_has_it_all(attached: Attached) -> None:
    _, engine = attached
    assert len(Weights(engine).holding.counted) == Weights(engine).blocks.num_blocks


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(LayoutError):
        engines.attach(name, 7)
