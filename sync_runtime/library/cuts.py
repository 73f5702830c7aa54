"""Where tensors are cut, told to every end that codes by itself: trainers, workers on a GPU, engines of several ranks.

Objects go to such workers as they are, so all must have the same blocks. Workers on a CPU need it not: their sidecar
decodes under the trainer's own layout. Knows neither sidecar nor coder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from sync_runtime.errors import LayoutError
from sync_runtime.library.shards import Shard
from sync_runtime.tensors import layout as layouts

if TYPE_CHECKING:
    import torch

    from sync_runtime.library.engines import Engine

Cut = tuple[int | None, int | None]
"""Rows and columns of a tensor's matrix at whose multiples blocks begin; None: not cut that way."""
Cuts = Mapping[str, Sequence[int | None]] | int
"""By name, as `Publisher.cuts` says them; or a number: large tensors into so many parts, each way. Fit for JSON."""


def cuts_of(layout: layouts.Layout) -> dict[str, tuple[int, int]]:
    """The cuts that make a layout's grid anew."""
    return {
        spec.name: (spec.grid.row_period, spec.grid.col_step // spec.dtype.elements_per_item)
        for spec in layout.tensors
        if spec.grid is not None
    }


def even_cut(shape: Sequence[int], parts: int) -> Cut:
    """Where a tensor is cut so that so many ranks find their parts, whether they cut rows or columns."""
    if parts == 1:
        return None, None
    rows, cols = prod(shape[:-1]), shape[-1] if shape else 1
    return -(-rows // parts) if rows > 1 else None, -(-cols // parts)


def cuts_by_name(cuts: Cuts, shapes: Mapping[str, Sequence[int]]) -> dict[str, Cut]:
    """What cuts mean for these tensors; raises LayoutError for cuts that cannot be made. None: nothing is cut."""
    if isinstance(cuts, int):
        if cuts < 1:
            raise LayoutError(f"`cuts` is {cuts}: tensors are cut into one part or more")
        large = {name: shape for name, shape in shapes.items() if prod(shape) >= layouts.SMALL_ELEMENTS}
        return {name: even_cut(shape, cuts) for name, shape in large.items()} if cuts > 1 else {}
    for name, cut in cuts.items():
        if name not in shapes or len(cut) != 2 or not all(one is None or one > 0 for one in cut):
            raise LayoutError(f"`cuts` has {name!r} at {list(cut)}; this model has no such tensor, or matrix")
    return {name: (cut[0], cut[1]) for name, cut in cuts.items()}


class CutEngine:
    """An engine whose whole tensors lie in blocks that are cut for others."""

    def __init__(self, inner: Engine, cuts: Cuts) -> None:
        self._inner, self._cuts = inner, cuts

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The inner engine's."""
        return self._inner.tensors()

    def ties(self) -> Mapping[str, str]:
        """The inner engine's."""
        return self._inner.ties()

    def shards(self) -> Mapping[str, Shard]:
        """Its own, and whole tensors with the cuts; raises LayoutError for cuts of tensors that it lacks."""
        tensors, found = self._inner.tensors(), dict(self._inner.shards())
        cuts = cuts_by_name(self._cuts, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        whole = {name: Shard(tensors[name], tuple(tensors[name].shape), (0, 0), cut) for name, cut in cuts.items()}
        return whole | found
