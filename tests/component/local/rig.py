"""Small weights, and what tests of the library wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from sync_runtime.library.subscriber import Subscriber
from tests.support.local import ServerThread
from tests.support.toy_sidecar import Member, ToySidecar

Pair = tuple[ToySidecar, ServerThread]


def small_state(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {
        "b.weight": torch.randn(64, 33).to(torch.bfloat16), "a.bias": torch.randn(7), "n": torch.tensor(3),
        "mask": torch.tensor([True, False]), "empty": torch.zeros(0, 4), "t": torch.randn(12, 5).T,
    }  # fmt: skip


def copy_of(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def train(state: dict[str, torch.Tensor]) -> None:
    state["b.weight"].view(torch.int16).view(-1)[::50] += 3
    state["a.bias"][2] += 1
    state["t"][1, ::3] *= -1
    state["n"] += 1 << 33
    state["mask"].logical_not_()


def waited(subscriber: Subscriber, **wanted: Any) -> Any:
    found = subscriber.wait(timeout=5.0, **wanted)
    assert found is not None
    return found


def eventually(holds: Callable[[], bool]) -> None:
    """What the other end does a moment later."""
    deadline = time.monotonic() + 5.0
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def member_of(sidecar: ToySidecar) -> Member:
    return next(iter(sidecar.members.values()))
