"""From a delta's bytes to a checked redo list, and the comparison of two states: the blocks' work, in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from sync_runtime.codec.frame import Record
from sync_runtime.delta.apply import StagedBlock, Staging, check_digest_changes
from sync_runtime.delta.cpu import block_digest, extract_block, staged_digest
from sync_runtime.errors import FormatError, ReplayError, WrongBaseError
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.pool import ordered_map
from sync_runtime.tensors.bits import BitTensor, gather
from sync_runtime.tensors.blocks import Block, BlockMap
from sync_runtime.tensors.digest import ZERO, Digest
from sync_runtime.tensors.sparse import Bits, SparseBlock

BoundState = Mapping[int, BitTensor]


class Comparison:
    """Two states block by block; remembers what the blocks add to the digests. `sparse` may run in any order."""

    def __init__(self, blocks: BlockMap, old: BoundState, new: BoundState) -> None:
        self.blocks = blocks
        self._old_state, self._new_state = old, new
        self._base: dict[int, dict[int, Digest]] = {}
        self._changes: dict[int, dict[int, Digest]] = {}

    def old(self, block: Block) -> Bits:
        """A block of the base."""
        return gather(block, self._old_state)

    def sparse(self, block: Block) -> SparseBlock:
        """A block's differences."""
        old, new = self.old(block), gather(block, self._new_state)
        delta = extract_block(old, new, block.number)
        layout = self.blocks.layout
        self._base[block.number] = block_digest(block, self._old_state, layout)
        at = delta.positions
        self._changes[block.number] = staged_digest(at, old[at], new[at], block, layout)
        return delta

    def base_digests(self) -> tuple[Digest, ...]:
        """Per tensor, once every block was looked at."""
        return per_tensor(self._base.values(), len(self.blocks.layout.tensors))

    def digest_changes(self) -> tuple[Digest, ...]:
        """Per tensor, once every block was looked at."""
        return per_tensor(self._changes.values(), len(self.blocks.layout.tensors))


def per_tensor(parts: Iterable[Mapping[int, Digest]], num_tensors: int) -> tuple[Digest, ...]:
    """Sums blocks' parts; tensors without any have digest zero."""
    sums = [ZERO] * num_tensors
    for part in parts:
        for tensor, digest in part.items():
            sums[tensor] = sums[tensor].plus(digest)
    return tuple(sums)


def state_digests(blocks: BlockMap, state: BoundState, threads: int | None = None) -> tuple[Digest, ...]:
    """The full digest of every tensor."""
    parts = ordered_map(lambda block: block_digest(block, state, blocks.layout), blocks, threads)
    return per_tensor(parts, len(blocks.layout.tensors))


def check_base(delta: Delta, held: Digest) -> None:
    """Whether a state with this digest is what the delta starts from."""
    if held == delta.base.digest:
        return
    if held == delta.target.digest:
        raise ReplayError("the state is this delta's target already; applying it again would be wrong")
    raise WrongBaseError(f"the delta starts from a state with digest {delta.base.digest}, this one has {held}")


class _Decoded(NamedTuple):
    block: Block
    num_changed: int
    staged: StagedBlock
    changes: dict[int, Digest]


def stage(delta: Delta, staging: Staging, threads: int | None = None) -> None:
    """Decodes a delta against live plus staged weights, checks all of it, then folds it into the list."""
    reader = delta.reader()

    def decode(item: tuple[Block, Record]) -> _Decoded:
        block, record = item
        current = staging.current(block)
        sparse = reader.decode(block, record, current)
        old, staged = staging.prepare(sparse, block, current)
        changes = staged_digest(staged.positions, old, staged.bits, block, delta.layout)
        return _Decoded(block, record.count, staged, changes)

    decoded = list(ordered_map(decode, reader.records(), threads))
    check_totals(delta, len(decoded), sum(item.num_changed for item in decoded))
    found = per_tensor([item.changes for item in decoded], len(delta.layout.tensors))
    names = {at: tensor.name for at, tensor in enumerate(delta.layout.tensors)}
    promised = delta.manifest.digest_changes
    check_digest_changes(dict(enumerate(found)), dict(enumerate(promised)), names)
    for item in decoded:
        staging.add(item.block, item.staged)


def check_totals(delta: Delta, num_blocks: int, num_changed: int) -> None:
    """The object must hold what its manifest counts."""
    if (num_blocks, num_changed) != (delta.manifest.num_blocks, delta.manifest.num_changed):
        raise FormatError("the object has another number of blocks or changes than its manifest says")


def apply_differences(bits: Bits, delta: SparseBlock) -> Bits:
    """A block after a delta, as a copy."""
    after = bits.copy()
    after[delta.positions] += delta.differences.astype(np.dtype(bits.dtype))
    return after
