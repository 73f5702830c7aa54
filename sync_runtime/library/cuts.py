"""Where a trainer's ranks cut tensors, told to workers that code on a GPU: objects go to them as they are, so both ends
must have the same blocks. Workers on a CPU need it not: their sidecar decodes under the trainer's own layout.

Cuts are rows and columns by name, plain enough for a JSON file. Knows neither sidecar nor coder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sync_runtime.errors import LayoutError
from sync_runtime.library.shards import Shard
from sync_runtime.tensors.layout import Layout

if TYPE_CHECKING:
    import torch

    from sync_runtime.library.engines import Engine

Cuts = Mapping[str, Sequence[int | None]]
"""By name: rows and columns at whose multiples blocks may not be crossed."""


def cuts_of(layout: Layout) -> dict[str, tuple[int, int]]:
    """The cuts that make a layout's grid anew."""
    return {
        spec.name: (spec.grid.row_period, spec.grid.col_step // spec.dtype.elements_per_item)
        for spec in layout.tensors
        if spec.grid is not None
    }


class CutEngine:
    """An engine whose whole tensors lie in a trainer's blocks."""

    def __init__(self, inner: Engine, cuts: Cuts) -> None:
        self._inner, self._cuts = inner, cuts

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The inner engine's."""
        return self._inner.tensors()

    def ties(self) -> Mapping[str, str]:
        """The inner engine's."""
        return self._inner.ties()

    def shards(self) -> Mapping[str, Shard]:
        """Its own, and whole tensors with the trainer's cuts; raises LayoutError for cuts of tensors that it lacks."""
        tensors, found = self._inner.tensors(), dict(self._inner.shards())
        for name, cut in self._cuts.items():
            if name not in tensors or len(cut) != 2:
                raise LayoutError(f"the trainer cuts {name!r} at {list(cut)}; this model has no such tensor, or matrix")
            if name not in found:
                found[name] = Shard(tensors[name], tuple(tensors[name].shape), (0, 0), (cut[0], cut[1]))
        return found
