"""Small models for tests: made alike everywhere, changed a little, compared by their bits."""

from __future__ import annotations

import torch


def small_model(seed: int = 0) -> torch.nn.Module:
    """A bf16 model with a large tensor, small ones, and a buffer."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 300), torch.nn.LayerNorm(300), torch.nn.ReLU(), torch.nn.Linear(300, 16)
    ).bfloat16()
    model.register_buffer("scale", torch.ones(3))
    return model


def nudge(model: torch.nn.Module, seed: int, share: float = 0.02) -> None:
    """Changes about a share of all elements, as a step does."""
    generator = torch.Generator().manual_seed(seed + 1000)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 0.1
            chosen = torch.rand(parameter.shape, generator=generator) < share
            parameter.add_(noise * chosen)


def same_bits(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two models are equal, bit for bit."""
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(_bytes(value), _bytes(theirs[name])) for name, value in mine.items()
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
