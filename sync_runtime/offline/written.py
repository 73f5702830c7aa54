"""A redo list into a checkpoint's files, and the names that share a tensor there.

A layout may say that two names are one tensor, while a checkpoint stores both. The delta speaks of one; the other must
follow, or the checkpoint would hold two states.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sync_runtime.delta.apply import Staging
from sync_runtime.errors import ChainError, LayoutError
from sync_runtime.offline.anchors import AnchorBlock, write_block
from sync_runtime.offline.checkpoints import Checkpoint, MappedState, stored_names
from sync_runtime.offline.pieces import split
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout


def stored_ties(checkpoint: Checkpoint, layout: Layout) -> dict[str, str]:
    """Alias -> name, of those that the checkpoint stores apart; refuses one that differs from its tensor."""
    found = {other: names[0] for names in stored_names(checkpoint, layout) for other in names[1:]}
    for alias, name in found.items():
        first, second = one_tensor(checkpoint, alias), one_tensor(checkpoint, name)
        if first.dtype != second.dtype or not np.array_equal(first.matrix, second.matrix):
            raise LayoutError(f"{alias!r} is tied to {name!r} in the delta, but differs from it in {checkpoint.path}")
    return found


def write_staged(checkpoint: Checkpoint, blocks: BlockMap, staging: Staging) -> None:
    """Writes a list into the files in place."""
    names = stored_names(checkpoint, blocks.layout)
    for number, staged in staging.staged.items():
        for piece in split(blocks.block(number), staged):
            for name in names[piece.tensor]:
                piece.write(one_tensor(checkpoint, name, writable=True))


def write_anchor(checkpoint: Checkpoint, blocks: BlockMap, anchor: Iterable[AnchorBlock], seq: int) -> None:
    """Writes whole weights into the files in place; raises ChainError for a block of another version."""
    state = MappedState(checkpoint, blocks.layout, writable=True)
    for one in anchor:
        if one.seq != seq:
            raise ChainError(f"block {one.block.number} is of version {one.seq}, not {seq}")
        write_block(one, state)
    for names in stored_names(checkpoint, blocks.layout):
        for other in names[1:]:
            one_tensor(checkpoint, other, writable=True).matrix[...] = one_tensor(checkpoint, names[0]).matrix


def one_tensor(checkpoint: Checkpoint, name: str, *, writable: bool = False) -> BitTensor:
    """A tensor by the name under which it is stored."""
    alone = Checkpoint(checkpoint.path, checkpoint.files, {name: checkpoint.entries[name]})
    return MappedState(alone, alone.layout(), writable=writable)[0]
