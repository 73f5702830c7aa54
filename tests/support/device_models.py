"""Tiny states for the coder `library` without a GPU: the interpreter of its kernels is slow."""

from __future__ import annotations

import torch

State = dict[str, torch.Tensor]


def tiny_state(seed: int = 0) -> State:
    """Two blocks that are small, one of another dtype."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(12, 24, generator=generator).to(torch.bfloat16),
        "b": torch.randn(7, generator=generator),
        "mask": torch.rand(3, generator=generator) > 0.5,
        "n": torch.tensor(3 + seed),
    }


def train(state: State, step: int) -> None:
    """Some elements of most tensors, others in every step."""
    state["w"].view(torch.int16)[step % 3 :: 3, step % 5 :: 5] += 1 + step
    state["b"][step % 7] += 1
    state["n"] += 1 << 33


def same_state(one: State, other: State) -> bool:
    """Whether two states are equal, bit for bit."""
    return all(
        torch.equal(tensor.reshape(-1).view(torch.uint8), other[name].reshape(-1).view(torch.uint8))
        for name, tensor in one.items()
    )
