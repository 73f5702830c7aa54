"""An object from anywhere, decoded on the device to lists of (position, new bits); live weights are only read.

The host checks what sizes can tell (FORMAT.md, sections 5, 6 and 11) before a kernel runs; kernels bound every read by
these sizes and every write by the block's part of the list, and note what else is wrong in a status word per block. No
list is handed out while a status is not zero.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.gpu import plans
from sync_runtime.codec.gpu.plans import Ints
from sync_runtime.codec.gpu.read import SectionRead
from sync_runtime.codec.limits import ENTRY_BYTES, HEADER_BYTES, MODE_DENSE, MODE_FAST, MODE_TIGHT, max_body_bytes
from sync_runtime.codec.tables import Tables, parse_tables
from sync_runtime.errors import FormatError, LimitError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import Section


@dataclass(frozen=True)
class Records:
    """What the entries of an object say about a section's blocks; numpy [B], zero where a block is not named."""

    mode: Ints
    parameter: Ints
    changed: Ints
    body: Ints
    """Where the body begins, in words of the object."""
    body_words: Ints


class DeltaDecoder:
    """Decodes objects against one state, again and again."""

    def __init__(self, blocks: BlockMap, base: Sequence[Bound], *, capacity: int = 0) -> None:
        self.blocks = blocks
        self.reads = [SectionRead(bound, capacity) for bound in base]
        self._home = np.full((blocks.num_blocks, 2), -1, np.int64)
        for at, bound in enumerate(base):
            numbers = bound.section.numbers.cpu().numpy()
            self._home[numbers, 0] = at
            self._home[numbers, 1] = np.arange(numbers.size)

    def decode(self, data: bytes | memoryview) -> list[ChangeList]:
        """One list per section; raises FormatError or LimitError and hands out nothing where bytes are not right."""
        records, tables = self.parse(memoryview(data))
        words = np.frombuffer(data, np.uint8)
        stream = torch.from_numpy(words.view("<i4").copy()).to(self.reads[0].section.device, non_blocking=True)
        for read, found in zip(self.reads, records, strict=True):
            read.prepare(found, stream, tables, len(self.blocks.groups))
        for read in self.reads:
            read.launch()
        for read in self.reads:
            read.check()
        return [read.changes for read in self.reads]

    def parse(self, data: memoryview) -> tuple[list[Records], Tables]:
        """Entries by section, and tables; everything that needs no kernel is checked here."""
        if len(data) % 4:
            raise FormatError("an object is a multiple of four bytes")
        header, section, entries = parse_object(data)
        tables = parse_tables(section, self.blocks.groups)
        found = [np.zeros((5, read.section.num_blocks), np.int64) for read in self.reads]
        at = HEADER_BYTES + header.tables_bytes
        for record in entries:
            if record.block >= self.blocks.num_blocks:
                raise FormatError(f"block {record.block} does not exist: the layout has {self.blocks.num_blocks}")
            home, index = self._home[record.block]
            if home < 0:
                raise FormatError(f"block {record.block} is not among the blocks that are held here")
            size = len(record.body)
            found[home][:, index] = (record.mode, record.parameter, record.count, (at + ENTRY_BYTES) // 4, size // 4)
            at += ENTRY_BYTES + size
        sections = [Records(*rows) for rows in found]
        for read, one in zip(self.reads, sections, strict=True):
            _check_sizes(read.section, one, data, tables)
        return sections, tables


def _refuse(section: Section, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], what: str) -> None:
    if bad.any():
        raise FormatError(f"block {section.blocks[int(np.argmax(bad))].number} {what}")


def _check_sizes(section: Section, records: Records, data: memoryview, tables: Tables) -> None:
    """Refuses what counts and sizes alone show to be wrong; afterwards every section of a body lies inside it."""
    elements, dtype = section.host_elements, section.dtype
    _refuse(section, records.changed > elements, "announces more changes than it has elements")
    dense = (elements * dtype.width_bytes + 3) // 4 * 4
    body_bytes = records.body_words * 4
    limit = np.minimum(dense, [max_body_bytes(int(size)) for size in elements])
    if (body_bytes > limit).any():
        raise LimitError("a body is larger than its block as dense")
    is_dense = records.mode == MODE_DENSE
    _refuse(section, is_dense & ((body_bytes != dense) | (records.parameter != 0)), "is dense with a wrong size")
    _check_fast(section, records, data)
    _check_tight(section, records, tables)


def _check_fast(section: Section, records: Records, data: memoryview) -> None:
    fast = records.mode == MODE_FAST
    if not fast.any():
        return
    bits = plans.gap_bits(section.host_elements, records.changed)
    _refuse(section, fast & (records.parameter != bits), "has another gap width than its own")
    _refuse(section, fast & (records.body_words < 3), "is fast and ends inside its head")
    words = np.frombuffer(data, "<u4")
    heads = [words[np.where(fast, records.body + k, 0)].astype(np.int64) for k in range(3)]
    expected = plans.fast_bytes(heads[0], bits, heads[1], heads[2], section.dtype.width_bits)
    _refuse(section, fast & (expected != 4 * records.body_words), "has sections that do not fill its body")
    _refuse(section, fast & (heads[0] < records.changed), "has fewer symbols than changes")


def _check_tight(section: Section, records: Records, tables: Tables) -> None:
    tight = records.mode == MODE_TIGHT
    if not tight.any():
        return
    places = plans.log2_position_lanes(section.host_elements, records.changed)
    values = plans.log2_value_lanes(records.changed)
    _refuse(section, tight & (records.parameter != places), "has another number of lanes than its own")
    heads = (1 << places) + ((1 << places) + 1) // 2 + (1 << values) + ((1 << values) + 1) // 2
    _refuse(section, tight & (records.body_words < heads), "is tight and ends inside its head")
    known = np.array([block.group in tables.position for block in section.blocks])
    if section.dtype.code not in tables.value:
        known[:] = False
    _refuse(section, tight & ~known, "is tight, but its tables are missing")
