"""A synthetic 7.6e9-element policy and an Adam-like update of it, made on the GPU; and how long work takes there."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.sections import Section, sections_of
from sync_runtime.tensors.layout import Layout, make_layout

FULL_ELEMENTS = 7.6e9

_CHUNK = 1 << 26
SIGMA = 0.02
"""Standard deviation of the weights."""


def policy_layout(
    layers: int, *, hidden: int = 3584, inner: int = 18944, keys: int = 512, words: int = 152064
) -> Layout:
    """A decoder with grouped keys and values and two embeddings; 28 layers are 7.6e9 elements."""
    tensors: list[tuple[str, str, tuple[int, ...]]] = [
        ("model.embed_tokens.weight", "BF16", (words, hidden)),
        ("lm_head.weight", "BF16", (words, hidden)),
        ("model.norm.weight", "BF16", (hidden,)),
    ]
    for layer in range(layers):
        name = f"model.layers.{layer}"
        tensors += [
            (f"{name}.self_attn.q_proj.weight", "BF16", (hidden, hidden)),
            (f"{name}.self_attn.k_proj.weight", "BF16", (keys, hidden)),
            (f"{name}.self_attn.v_proj.weight", "BF16", (keys, hidden)),
            (f"{name}.self_attn.o_proj.weight", "BF16", (hidden, hidden)),
            (f"{name}.self_attn.q_proj.bias", "BF16", (hidden,)),
            (f"{name}.self_attn.k_proj.bias", "BF16", (keys,)),
            (f"{name}.self_attn.v_proj.bias", "BF16", (keys,)),
            (f"{name}.mlp.gate_proj.weight", "BF16", (inner, hidden)),
            (f"{name}.mlp.up_proj.weight", "BF16", (inner, hidden)),
            (f"{name}.mlp.down_proj.weight", "BF16", (hidden, inner)),
            (f"{name}.input_layernorm.weight", "BF16", (hidden,)),
            (f"{name}.post_attention_layernorm.weight", "BF16", (hidden,)),
        ]
    return make_layout(tensors)


def adam_step(
    layout: Layout, rate: float, *, device: str = "cuda", seed: int = 0, masters: bool = False
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(old, new) weights. fp32 masters move by rate · m / √v with m from its stationary law; bf16 is their rounding.

    The masters' places inside their rounding cells are uniform, as after a long run; `masters` keeps new in fp32.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    old: dict[str, torch.Tensor] = {}
    new: dict[str, torch.Tensor] = {}
    spread = (0.1 / 1.9) ** 0.5  # of Adam's first moment with beta 0.9 under unit noise
    for spec in layout.tensors:
        before = torch.empty(spec.shape, dtype=torch.bfloat16, device=device)
        after = torch.empty(spec.shape, dtype=torch.float32 if masters else torch.bfloat16, device=device)
        flat_before, flat_after = before.view(-1), after.view(-1)
        for start in range(0, spec.numel, _CHUNK):
            size = min(_CHUNK, spec.numel - start)
            weight = torch.randn(size, generator=generator, device=device) * SIGMA
            step = torch.randn(size, generator=generator, device=device) * spread
            flat_before[start : start + size] = weight.to(torch.bfloat16)
            flat_after[start : start + size] = (weight - rate * step).to(after.dtype)
        old[spec.name], new[spec.name] = before, after
    return old, new


@dataclass
class Model:
    """Two states of one section on the device."""

    layout: Layout
    blocks: BlockMap
    section: Section
    old: dict[str, torch.Tensor]
    new: dict[str, torch.Tensor]

    @property
    def size_bytes(self) -> int:
        """The weights as they travel."""
        return self.section.num_elements * self.section.dtype.width_bytes

    @property
    def scale(self) -> float:
        """From this model to 7.6e9 elements."""
        return FULL_ELEMENTS / self.section.num_elements


def make_model(layers: int, rate: float, *, masters: bool = False) -> Model:
    """The synthetic policy before and after a step."""
    layout = policy_layout(layers)
    blocks = BlockMap(layout)
    old, new = adam_step(layout, rate, masters=masters)
    return Model(layout, blocks, sections_of(blocks, "cuda")[0], old, new)


def median_ms(work: Callable[[], object], repeat: int) -> float:
    """Median device time of a piece of work, host gaps included."""
    work()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))
