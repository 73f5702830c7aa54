"""Plain torch: any module, or any mapping from names to tensors.

A module's state is its parameters and persistent buffers. Names that share one memory are tied: one of them travels.
Wrappers of data parallelism and of the compiler are looked through, so that both ends find the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.shards import Shard

_COMPILED = "_orig_mod."
_EXTRA_STATE = "_extra_state"


class ModuleEngine:
    """The tensors of a module or mapping. They are looked up anew each time: users replace them."""

    def __init__(self, model: torch.nn.Module | Mapping[str, torch.Tensor]) -> None:
        self._model = model

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Owners only: of tied tensors the one whose name comes first."""
        return {names[0]: tensor for names, tensor in self._by_memory()}

    def ties(self) -> Mapping[str, str]:
        """All names of tied tensors but the first."""
        return {alias: names[0] for names, _ in self._by_memory() for alias in names[1:]}

    def shards(self) -> Mapping[str, Shard]:
        """The shards of a mapping; a module's tensors are whole."""
        return {name: value for name, value in _items(self._model) if isinstance(value, Shard)}

    def _by_memory(self) -> list[tuple[list[str], torch.Tensor]]:
        """Tensors with their names; several where they are one memory seen the same way."""
        found: dict[object, tuple[list[str], torch.Tensor]] = {}
        for name, value in self._values():
            tensor = self._held(name, value)
            found.setdefault(self._memory(name, value, tensor), ([], tensor))[0].append(name)
        return list(found.values())

    def _values(self) -> Iterator[tuple[str, torch.Tensor | Shard]]:
        """Everything that travels, by name."""
        for name, value in sorted(_items(self._model), key=lambda pair: pair[0].encode()):
            if isinstance(value, torch.Tensor | Shard):
                yield name, value
            elif not name.endswith(_EXTRA_STATE):
                raise LayoutError(
                    f"{name!r} is a {type(value).__name__}; a state maps names to torch tensors or shards"
                )

    def _held(self, name: str, value: torch.Tensor | Shard) -> torch.Tensor:
        """The memory of this process; raises LayoutError for what cannot travel."""
        return _checked(name, value.tensor if isinstance(value, Shard) else value)

    def _memory(self, name: str, value: torch.Tensor | Shard, tensor: torch.Tensor) -> object:
        """What names must share to be tied."""
        if not tensor.numel():
            return name  # empty tensors share the null address and nothing else
        return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _items(model: torch.nn.Module | Mapping[str, torch.Tensor]) -> Iterator[tuple[str, Any]]:
    if not isinstance(model, torch.nn.Module):
        return iter(model.items())
    inner: torch.nn.Module = model
    if isinstance(inner, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        inner = inner.module
    return ((name.replace(_COMPILED, ""), value) for name, value in inner.state_dict(keep_vars=True).items())


def _checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor).__name__ == "DTensor":
        raise LayoutError(
            f'{name!r} is spread over ranks (DTensor): say `engine="dtensor"`, `rank` and `world_size` in every rank'
        )
    if tensor.device.type == "meta":
        raise LayoutError(f"{name!r} is on the meta device and has no weights yet: load the model first")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise LayoutError(f"{name!r} is sparse or quantised; weights travel as plain tensors")
    return tensor.detach()


def attach(model: Any) -> Engine:
    """An engine over a torch module or a mapping."""
    if not isinstance(model, torch.nn.Module | Mapping):
        raise LayoutError(f"a model is a torch module or a mapping from names to tensors, not a {type(model).__name__}")
    return ModuleEngine(model)
