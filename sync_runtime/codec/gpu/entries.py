"""The entries of a delta object from anywhere, by section, in helpings; what needs no kernel is checked here.

Following the entries takes a loop, for each says where the next one is; so the first helping can be decoded while the
host follows the rest. Everything else is checked for all entries of a helping at once. Needs no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sync_runtime.codec.frame import parse_header, truncated_layout_hash
from sync_runtime.codec.gpu import plans
from sync_runtime.codec.gpu.plans import Ints
from sync_runtime.codec.limits import (
    END_BLOCK,
    ENTRY_BYTES,
    HEADER_BYTES,
    KIND_DELTA,
    MODE_DENSE,
    MODE_FAST,
    MODE_TIGHT,
    MODES_OF_CODEC,
)
from sync_runtime.codec.tables import parse_tables
from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.sections import Section

_ENTRY_WORDS = ENTRY_BYTES // 4


@dataclass(frozen=True)
class Records:
    """What entries say about a section's blocks; numpy [B], zero where a block is not named."""

    blocks: range
    """The section's blocks that the entries range over; those of later helpings come after them."""
    mode: Ints
    parameter: Ints
    changed: Ints
    body: Ints
    """Where the body begins, in words of the object."""
    body_words: Ints


class Homes:
    """Where the blocks of a layout are: section and place in it. Made once."""

    def __init__(self, blocks: BlockMap, sections: Sequence[Section]) -> None:
        self.blocks, self.sections = blocks, tuple(sections)
        self.groups = [np.array([block.group for block in one.blocks], np.int64) for one in sections]
        self.places: Ints = np.full((blocks.num_blocks, 2), -1, np.int64)
        for at, section in enumerate(sections):
            numbers = section.numbers.cpu().numpy()
            self.places[numbers, 0] = at
            self.places[numbers, 1] = np.arange(numbers.size)


class EntryReader:
    """Reads header and tables when made, and entries as they are asked for."""

    def __init__(self, homes: Homes, data: memoryview) -> None:
        if len(data) % 4:
            raise FormatError("an object is a multiple of four bytes")
        header = parse_header(data)
        if header.kind != KIND_DELTA:
            raise FormatError("this object is an anchor, not a delta")
        if header.layout_hash != truncated_layout_hash(homes.blocks.layout.hash):
            raise FormatError("the object was written under another layout")
        begin = HEADER_BYTES + header.tables_bytes
        if len(data) < begin:
            raise TruncatedError("the object ends inside its tables")
        self.tables = parse_tables(data[HEADER_BYTES:begin], homes.blocks.groups)
        self._homes, self._data, self._modes = homes, data, MODES_OF_CODEC[header.codec]
        self._at, self._previous = begin // 4, -1
        self._done = False
        self._begun = [0] * len(homes.sections)

    def take(self, most: int) -> list[Records]:
        """At most so many entries, by section."""
        starts, self._at = follow_entries(self._data, self._at, most)
        self._done = self._at * 4 == len(self._data)
        rows, places = self._rows(starts[:-1] if self._done else starts)
        found = []
        for at, section in enumerate(self._homes.sections):
            here = places[:, 0] == at
            members = places[here, 1]
            table = np.zeros((5, section.num_blocks), np.int64)
            table[:, members] = rows[:, here]
            begin = self._begun[at]
            end = section.num_blocks if self._done else max(begin, int(members[-1]) + 1 if members.size else 0)
            self._begun[at] = end
            found.append(Records(range(begin, end), *table))
            self._check_sizes(at, found[-1])
        return found

    def rest(self) -> list[Records]:
        """All other entries; raises FormatError where there are more than blocks."""
        found = self.take(0 if self._done else self._homes.blocks.num_blocks + 1)
        if not self._done:
            raise FormatError("the object has more records than its layout has blocks")
        return found

    def _rows(self, starts: Ints) -> tuple[Ints, Ints]:
        """(mode, parameter, changed, body, body words) by record, and the section and place of its block."""
        words, blocks = np.frombuffer(self._data, "<u4"), self._homes.blocks
        block, kinds, changed, body_bytes = (words[starts + k].astype(np.int64) for k in range(_ENTRY_WORDS))
        mode, parameter, reserved = kinds & 0xFF, (kinds >> 8) & 0xFF, kinds >> 16
        if (np.diff(block, prepend=self._previous) <= 0).any():
            raise FormatError("block numbers do not ascend")
        if not np.isin(mode, self._modes).all():
            raise UnknownFormatError("a block has a mode that the object's codec does not use")
        if ((reserved != 0) | (body_bytes % 4 != 0) | (changed == 0)).any():
            raise FormatError("the entry of a block is malformed")
        if block.size and block[-1] >= blocks.num_blocks:
            raise FormatError(f"block {block[-1]} does not exist: the layout has {blocks.num_blocks}")
        places = self._homes.places[block]
        if (places < 0).any():
            raise FormatError(f"block {block[np.argmin(places[:, 0])]} is not among the blocks that are held here")
        self._previous = int(block[-1]) if block.size else self._previous
        return np.stack([mode, parameter, changed, starts + _ENTRY_WORDS, body_bytes // 4]), places

    def _refuse(self, at: int, bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            raise FormatError(f"block {self._homes.sections[at].blocks[int(np.argmax(bad))].number} {what}")

    def _check_sizes(self, at: int, records: Records) -> None:
        """Refuses what counts and sizes alone show to be wrong; afterwards every section of a body lies inside it."""
        section = self._homes.sections[at]
        elements = section.host_elements
        self._refuse(at, records.changed > elements, "announces more changes than it has elements")
        dense = (elements * section.dtype.width_bytes + 3) // 4 * 4
        body_bytes = records.body_words * 4
        if (body_bytes > dense).any():
            raise LimitError("a body is larger than its block as dense")
        is_dense = records.mode == MODE_DENSE
        self._refuse(at, is_dense & ((body_bytes != dense) | (records.parameter != 0)), "is dense with a wrong size")
        self._check_fast(at, records)
        self._check_tight(at, records)

    def _check_fast(self, at: int, records: Records) -> None:
        fast, section = records.mode == MODE_FAST, self._homes.sections[at]
        if not fast.any():
            return
        bits = plans.gap_bits(section.host_elements, records.changed)
        self._refuse(at, fast & (records.parameter != bits), "has another gap width than its own")
        self._refuse(at, fast & (records.body_words < 3), "is fast and ends inside its head")
        words = np.frombuffer(self._data, "<u4")
        heads = [words[np.where(fast, records.body + k, 0)].astype(np.int64) for k in range(3)]
        expected = plans.fast_bytes(heads[0], bits, heads[1], heads[2], section.dtype.width_bits)
        self._refuse(at, fast & (expected != 4 * records.body_words), "has sections that do not fill its body")
        self._refuse(at, fast & (heads[0] < records.changed), "has fewer symbols than changes")

    def _check_tight(self, at: int, records: Records) -> None:
        tight, section = records.mode == MODE_TIGHT, self._homes.sections[at]
        if not tight.any():
            return
        places = plans.log2_position_lanes(section.host_elements, records.changed)
        values = plans.log2_value_lanes(records.changed)
        self._refuse(at, tight & (records.parameter != places), "has another number of lanes than its own")
        heads = (1 << places) + ((1 << places) + 1) // 2 + (1 << values) + ((1 << values) + 1) // 2
        self._refuse(at, tight & (records.body_words < heads), "is tight and ends inside its head")
        known = np.isin(self._homes.groups[at], list(self.tables.position))
        if section.dtype.code not in self.tables.value:
            known[:] = False
        self._refuse(at, tight & ~known, "is tight, but its tables are missing")


def follow_entries(data: memoryview, at: int, most: int) -> tuple[Ints, int]:
    """Word numbers of at most so many entries from word `at` on, and the word after them.

    The last of an object is its end record, which is checked here.
    """
    words = data.cast("B").cast("I")  # of this machine, whose order of bytes GPUs share
    last = len(words) - _ENTRY_WORDS
    starts: list[int] = []
    take = starts.append
    for _ in range(most):
        if at > last:
            break
        take(at)
        at += _ENTRY_WORDS + (words[at + 3] >> 2)
    if at > last and most:
        if at != len(words) or not starts or words[starts[-1]] != END_BLOCK:
            raise TruncatedError("the object does not end with its end record")
        if any(words[starts[-1] + 1 :]):
            raise FormatError("the end record is not zero")
    return np.array(starts, np.int64), at
