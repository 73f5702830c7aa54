"""Hugging Face transformers: a model's tensors under the names of its checkpoint, and copies in the engine's dtype.

Of tied weights the one that checkpoints hold travels (`model.embed_tokens.weight`, not `lm_head.weight`), so that names
do not hang on the alphabet. Buffers that checkpoints do not hold are made from the configuration by both ends. How
models generate between two versions is in `sync_runtime.library.generation`. Asks models by attribute and imports
nothing of transformers: a trainer's image may hold another release than a worker's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.engines.module import ModuleEngine

_ROTARY = "inv_freq"
_FULL = (torch.float32, torch.float64)

Model = TypeVar("Model", bound=torch.nn.Module)


class TransformersEngine(ModuleEngine):
    """The tensors of a Hugging Face model; tied ones under the name in the checkpoint."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self._inner = unwrapped(model)
        _check_model(self._inner)

    def _by_memory(self) -> list[tuple[list[str], torch.Tensor]]:
        found = super()._by_memory()
        owners = _owners(self._inner)
        for names, _ in found:
            names.sort(key=lambda name: (name in owners, name.encode()))
        _check_ties({name: number for number, (names, _) in enumerate(found) for name in names}, owners)
        return found


def engine_copy(model: Model, dtype: torch.dtype) -> Model:
    """A copy of a model as rollout workers run it: bit for bit what a Publisher with this `wire_dtype` sends.

    fp32 tensors of the checkpoint are cast, rounding to the nearest; all else stays, above all the frequencies of
    rotary embeddings, which `model.to(dtype)` would spoil. The copy is in evaluation mode and takes no gradients.
    """
    made = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    for tensor in made.state_dict(keep_vars=True).values():  # the model's own objects; tied ones are cast once
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
            tensor.data = tensor.data.to(dtype)
    return made


def attach(model: Any) -> Engine:
    """An engine over a Hugging Face model, also one that is wrapped for data parallelism or compiled."""
    if not isinstance(model, torch.nn.Module) or not hasattr(unwrapped(model), "config"):
        raise LayoutError(f"a {type(model).__name__} is no model of transformers; engine 'module' takes any module")
    return TransformersEngine(model)


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside wrappers of data parallelism and of the compiler."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        return unwrapped(model.module)
    inner = getattr(model, "_orig_mod", None)  # torch.compile's wrapper
    return unwrapped(inner) if isinstance(inner, torch.nn.Module) else model


def _check_model(model: torch.nn.Module) -> None:
    if hasattr(model, "peft_config") or getattr(model, "_hf_peft_config_loaded", False):
        raise LayoutError("the model has adapters, whose names no checkpoint has: merge them into it first")
    if getattr(model, "hf_quantizer", None) is not None:
        raise LayoutError("the model is quantised; weights travel as plain tensors: load it in bf16")
    for name, buffer in model.named_buffers():
        if name.endswith(_ROTARY) and buffer.dtype not in _FULL:
            raise LayoutError(
                f"{name!r} was cast to {buffer.dtype} with the model, which spoils positions: load the model with "
                "`dtype=...`, or make it with `engine_copy`"
            )


def _owners(model: torch.nn.Module) -> Mapping[str, str]:
    """The name in the checkpoint of every tied tensor that checkpoints leave out."""
    tied = getattr(model, "all_tied_weights_keys", None)
    return cast("Mapping[str, str]", tied) if isinstance(tied, Mapping) else {}


def _check_ties(memories: Mapping[str, int], owners: Mapping[str, str]) -> None:
    for alias, owner in owners.items():
        if alias in memories and owner in memories and memories[alias] != memories[owner]:
            raise LayoutError(
                f"{alias!r} and {owner!r} are tied by the model's configuration, but lie apart: call "
                "`model.tie_weights()`, or set `tie_word_embeddings` to False at both ends"
            )
