"""Staging and applying: differences become a redo list of absolute bits; the list is checked, then scattered.

Nothing here touches live tensors before `commit`. A commit that was interrupted is simply done again: the list holds
absolute bits. Knows nothing of codecs: it is handed sparse blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sync_runtime.errors import DigestError, FormatError
from sync_runtime.tensors.bits import BitTensor, gather, scatter
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.sparse import U32, Bits, SparseBlock


class StagedBlock(NamedTuple):
    """A block's changed elements as they will be: strictly ascending positions and absolute bits."""

    positions: U32
    bits: Bits


class Staging:
    """The redo list over a live state: what several deltas, one after the other, will have written."""

    def __init__(self, blocks: BlockMap, live: Mapping[int, BitTensor]) -> None:
        self._blocks = blocks
        self._live = live
        self._staged: dict[int, StagedBlock] = {}

    @property
    def staged(self) -> Mapping[int, StagedBlock]:
        """The list, by block number."""
        return self._staged

    @property
    def num_elements(self) -> int:
        """How many elements a commit writes."""
        return sum(int(staged.positions.size) for staged in self._staged.values())

    def current(self, block: Block) -> Bits:
        """The block's elements as the next delta finds them: live, under what is staged already."""
        bits = gather(block, self._live)
        staged = self._staged.get(block.number)
        if staged is not None:
            bits = bits.copy()
            bits[staged.positions] = staged.bits
        return bits

    def prepare(self, delta: SparseBlock, block: Block, current: Bits) -> tuple[Bits, StagedBlock]:
        """(old bits, what they become) at the delta's positions; changes nothing."""
        if delta.num_changed and int(delta.positions[-1]) >= block.num_elements:
            raise FormatError(f"a position lies outside block {block.number}")
        old = current[delta.positions]
        return old, StagedBlock(delta.positions, old + delta.differences.astype(old.dtype))

    def add(self, block: Block, staged: StagedBlock) -> None:
        """Folds a block into the list: later bits win."""
        before = self._staged.get(block.number)
        self._staged[block.number] = staged if before is None else _folded(before, staged)

    def commit(self) -> None:
        """Writes the list into the live state. Repeatable; forget the list only afterwards."""
        for number, staged in self._staged.items():
            scatter(self._blocks.block(number), self._live, staged.positions, staged.bits)

    def clear(self) -> None:
        """Forgets the list."""
        self._staged.clear()


def _folded(before: StagedBlock, after: StagedBlock) -> StagedBlock:
    positions = np.concatenate([before.positions, after.positions])
    bits = np.concatenate([before.bits, after.bits])
    order = np.argsort(positions, kind="stable")  # of equal positions the later stays last
    positions, bits = positions[order], bits[order]
    last = np.append(positions[1:] != positions[:-1], True)
    return StagedBlock(positions[last], bits[last])


def check_digest_changes(found: Mapping[int, object], promised: Mapping[int, object], names: Mapping[int, str]) -> None:
    """Raises DigestError, naming a tensor, where the list would not lead to the promised state."""
    wrong = [tensor for tensor in promised if found.get(tensor) != promised[tensor]]
    if wrong:
        raise DigestError(
            f"{len(wrong)} tensors would not become what the manifest promises, {names[wrong[0]]!r} among them: "
            "nothing was changed; the bytes are damaged or the base is another one"
        )
