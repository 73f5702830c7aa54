"""Engines: where a model's tensors come from, found by name so that no engine's packages are needed by another's users.

An adapter module has a function `attach(model)` that returns an `Engine`. Engines that find their plug-in themselves
(vLLM, by an entry point; verl, by its configuration) are not in the registry: they come to us.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from sync_runtime.errors import LayoutError

if TYPE_CHECKING:
    import torch

    from sync_runtime.library.shards import Shard

ENGINES: Mapping[str, str] = {
    "dtensor": "sync_runtime.library.engines.dtensor",
    "handover": "sync_runtime.library.engines.handover",
    "module": "sync_runtime.library.engines.module",
    "transformers": "sync_runtime.library.engines.transformers",
    "trl": "sync_runtime.library.engines.trl",
}
"""Adapters by name."""


class Engine(Protocol):
    """A model whose weights are published or replaced."""

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The model's own tensors by canonical name, as they are now; one name of tied ones is enough."""

    def ties(self) -> Mapping[str, str]:
        """Other names of tensors: alias -> name."""

    def shards(self) -> Mapping[str, Shard]:
        """What this rank holds of tensors that are spread over ranks; tensors that are not named are whole."""


class Adapter(Protocol):
    """A module that knows one engine."""

    def attach(self, model: Any) -> Engine:
        """An engine over a model; raises LayoutError for what it cannot hold."""


def attach(name: str, model: Any) -> Engine:
    """The engine of a name over a model."""
    if name not in ENGINES:
        raise LayoutError(f"there is no engine {name!r}; there are: {', '.join(sorted(ENGINES))}")
    return cast("Adapter", importlib.import_module(ENGINES[name])).attach(model)
