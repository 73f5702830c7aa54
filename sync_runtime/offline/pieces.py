"""A block's redo list, tensor by tensor: for those who hold one tensor at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sync_runtime.delta.apply import StagedBlock
from sync_runtime.tensors.bits import BitTensor, scatter
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.sparse import within


class StagedPiece(NamedTuple):
    """What a redo list writes into one tensor."""

    tensor: int
    block: Block
    """With this one piece."""
    staged: StagedBlock

    def write(self, target: BitTensor) -> None:
        """Writes it into a tensor."""
        scatter(self.block, {self.tensor: target}, self.staged.positions, self.staged.bits)


def split(block: Block, staged: StagedBlock) -> Iterator[StagedPiece]:
    """The parts of a block's list, without the empty ones."""
    first = 0
    for piece in block.pieces:
        inside = within(staged.positions, first, piece.num_elements)
        if inside.stop > inside.start:
            alone = block._replace(pieces=(piece,), num_elements=piece.num_elements)
            positions = staged.positions[inside] - np.uint32(first)
            yield StagedPiece(piece.tensor, alone, StagedBlock(positions, staged.bits[inside]))
        first += piece.num_elements
