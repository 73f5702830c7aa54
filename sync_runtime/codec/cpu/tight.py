"""`tight` blocks: positions and steps coded given the old element's exponent (FORMAT.md, section 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.cpu import rans, steps
from sync_runtime.codec.cpu.sections import Sections
from sync_runtime.codec.limits import MAX_LANE_WORDS
from sync_runtime.codec.rules import position_lanes_log2, value_lanes, words32
from sync_runtime.codec.tables import Tables
from sync_runtime.errors import FormatError
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.sparse import U32, Bits


@dataclass(frozen=True)
class Lanes:
    """Coded lanes: their states, how many words each has, and the words, lane after lane."""

    states: U32
    counts: NDArray[np.int64]
    words: NDArray[np.uint16]

    @property
    def head(self) -> bytes:
        """States and counts as they stand in a body."""
        counts = self.counts.astype("<u2").tobytes()
        return self.states.astype("<u4").tobytes() + counts + bytes(-len(counts) % 4)


def encode_tight(old: Bits, positions: U32, differences: U32, block: Block, tables: Tables) -> tuple[int, bytes] | None:
    """(log2 of the position lanes, body); None where a lane has too many words for the format."""
    log2 = position_lanes_log2(old.size, positions.size)
    places = _position_lanes(old, positions, block, tables, 1 << log2)
    if int(places.counts.max()) > MAX_LANE_WORDS:
        return None
    dtype = block.dtype
    classes, signs = np.empty(positions.size, np.uint8), np.zeros(words32(positions.size), np.uint32)
    extra_bits = steps.split(differences, dtype.width_bits, classes, signs)
    extras = np.zeros(words32(extra_bits), np.uint32)
    steps.write_extras(differences, classes, dtype.width_bits, extras)
    contexts = steps.contexts_of(old, positions, dtype.context_shift, dtype.context_mask)
    values = _value_lanes(contexts, classes, tables.value[dtype.code])
    words = places.words.astype("<u2").tobytes() + values.words.astype("<u2").tobytes()
    planes = signs.astype("<u4").tobytes() + extras.astype("<u4").tobytes()
    return log2, b"".join([places.head, values.head, words, bytes(-len(words) % 4), planes])


def decode_tight(
    body: memoryview, *, log2_lanes: int, num_changed: int, old: Bits, block: Block, tables: Tables
) -> tuple[U32, U32]:
    """(positions, differences) of a body from anywhere, against the old elements; raises FormatError."""
    if not 1 <= num_changed <= old.size or log2_lanes != position_lanes_log2(old.size, num_changed):
        raise FormatError("a tight block announces an impossible number of changes or of lanes")
    dtype = block.dtype
    table, frequencies = tables.position.get(block.group), tables.value.get(dtype.code)
    if table is None or frequencies is None:
        raise FormatError(f"block {block.number} is tight, but its tables are missing")
    sections = Sections(body)
    places, place_ends = _take_head(sections, 1 << log2_lanes)
    values, value_ends = _take_head(sections, value_lanes(num_changed))
    place_words = sections.u16(int(place_ends[-1]))
    value_words = sections.u16(int(value_ends[-1]))
    sections.skip_padding()
    signs = sections.bits(num_changed)
    positions = np.empty(num_changed, np.uint32)
    _raise(
        rans.decode_positions(
            old, dtype.context_shift, dtype.context_mask, table, place_words, place_ends, places, positions
        )
    )
    contexts = steps.contexts_of(old, positions, dtype.context_shift, dtype.context_mask)
    classes = np.empty(num_changed, np.uint8)
    _raise(rans.decode_classes(contexts, frequencies, value_words, value_ends, values, classes))
    extras = sections.bits(steps.count_extra_bits(classes))
    sections.finish()
    differences = np.empty(num_changed, np.uint32)
    if not steps.join(classes, signs, extras, dtype.width_bits, differences):
        raise FormatError("a tight block holds a step that does not exist")
    return positions, differences


def _position_lanes(old: Bits, positions: U32, block: Block, tables: Tables, lanes: int) -> Lanes:
    changed = np.zeros(old.size, np.uint8)
    changed[positions] = 1
    words = np.empty((lanes, -(-old.size // lanes)), np.uint16)
    states, counts = np.empty(lanes, np.uint32), np.empty(lanes, np.int64)
    shift, mask = block.dtype.context_shift, block.dtype.context_mask
    rans.encode_positions(old, shift, mask, changed, tables.position[block.group], words, states, counts)
    return Lanes(states, counts, tails(words, counts))


def _value_lanes(contexts: NDArray[np.uint8], classes: NDArray[np.uint8], frequencies: U32) -> Lanes:
    lanes = value_lanes(classes.size)
    words = np.empty((lanes, -(-classes.size // lanes)), np.uint16)
    states, counts = np.empty(lanes, np.uint32), np.empty(lanes, np.int64)
    rans.encode_classes(contexts, classes, frequencies, words, states, counts)
    return Lanes(states, counts, tails(words, counts))


def tails(words: NDArray[np.uint16], counts: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The filled end of every lane, one after the other."""
    cap = words.shape[1]
    return np.concatenate([row[cap - count :] for row, count in zip(words, counts, strict=True)])


def _take_head(sections: Sections, lanes: int) -> tuple[U32, NDArray[np.int64]]:
    states = sections.u32(lanes)
    counts = sections.u16(lanes)
    sections.skip_padding()
    ends: Any = np.cumsum(counts, dtype=np.int64)
    return states, ends


def _raise(fault: int) -> None:
    if fault:
        raise FormatError(f"a tight block is malformed: {rans.FAULTS[fault]}")
