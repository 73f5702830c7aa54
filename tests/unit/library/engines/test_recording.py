"""A loader is followed on tensors without memory, and the model stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines.loadplan import make_plan
from sync_runtime.library.engines.recording import record, state_of
from tests.support.loaders import Fused, checkpoint, plan_of, same, wanted_of

Weights = Iterable[tuple[str, torch.Tensor]]
F32 = torch.float32


class One(torch.nn.Module):
    """One parameter, one loader."""

    def __init__(self, load: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.load = getattr(self, load)

    def slices(self, weights: Weights) -> None:
        for _, weight in weights:
            self.weight.data[1:] = weight.chunk(2, 0)[1].contiguous().to("cpu").detach().clone()

    def keeps(self, weights: Weights) -> None:
        spare = torch.empty(2, 3)
        for _, weight in weights:
            spare.copy_(weight)
        self.weight.data.copy_(spare)

    def joins(self, weights: Weights) -> None:
        self.weight.data.copy_(torch.cat([weight for _, weight in weights]))

    def doubles(self, weights: Weights) -> None:
        for _, weight in weights:
            weight.mul_(2)
            self.weight.data.copy_(weight)

    def looks(self, weights: Weights) -> None:
        for name, weight in weights:
            if name == "b" and weight.sum() > 0:
                continue
            self.weight.data.copy_(weight)

    def replaces(self, weights: Weights) -> None:
        for _, weight in weights:
            self.weight.data = weight

    def zeroes(self, weights: Weights) -> None:
        self.weight.data.zero_()
        for _, weight in weights:
            self.weight.data[:, :2].copy_(weight[:, :2])


def test_nothing_is_written_while_a_loader_is_followed() -> None:
    model, before = Fused(), Fused()
    for one in (model, before):
        one.load_weights(checkpoint().items())
    plan_of(model, checkpoint())
    assert same(model, before)


def test_a_plan_sorts_what_is_copied_moved_computed_and_left() -> None:
    plan = plan_of(Fused(), checkpoint())
    assert set(plan.direct) == {
        "q.weight",
        "k.weight",
        "v.weight",
        "q.bias",
        "k.bias",
        "v.bias",
        "o.weight",
        "norm.weight",
    }
    assert set(plan.replayed) == {"embed.weight", "router.weight"}  # twice in the engine; in another dtype
    assert plan.reloaded == {"decay": ("decay.weight",)}
    assert plan.aside == {"extra.weight"}


def test_slices_are_followed_through_copies_to_other_places() -> None:
    model = One("slices")
    (copy,) = record(model, model.load, {"a": ((2, 3), F32)}).copies
    assert (copy.source.offset, copy.target.offset) == (3, 3)


@pytest.mark.parametrize("load", ["joins", "doubles"])
def test_what_is_computed_is_no_copy(load: str) -> None:
    model = One(load)
    shape = (1, 3) if load == "joins" else (2, 3)
    found = record(model, model.load, {"a": (shape, F32), "b": (shape, F32)})
    assert not found.copies
    assert found.computed == {"weight": {"a", "b"}}


def test_memory_that_was_filled_under_a_copy_is_computed() -> None:
    model = One("zeroes")
    assert record(model, model.load, {"a": ((2, 3), F32)}).computed == {"weight": {"a"}}


def test_a_cast_by_the_loader_is_computed_and_one_to_the_same_dtype_is_nothing() -> None:
    model = One("slices")
    model.load = lambda weights: [model.weight.data.copy_(weight.to(torch.float16).float()) for _, weight in weights]
    assert record(model, model.load, {"a": ((2, 3), F32)}).computed == {"weight": {"a"}}
    model.load = lambda weights: [model.weight.data.copy_(weight.float()) for _, weight in weights]
    assert len(record(model, model.load, {"a": ((2, 3), F32)}).copies) == 1


@pytest.mark.parametrize(
    ("load", "why"), [("keeps", "no parameter"), ("replaces", "incompatible"), ("looks", "meta tensors")]
)
def test_a_loader_that_cannot_be_followed_is_refused_by_name(load: str, why: str) -> None:
    model = One(load)
    wanted = {"b": ((2, 3), F32)}
    with pytest.raises(LayoutError, match=why):
        make_plan(record(model, model.load, wanted), wanted, {"weight": F32})
    assert torch.equal(model.weight, torch.arange(6.0).reshape(2, 3))


def test_a_name_that_fails_does_not_hide_the_others() -> None:
    model = One("looks")
    found = record(model, model.load, {"a": ((2, 3), F32), "b": ((2, 3), F32), "c": ((2, 3), F32)})
    assert [copy.name for copy in found.copies] == ["a", "c"]
    assert list(found.lost) == ["b"]


def test_two_names_in_one_memory_are_refused() -> None:
    model = One("slices")
    wanted = {"a": ((2, 3), F32), "b": ((2, 3), F32)}
    with pytest.raises(LayoutError, match="one memory"):
        make_plan(record(model, model.load, wanted), wanted, {name: one.dtype for name, one in state_of(model)},
                  whole_below=0)  # fmt: skip


def test_a_checkpoint_of_other_shapes_is_refused_before_anything_is_opened() -> None:
    state = checkpoint()
    state["o.weight"] = torch.zeros(3, 3)
    model = Fused()
    with pytest.raises(LayoutError, match=r"o\.weight"):
        make_plan(record(model, model.load_weights, wanted_of(state)), wanted_of(state), {})
