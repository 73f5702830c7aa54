"""An object from anywhere, decoded on the device to lists of (position, new bits); live weights are only read.

The host checks what sizes can tell (FORMAT.md, sections 5, 6 and 11) before a kernel runs; kernels bound every read by
these sizes and every write by the block's part of the list, and note what else is wrong in a status word per block. No
list is handed out while a status is not zero.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sync_runtime.codec.frame import Header, parse_header, truncated_layout_hash
from sync_runtime.codec.gpu import plans
from sync_runtime.codec.gpu.plans import Ints
from sync_runtime.codec.gpu.read import STREAM_ROOM, SectionRead
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
from sync_runtime.codec.tables import Tables, parse_tables
from sync_runtime.errors import FormatError, LimitError, TruncatedError, UnknownFormatError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.overlay import Overlay

_ENTRY_WORDS = ENTRY_BYTES // 4


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
        self._pinned = torch.empty(0, dtype=torch.uint8)
        self._home: Ints = np.full((blocks.num_blocks, 2), -1, np.int64)
        for at, bound in enumerate(base):
            numbers = bound.section.numbers.cpu().numpy()
            self._home[numbers, 0] = at
            self._home[numbers, 1] = np.arange(numbers.size)

    def decode(self, data: bytes | memoryview, over: Sequence[Overlay] | None = None) -> list[ChangeList]:
        """One list of new bits per section; raises FormatError or LimitError and hands out nothing otherwise.

        `over`: per section what is staged already; the object's base is then the state under it. The lists are the
        decoder's own and hold until it decodes again.
        """
        view = memoryview(data)
        return self.decode_uploaded(view, self.upload(view), over)

    def upload(self, data: memoryview) -> torch.Tensor:
        """An object's words and some room on the device. The copy may still be under way when this returns."""
        if len(data) % 4:
            raise FormatError("an object is a multiple of four bytes")
        device = self.reads[0].section.device
        source = np.frombuffer(data, np.uint8)
        stream = torch.zeros(source.size // 4 + STREAM_ROOM, dtype=torch.int32, device=device)
        target = stream.view(torch.uint8)[: source.size]
        if device.type != "cuda":
            target.numpy()[:] = source
            return stream
        if self._pinned.numel() < source.size:
            self._pinned = torch.empty(source.size, dtype=torch.uint8, pin_memory=True)
        self._pinned.numpy()[: source.size] = source
        target.copy_(self._pinned[: source.size], non_blocking=True)
        return stream

    def decode_uploaded(
        self, data: memoryview, stream: torch.Tensor, over: Sequence[Overlay] | None = None
    ) -> list[ChangeList]:
        """As `decode`, of an object that `upload` has brought to the device."""
        records, tables = self.parse(data)
        for at, (read, found) in enumerate(zip(self.reads, records, strict=True)):
            read.prepare(found, stream, tables, len(self.blocks.groups), None if over is None else over[at])
        for read in self.reads:
            read.launch()
        for read in self.reads:
            read.check()
        return [read.changes for read in self.reads]

    def parse(self, data: memoryview) -> tuple[list[Records], Tables]:
        """Entries by section, and tables; everything that needs no kernel is checked here."""
        if len(data) % 4:
            raise FormatError("an object is a multiple of four bytes")
        header = parse_header(data)
        if header.kind != KIND_DELTA:
            raise FormatError("this object is an anchor, not a delta")
        if header.layout_hash != truncated_layout_hash(self.blocks.layout.hash):
            raise FormatError("the object was written under another layout")
        begin = HEADER_BYTES + header.tables_bytes
        if len(data) < begin:
            raise TruncatedError("the object ends inside its tables")
        tables = parse_tables(data[HEADER_BYTES:begin], self.blocks.groups)
        rows, homes = self._rows(data, begin // 4, header)
        records = []
        for at, read in enumerate(self.reads):
            here = homes[:, 0] == at
            found = np.zeros((5, read.section.num_blocks), np.int64)
            found[:, homes[here, 1]] = rows[:, here]
            records.append(Records(*found))
            _check_sizes(read, records[-1], data, tables)
        return records, tables

    def _rows(self, data: memoryview, at: int, header: Header) -> tuple[Ints, Ints]:
        """(mode, parameter, changed, body, body words) by record, and the section and place of its block."""
        starts = follow_entries(data, at, self.blocks.num_blocks)
        words = np.frombuffer(data, "<u4")
        block, kinds, changed, body_bytes = (words[starts + k].astype(np.int64) for k in range(_ENTRY_WORDS))
        mode, parameter, reserved = kinds & 0xFF, (kinds >> 8) & 0xFF, kinds >> 16
        if (np.diff(block) <= 0).any():
            raise FormatError("block numbers do not ascend")
        if not _marked(MODES_OF_CODEC[header.codec], 256)[mode].all():
            raise UnknownFormatError("a block has a mode that the object's codec does not use")
        if ((reserved != 0) | (body_bytes % 4 != 0) | (changed == 0)).any():
            raise FormatError("the entry of a block is malformed")
        if block.size and block[-1] >= self.blocks.num_blocks:
            raise FormatError(f"block {block[-1]} does not exist: the layout has {self.blocks.num_blocks}")
        homes = self._home[block]
        if (homes < 0).any():
            raise FormatError(f"block {block[np.argmin(homes[:, 0])]} is not among the blocks that are held here")
        return np.stack([mode, parameter, changed, starts + _ENTRY_WORDS, body_bytes // 4]), homes


def follow_entries(data: memoryview, at: int, most: int) -> Ints:
    """Word numbers of at most so many entries from word `at` up to the end record, which is checked and left out.

    Each entry says where the next one is: the one loop per record. Everything else is checked for all at once.
    """
    words = data.cast("B").cast("I")  # of this machine, whose order of bytes GPUs share
    starts: list[int] = []
    take = starts.append
    with contextlib.suppress(IndexError):  # behind the end; asking at each entry would take a third longer
        for _ in range(most + 1):
            body_bytes = words[at + 3]
            take(at)
            at += _ENTRY_WORDS + (body_bytes >> 2)
    if at != len(words) or not starts or words[starts[-1]] != END_BLOCK:
        raise TruncatedError("the object does not end with its end record")
    if any(words[starts[-1] + 1 :]):
        raise FormatError("the end record is not zero")
    return np.array(starts[:-1], np.int64)


def _marked(numbers: Sequence[int], size: int) -> NDArray[np.bool_]:
    """Which of the numbers below a size are among these: a table is quicker to ask than a set."""
    table = np.zeros(size, np.bool_)
    table[[number for number in numbers if number < size]] = True
    return table


def _refuse(read: SectionRead, bad: NDArray[np.bool_], what: str) -> None:
    if bad.any():
        raise FormatError(f"block {read.section.blocks[int(np.argmax(bad))].number} {what}")


def _check_sizes(read: SectionRead, records: Records, data: memoryview, tables: Tables) -> None:
    """Refuses what counts and sizes alone show to be wrong; afterwards every section of a body lies inside it."""
    elements, dtype = read.section.host_elements, read.section.dtype
    _refuse(read, records.changed > elements, "announces more changes than it has elements")
    dense = (elements * dtype.width_bytes + 3) // 4 * 4
    body_bytes = records.body_words * 4
    if (body_bytes > dense).any():
        raise LimitError("a body is larger than its block as dense")
    is_dense = records.mode == MODE_DENSE
    _refuse(read, is_dense & ((body_bytes != dense) | (records.parameter != 0)), "is dense with a wrong size")
    _check_fast(read, records, data)
    _check_tight(read, records, tables)


def _check_fast(read: SectionRead, records: Records, data: memoryview) -> None:
    fast, section = records.mode == MODE_FAST, read.section
    if not fast.any():
        return
    bits = plans.gap_bits(section.host_elements, records.changed)
    _refuse(read, fast & (records.parameter != bits), "has another gap width than its own")
    _refuse(read, fast & (records.body_words < 3), "is fast and ends inside its head")
    words = np.frombuffer(data, "<u4")
    heads = [words[np.where(fast, records.body + k, 0)].astype(np.int64) for k in range(3)]
    expected = plans.fast_bytes(heads[0], bits, heads[1], heads[2], section.dtype.width_bits)
    _refuse(read, fast & (expected != 4 * records.body_words), "has sections that do not fill its body")
    _refuse(read, fast & (heads[0] < records.changed), "has fewer symbols than changes")


def _check_tight(read: SectionRead, records: Records, tables: Tables) -> None:
    tight, section = records.mode == MODE_TIGHT, read.section
    if not tight.any():
        return
    places = plans.log2_position_lanes(section.host_elements, records.changed)
    values = plans.log2_value_lanes(records.changed)
    _refuse(read, tight & (records.parameter != places), "has another number of lanes than its own")
    heads = (1 << places) + ((1 << places) + 1) // 2 + (1 << values) + ((1 << values) + 1) // 2
    _refuse(read, tight & (records.body_words < heads), "is tight and ends inside its head")
    known = _marked(list(tables.position), int(read.host_groups.max()) + 1)[read.host_groups]
    if section.dtype.code not in tables.value:
        known[:] = False
    _refuse(read, tight & ~known, "is tight, but its tables are missing")
