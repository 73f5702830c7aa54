"""The engine for DTensors: names, ties, and what is no weight. What several ranks do is in tests/component/ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.engines import dtensor
from sync_runtime.library.engines.placements import Axis
from sync_runtime.library.weights import Weights
from tests.support.language_models import tiny_llama
from tests.support.mesh_models import Net
from tests.support.one_rank_mesh import one_rank_mesh

pytestmark = pytest.mark.timeout(60)  # the first import of transformers


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_rank_mesh() as made:
        yield made


def test_a_sharded_module_has_the_layout_of_a_plain_one(mesh: DeviceMesh) -> None:
    model = Net()
    fully_shard(model, mesh=mesh)
    found = Weights(engines.attach("dtensor", model), torch.bfloat16)
    assert found.layout.document == Weights(engines.attach("module", Net()), torch.bfloat16).layout.document
    assert not found.places


def test_a_sharded_checkpoint_keeps_its_names(mesh: DeviceMesh) -> None:
    model = tiny_llama()
    fully_shard(model, mesh=mesh)
    engine = engines.attach("dtensor", model)
    assert engine.ties() == {"lm_head.weight": "model.embed_tokens.weight"}
    plain = Weights(engines.attach("transformers", tiny_llama()))
    assert Weights(engine).layout.document == plain.layout.document


def test_ties_do_not_hang_on_the_elements_that_a_rank_has(mesh: DeviceMesh) -> None:
    empty = DTensor.from_local(torch.zeros(0, 4), mesh, [Replicate()])
    engine = engines.attach("dtensor", {"b": empty, "a": empty, "c": torch.zeros(0, 4)})
    assert engine.ties() == {"b": "a"}
    assert list(engine.tensors()) == ["a", "c"]


def test_tensors_are_the_ranks_own_memory(mesh: DeviceMesh) -> None:
    model = Net()
    fully_shard(model, mesh=mesh)
    engine = engines.attach("dtensor", model)
    engine.tensors()["up.weight"].fill_(3.0)
    spread: Any = model.up.weight
    assert isinstance(spread, DTensor)
    assert bool((spread.full_tensor() == 3.0).all())
    assert not engine.tensors()["up.weight"].requires_grad


def test_gathered_weights_of_the_last_forward_pass_are_not_what_travels(mesh: DeviceMesh) -> None:
    model = Net()
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    before = {name: tensor.data_ptr() for name, tensor in engines.attach("dtensor", model).tensors().items()}
    model(torch.arange(3))
    assert {name: one.data_ptr() for name, one in engines.attach("dtensor", model).tensors().items()} == before


class Odd(torch.Tensor):
    """A subclass, as quantised weights are."""


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda mesh: DTensor.from_local(torch.ones(4), mesh, [Partial()]), "summands, not weights"),
        (lambda mesh: torch.ones(4).as_subclass(Odd), "is a Odd, whose memory"),
        (lambda mesh: torch.ones(4, device="meta"), "meta device"),
        (lambda mesh: DTensor.from_local(torch.ones(4, device="meta"), mesh, [Replicate()]), "meta device"),
        (lambda mesh: 3, "is a int"),
    ],
)
def test_what_is_no_weight_is_refused_with_a_sentence(mesh: DeviceMesh, make: Any, sentence: str) -> None:
    with pytest.raises(LayoutError, match=rf"'w'.*{sentence}"):
        Weights(engines.attach("dtensor", {"w": make(mesh)}))


def test_flat_parameters_and_other_things_are_refused() -> None:
    class FullyShardedDataParallel(torch.nn.Linear):
        """As the first generation of sharding calls its wrapper."""

    with pytest.raises(LayoutError, match="fully_shard"):
        engines.attach("dtensor", torch.nn.Sequential(FullyShardedDataParallel(2, 2)))
    with pytest.raises(LayoutError, match="not a list"):
        engines.attach("dtensor", [])


def test_the_plain_engine_names_this_one(mesh: DeviceMesh) -> None:
    with pytest.raises(LayoutError, match='engine="dtensor"'):
        engines.attach("module", {"w": DTensor.from_local(torch.ones(4), mesh, [Shard(0)])}).tensors()


def test_a_placement_says_who_cut_first() -> None:
    class Strided(Shard):
        split_factor = 2

    assert dtensor._axis("w", 4, Strided(1)) == Axis(4, 1, 2)
    assert dtensor._axis("w", 4, Shard(1)) == Axis(4, 1, 1)
    assert dtensor._axis("w", 4, Replicate()) == Axis(4)
