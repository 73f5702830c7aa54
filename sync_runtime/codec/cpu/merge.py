"""Merging: the sum of a block's differences in several deltas, zeros dropped. Needs no base for fast and dense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sync_runtime.codec.cpu.blocks import check_record, compact, decode_block
from sync_runtime.codec.cpu.fast import accumulate_fast
from sync_runtime.codec.frame import Record
from sync_runtime.codec.limits import MODE_FAST
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.sparse import SparseBlock


def merge_block(parts: Sequence[Record | SparseBlock], block: Block) -> SparseBlock:
    """The sum of one block's parts; a part that is tight must have been decoded before."""
    if len(parts) == 1:
        only = parts[0]
        return only if isinstance(only, SparseBlock) else decode_block(only, block)
    total = np.zeros(block.num_elements, np.uint32)
    for part in parts:
        if isinstance(part, Record) and part.mode == MODE_FAST:
            check_record(part, block)
            accumulate_fast(
                part.body,
                bits=part.parameter,
                num_changed=part.count,
                width_bits=block.dtype.width_bits,
                into=total,
            )
            continue
        listed = part if isinstance(part, SparseBlock) else decode_block(part, block)
        total[listed.positions] += listed.differences  # positions are unique within a part
    mask = 0xFFFFFFFF >> (32 - block.dtype.width_bits)
    return SparseBlock(block.number, *compact(total, mask))
