"""Tensors that are handed over one by one: whose memory is used again, that are views, tied, wrong or missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from sync_runtime.errors import LayoutError
from sync_runtime.library import engines
from sync_runtime.library.engines.fingerprints import bits_of
from sync_runtime.library.engines.handover import HandedEngine
from sync_runtime.library.engines.mapped import Content

WANTED = {
    "body.weight": ((3, 4), torch.bfloat16),
    "embed.weight": ((5, 4), torch.bfloat16),
    "scale": ((2,), torch.float32),
}
TIES = {"head.weight": "embed.weight"}


def made(device: str | None = None) -> HandedEngine:
    return HandedEngine(Content(WANTED, TIES), device)


def state(seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    found = {
        name: torch.randn(shape, generator=dice).to(torch.float32 if name == "scale" else dtype)
        for name, (shape, _) in WANTED.items()
    }
    return {**found, "head.weight": found["embed.weight"]}


def hand_over(engine: HandedEngine, tensors: dict[str, torch.Tensor]) -> None:
    engine.begin()
    for name, tensor in tensors.items():
        engine.take(name, tensor)
    engine.check_complete()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(bits_of(one.contiguous()), bits_of(other.contiguous()))


def test_what_is_kept_is_what_was_handed_over_under_all_its_names() -> None:
    engine, given_over = made(), state()
    hand_over(engine, given_over)
    kept = dict(engine.items())
    assert kept.keys() == given_over.keys()
    assert engine.tensors().keys() == WANTED.keys()
    assert all(same(kept[name], one) for name, one in given_over.items())


@given(some.lists(some.integers(0, 0xFFFF), min_size=12, max_size=12))
def test_every_pattern_of_bits_is_kept(patterns: list[int]) -> None:
    engine, tensors = made(), state()
    bits = torch.tensor(patterns, dtype=torch.int32).to(torch.int16).reshape(3, 4)
    tensors["body.weight"] = bits.view(torch.bfloat16)
    hand_over(engine, tensors)
    assert torch.equal(bits_of(engine.tensors()["body.weight"]), bits)


def test_a_memory_that_the_next_tensor_uses_again_does_no_harm() -> None:
    engine, tensors = made(), state()
    shared = torch.empty(20, dtype=torch.bfloat16)

    def reused() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in tensors.items():
            if tensor.dtype == torch.float32:
                yield name, tensor
            else:
                view = shared[: tensor.numel()].view(tensor.shape)
                view.copy_(tensor)
                yield name, view

    engine.begin()
    for name, tensor in reused():
        engine.take(name, tensor)
    engine.check_complete()
    assert all(same(one, tensors[name]) for name, one in engine.items())


def test_tensors_that_are_not_contiguous_and_masters_are_kept_as_they_travel() -> None:
    engine, masters = made(), state(dtype=torch.float32)
    masters["body.weight"] = masters["body.weight"].t().contiguous().t()
    masters["body.weight"][0, 0] = -0.0
    assert not masters["body.weight"].is_contiguous()
    hand_over(engine, {name: one.requires_grad_() for name, one in masters.items()})
    assert all(same(one, masters[name].detach().to(one.dtype)) for name, one in engine.items())
    assert not any(one.requires_grad for one in engine.tensors().values())
    assert bits_of(engine.tensors()["body.weight"])[0, 0] == -0x8000


def test_the_same_memory_is_used_in_every_round() -> None:
    engine = made()
    hand_over(engine, state(0))
    first = {name: one.data_ptr() for name, one in engine.tensors().items()}
    hand_over(engine, state(1))
    assert {name: one.data_ptr() for name, one in engine.tensors().items()} == first
    assert all(same(one, state(1)[name]) for name, one in engine.items())


REFUSED = {
    "a part": ("body.weight", torch.zeros(1, 4, dtype=torch.bfloat16), r"\[1, 4\].*whole"),
    "another dtype": ("body.weight", torch.zeros(3, 4, dtype=torch.float16), "float16.*travels as torch.bfloat16"),
    "a narrower dtype": ("scale", torch.zeros(2, dtype=torch.bfloat16), "travels as torch.float32"),
    "an adapter": ("body.lora_A.weight", torch.zeros(1, 4), "no such tensor: merge adapters"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_does_not_belong_to_the_checkpoint_is_refused(case: tuple[str, torch.Tensor, str]) -> None:
    engine = made()
    with pytest.raises(LayoutError, match=case[2]):
        engine.take(case[0], case[1])


def test_names_of_one_tensor_must_have_one_content_whichever_comes_first() -> None:
    for order in (["embed.weight", "head.weight"], ["head.weight", "embed.weight"]):
        engine, tensors = made(), state()
        engine.begin()
        engine.take(order[0], tensors["embed.weight"])
        engine.take(order[1], tensors["embed.weight"].float())
        other = tensors["embed.weight"].clone()
        other[0, 0] = -other[0, 0]
        with pytest.raises(LayoutError, match="they are one tensor"):
            engine.take(order[1], other)


def test_a_tensor_that_is_missing_is_named_in_every_round() -> None:
    engine, tensors = made(), state()
    with pytest.raises(LayoutError, match="nothing was handed over yet"):
        engine.tensors()
    hand_over(engine, tensors)
    del tensors["scale"]
    with pytest.raises(LayoutError, match=r"'scale'.*not handed over; 1 are missing"):
        hand_over(engine, tensors)


def test_first_elements_come_from_the_checkpoint_as_they_would_travel() -> None:
    engine, stored = made(), state(dtype=torch.float32)
    engine.fill(lambda name: None if name == "scale" else stored[name])
    assert same(engine.tensors()["body.weight"], stored["body.weight"].to(torch.bfloat16))
    assert not bits_of(engine.tensors()["scale"]).any()


def test_a_model_is_no_handover() -> None:
    with pytest.raises(LayoutError, match="hands nothing over"):
        engines.attach("handover", torch.nn.Linear(2, 2))
