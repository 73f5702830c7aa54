"""A redo list into a checkpoint's files, and the names that share a tensor there.

A layout may say that two names are one tensor, while a checkpoint stores both. The delta speaks of one; the other must
follow, or the checkpoint would hold two states.
"""

from __future__ import annotations

import numpy as np

from sync_runtime.delta.apply import Staging
from sync_runtime.errors import LayoutError
from sync_runtime.offline.checkpoints import Checkpoint, MappedState
from sync_runtime.offline.pieces import split
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout


def stored_ties(checkpoint: Checkpoint, layout: Layout) -> dict[str, str]:
    """Alias -> name, of those that the checkpoint stores apart; refuses one that differs from its tensor."""
    found = {alias: name for alias, name in layout.tied if alias in checkpoint.entries}
    for alias, name in found.items():
        first, second = one_tensor(checkpoint, alias), one_tensor(checkpoint, name)
        if first.dtype != second.dtype or not np.array_equal(first.matrix, second.matrix):
            raise LayoutError(f"{alias!r} is tied to {name!r} in the delta, but differs from it in {checkpoint.path}")
    return found


def write_staged(checkpoint: Checkpoint, blocks: BlockMap, staging: Staging) -> None:
    """Writes a list into the files in place."""
    layout = blocks.layout
    names = {at: [spec.name] for at, spec in enumerate(layout.tensors)}
    for alias, name in layout.tied:
        if alias in checkpoint.entries:
            names[layout.index_of[name]].append(alias)
    for number, staged in staging.staged.items():
        for piece in split(blocks.block(number), staged):
            for name in names[piece.tensor]:
                piece.write(one_tensor(checkpoint, name, writable=True))


def one_tensor(checkpoint: Checkpoint, name: str, *, writable: bool = False) -> BitTensor:
    """A tensor by the name under which it is stored."""
    alone = Checkpoint(checkpoint.path, checkpoint.files, {name: checkpoint.entries[name]})
    return MappedState(alone, alone.layout(), writable=writable)[0]
