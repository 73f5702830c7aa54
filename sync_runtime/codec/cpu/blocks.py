"""Blocks of deltas to records and back: picks the smallest mode, checks what a record may say about its block.

The one door to the CPU coder for whoever has sparse blocks. The old elements are needed for `tight` and `auto` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sync_runtime.codec.cpu.fast import decode_fast, encode_fast
from sync_runtime.codec.cpu.tight import decode_tight, encode_tight
from sync_runtime.codec.frame import Record, pack_entry
from sync_runtime.codec.limits import (
    MODE_DENSE,
    MODE_FAST,
    MODE_NAMES,
    MODE_TIGHT,
    MODES_OF_CODEC,
    max_body_bytes,
)
from sync_runtime.codec.rules import dense_bytes
from sync_runtime.codec.tables import Tables
from sync_runtime.errors import FormatError, LayoutError, LimitError, MissingBaseError
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.jit import compiled
from sync_runtime.tensors.sparse import U32, Bits, SparseBlock


def encode_block(
    delta: SparseBlock, block: Block, codec: int, *, old: Bits | None = None, tables: Tables | None = None
) -> bytes:
    """Entry and body of a block; no bytes where nothing changed."""
    if not delta.num_changed:
        return b""
    mask = 0xFFFFFFFF >> (32 - block.dtype.width_bits)
    if not _is_sound(delta.positions, delta.differences, block.num_elements, mask):
        raise LayoutError(f"the differences of block {block.number} do not ascend, do not fit it, or are zero")
    mode, parameter, body = _smallest(delta, block, codec, old, tables)
    entry = pack_entry(
        block=block.number, mode=mode, parameter=parameter, count=delta.num_changed, body_bytes=len(body)
    )
    return entry + body


def decode_block(record: Record, block: Block, *, old: Bits | None = None, tables: Tables | None = None) -> SparseBlock:
    """The differences in a record from anywhere; raises FormatError, or MissingBaseError for tight without a base."""
    check_record(record, block)
    if record.mode == MODE_FAST:
        positions, differences = decode_fast(
            record.body,
            bits=record.parameter,
            num_changed=record.count,
            num_elements=block.num_elements,
            width_bits=block.dtype.width_bits,
        )
    elif record.mode == MODE_TIGHT:
        if old is None or tables is None:
            raise MissingBaseError(f"block {block.number} is coded tight: the old weights are needed")
        positions, differences = decode_tight(
            record.body,
            log2_lanes=record.parameter,
            num_changed=record.count,
            old=old,
            block=block,
            tables=tables,
        )
    else:
        positions, differences = _decode_dense(record, block)
    return SparseBlock(block.number, positions, differences)


def check_record(record: Record, block: Block) -> None:
    """What can be refused before anything is decoded or allocated."""
    if record.mode not in (MODE_FAST, MODE_TIGHT, MODE_DENSE):
        raise FormatError(f"block {block.number} is {MODE_NAMES.get(record.mode)}, not a delta")
    if record.count > block.num_elements:
        raise FormatError(f"block {block.number} has {block.num_elements} elements, {record.count} cannot change")
    limit = dense_bytes(block.num_elements, block.dtype.width_bits)
    if len(record.body) > min(limit, max_body_bytes(block.num_elements)):
        raise LimitError(f"block {block.number} has {len(record.body)} bytes, more than the {limit} it has as dense")


def _smallest(
    delta: SparseBlock, block: Block, codec: int, old: Bits | None, tables: Tables | None
) -> tuple[int, int, bytes]:
    """(mode, parameter, body): the smallest; of equals the lower mode."""
    modes = MODES_OF_CODEC[codec]
    width = block.dtype.width_bits
    best = (dense_bytes(block.num_elements, width), MODE_DENSE)
    coded: tuple[int, bytes] | None = None
    if MODE_TIGHT in modes:
        if old is None or tables is None:
            raise MissingBaseError("tight coding needs the old weights and tables")
        coded = encode_tight(old, delta.positions, delta.differences, block, tables)
        if coded is not None:
            best = min(best, (len(coded[1]), MODE_TIGHT))
    plain: tuple[int, bytes] | None = None
    if MODE_FAST in modes:
        plain = encode_fast(delta.positions, delta.differences, block.num_elements, width)
        best = min(best, (len(plain[1]), MODE_FAST))
    if best[1] == MODE_TIGHT and coded is not None:
        return MODE_TIGHT, *coded
    if best[1] == MODE_FAST and plain is not None:
        return MODE_FAST, *plain
    return MODE_DENSE, 0, _encode_dense(delta, block)


def _encode_dense(delta: SparseBlock, block: Block) -> bytes:
    elements = np.zeros(block.num_elements, block.dtype.bits_dtype.newbyteorder("<"))
    elements[delta.positions] = delta.differences
    plain = elements.tobytes()
    return plain + bytes(-len(plain) % 4)


def _decode_dense(record: Record, block: Block) -> tuple[U32, U32]:
    if record.parameter or len(record.body) != dense_bytes(block.num_elements, block.dtype.width_bits):
        raise FormatError(f"dense block {block.number} has the wrong size or parameter")
    size = block.num_elements * block.dtype.width_bytes
    if any(record.body[size:]):
        raise FormatError("the padding of a dense block is not zero")
    elements = np.frombuffer(record.body[:size], block.dtype.bits_dtype.newbyteorder("<"))
    positions = np.flatnonzero(elements).astype(np.uint32)
    if positions.size != record.count:
        raise FormatError(f"dense block {block.number} has {positions.size} changes, {record.count} are announced")
    return positions, elements[positions].astype(np.uint32)


@compiled
def _is_sound(positions: U32, differences: U32, num_elements: int, mask: int) -> bool:
    """The compiled writers trust their input: a bad caller must fail here, not in memory."""
    previous: Any = -1
    for k in range(positions.size):
        at = np.int64(positions[k])
        if at <= previous or at >= num_elements or differences[k] == 0 or differences[k] > mask:
            return False
        previous = at
    return True
