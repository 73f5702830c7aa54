"""Change lists to an object on the device: measures, chooses the smallest mode per block, writes the records.

Byte for byte what `codec.cpu` writes. Workspaces are kept between calls and grow only where they were too small.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sync_runtime.codec.frame import END_RECORD, Header, pack_header
from sync_runtime.codec.gpu import fast_kernels, gpu_tables, record_kernels, value_kernels
from sync_runtime.codec.gpu.lanes import LIST_SIZE, LaneCoder, Part
from sync_runtime.codec.gpu.plans import Ints
from sync_runtime.codec.limits import (
    CODEC_AUTO,
    CODEC_FAST,
    ENTRY_BYTES,
    KIND_DELTA,
    LAYOUT_HASH_BYTES,
    MODE_FAST,
    MODE_TIGHT,
    MODES_OF_CODEC,
)
from sync_runtime.codec.rules import GAP_BITS, GAP_THRESHOLDS, SAMPLE_EVERY, SAMPLE_RUN_BITS
from sync_runtime.codec.tables import MAX_CLASSES, MAX_CONTEXTS, Tables, is_sampled, pack_tables
from sync_runtime.errors import LayoutError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.scratch import Scratch

_PARTS = 8
_ENTRIES = 128
_PIECE_WORDS = 16 << 20
WRITE_SIZE = 512
"""List entries that a writer of fast bodies takes at a time: more need too many registers."""


_DeviceTables = gpu_tables.PairOfTables


def _packed(tables: _DeviceTables | None) -> bytes:
    return b"" if tables is None else pack_tables(gpu_tables.to_tables(*tables))


@dataclass(frozen=True)
class EncodedObject:
    """An object: records on the device, tables on the host."""

    codec: int
    records: torch.Tensor
    """int32 words, without the end record, in memory that extraction uses too: valid until the next object is made or
    the next extraction begins, whichever is first."""
    device_tables: _DeviceTables | None
    """Position table and value tables by dtype code; None for fast."""

    @property
    def tables(self) -> bytes:
        """The tables section."""
        return _packed(self.device_tables)

    def pieces(self, layout_hash: bytes) -> Iterator[bytes]:
        """The whole object on the host, piece by piece."""
        tables = self.tables
        yield pack_header(Header(KIND_DELTA, self.codec, layout_hash[:LAYOUT_HASH_BYTES], len(tables))) + tables
        for part in self.records.split(_PIECE_WORDS):
            yield part.cpu().numpy().astype("<i4", copy=False).tobytes()
        yield END_RECORD

    def to_bytes(self, layout_hash: bytes) -> bytes:
        """The whole object on the host."""
        return b"".join(self.pieces(layout_hash))


class DeviceHistograms:
    """What tables are built from, in one tensor: ranks add `words` up (an all-reduce) before they encode.

    Every rank of a layout has the same shape, whichever blocks it owns.
    """

    def __init__(self, blocks: BlockMap, device: torch.device) -> None:
        groups, codes = len(blocks.groups), sorted({group.dtype.code for group in blocks.groups})
        rows, cells = groups * MAX_CONTEXTS, MAX_CONTEXTS * MAX_CLASSES
        self.words = torch.zeros(2 * rows + len(codes) * cells, dtype=torch.int64, device=device)
        """int64: all counts."""
        self.elements = self.words[:rows].view(groups, MAX_CONTEXTS)
        """Elements per group and context, sampled where the format says so."""
        self.changed = self.words[rows : 2 * rows].view(groups, MAX_CONTEXTS)
        """Changed elements per group and context."""
        self.classes = {
            code: self.words[2 * rows + at * cells :][:cells].view(MAX_CONTEXTS, MAX_CLASSES)
            for at, code in enumerate(codes)
        }
        """Per dtype code: changed elements per context and class."""


class _SectionState:
    """What is known of a section's blocks while an object is made; tensors [B] on the device."""

    def __init__(self, part: Part, *, tight: bool) -> None:
        self.part, self.section = part, part.old.section
        size, device = self.section.num_blocks, self.section.device
        self.lanes = LaneCoder(part) if tight else None
        self.totals = torch.empty((size, 3), dtype=torch.int32, device=device)
        self.changed: Ints = np.zeros(size, np.int64)
        self.gap_bits = torch.zeros(size, dtype=torch.int32, device=device)
        self._widths = torch.tensor(GAP_BITS, dtype=torch.int32, device=device)
        self._thresholds = torch.tensor(GAP_THRESHOLDS, dtype=torch.int64, device=device)
        self.mode = torch.zeros(size, dtype=torch.int32, device=device)
        self.parameter = torch.zeros(size, dtype=torch.int32, device=device)
        self.body_bytes = torch.zeros(size, dtype=torch.int64, device=device)
        self.record_bytes = torch.zeros(size, dtype=torch.int64, device=device)
        self.body = torch.zeros(size, dtype=torch.int64, device=device)

    def read_changed(self) -> None:
        """How much changed in each block: what the host must know to lay out lanes."""
        self.changed = np.diff(self.part.changes.first.cpu().numpy())

    def plan_lanes(self) -> None:
        """Lays out lanes for it."""
        if self.lanes is not None:
            self.lanes.plan(self.changed)

    def measure(self) -> None:
        """Gap widths, symbols, escapes and raw entries of fast bodies, without waiting for the host."""
        changes, width = self.part.changes, self.section.dtype.width_bits
        fast_kernels.fast_measure[(self.section.num_blocks,)](
            changes.where, changes.value, changes.first, self.section.elements, self._widths, self._thresholds,
            self.gap_bits, self.totals, RULES=len(GAP_BITS), WIDTH=width, SIZE=LIST_SIZE,
        )  # fmt: skip

    def choose(self, modes: tuple[int, ...]) -> None:
        """The smallest body per block; of equals the lower mode."""
        section, lanes = self.section, self.lanes if MODE_TIGHT in modes else None
        record_kernels.choose_modes[(-(-section.num_blocks // _ENTRIES),)](
            self.part.changes.first, section.elements, self.gap_bits, self.totals,
            self.body_bytes if lanes is None else lanes.sizes, self.mode if lanes is None else lanes.log2_places,
            self.mode, self.parameter, self.body_bytes, self.record_bytes, section.num_blocks,
            FAST=MODE_FAST in modes, TIGHT=lanes is not None, WIDTH=section.dtype.width_bits, SIZE=_ENTRIES,
        )  # fmt: skip

    def write(self, out: torch.Tensor) -> None:
        """Entries and bodies into zeroed words."""
        section, old, new, changes = self.section, self.part.old, self.part.new, self.part.changes
        fast_kernels.fast_write[(section.num_blocks,)](
            changes.where, changes.value, changes.first, self.gap_bits, self.totals, self.mode, self.body, out,
            WIDTH=section.dtype.width_bits, SIZE=WRITE_SIZE,
        )  # fmt: skip
        record_kernels.write_entries[(-(-section.num_blocks // _ENTRIES),)](
            section.numbers, self.mode, self.parameter, changes.first, self.body, self.body_bytes, out,
            section.num_blocks,
            _ENTRIES,
        )  # fmt: skip
        record_kernels.dense_write[(section.num_blocks, _PARTS)](
            self.mode, self.body, out, section.elements, old.blocks.address, old.blocks.row_stride,
            old.blocks.col_stride, new.blocks.address, new.blocks.row_stride, new.blocks.col_stride, old.blocks.cols,
            WIDTH=section.dtype.width_bits, OLD_FLAT=old.flat, NEW_FLAT=new.flat, CAST=new.cast, NAN=new.nan_bits,
            SIZE=LIST_SIZE,
        )  # fmt: skip
        if self.lanes is not None:
            self.lanes.write(out, self.mode, self.body)


class DeltaEncoder:
    """Encodes the changes of a layout's sections, again and again."""

    def __init__(self, blocks: BlockMap, parts: Sequence[Part], codec: int) -> None:
        self.codec, self.modes = codec, MODES_OF_CODEC[codec]
        self.device = parts[0].old.section.device
        self.sections = [_SectionState(part, tight=MODE_TIGHT in self.modes) for part in parts]
        groups = blocks.groups
        self._sampled = torch.tensor([is_sampled(group) for group in groups], dtype=torch.bool, device=self.device)
        self._order = torch.argsort(torch.cat([one.section.numbers for one in self.sections]))
        self._largest = max(self.sections, key=lambda one: one.section.num_elements)
        lent = None if MODE_TIGHT in self.modes else self._largest.part.scratch  # tight needs it for words of lanes
        self._memory = lent or Scratch(self.device)
        self._histograms = DeviceHistograms(blocks, self.device)
        self._counted = False

    @property
    def num_named(self) -> int:
        """Blocks that the last object names: those that changed."""
        return sum(int((one.mode > 0).sum().item()) for one in self.sections)

    def encode(self, histograms: DeviceHistograms | None = None, *, given: Tables | None = None) -> EncodedObject:
        """An object of the parts' lists, which must be whole.

        `histograms`: those that `count` returned for these lists, once all ranks' were added up in them; each rank's
        records are then those that one rank holding everything would write. `given`: the tables that come of that.
        `auto` compares whole objects, so ranks that hold parts ask for fast or tight.
        """
        if (histograms is not None or given is not None) and (self.codec == CODEC_AUTO or not self._counted):
            raise LayoutError("counts from elsewhere need a tight encoder that has counted these lists itself")
        tables = self._code_tight(histograms, given) if MODE_TIGHT in self.modes else None
        self._counted = False
        codec = self.codec
        for one in self.sections:
            if MODE_FAST in self.modes:
                one.measure()
        total = self._choose(self.modes)
        if codec == CODEC_AUTO:
            smaller = self._choose(MODES_OF_CODEC[CODEC_FAST])
            if smaller <= total + len(_packed(tables)):
                codec, tables, total = CODEC_FAST, None, smaller
            else:
                self._choose(self.modes)
        out = self._room(total)
        for one in self.sections:
            one.write(out)
        return EncodedObject(codec, out, tables)

    def count(self) -> DeviceHistograms:
        """Histograms of the parts' lists, for `encode`: the encoder's own, overwritten by the next count."""
        self._histograms.words.zero_()
        for one in self.sections:
            self._count_section(one)
        self._counted = True
        return self._histograms

    def _count_section(self, one: _SectionState) -> None:
        section, old, changes, dtype = one.section, one.part.old, one.part.changes, one.section.dtype
        bins = max(32, dtype.num_contexts)
        sampled = self._sampled[section.groups.long()].to(torch.int32)
        value_kernels.count_contexts[(section.num_blocks, _PARTS)](
            changes.first, section.elements, section.groups, sampled, old.blocks.address, old.blocks.row_stride,
            old.blocks.col_stride, old.blocks.cols, self._histograms.elements, WIDTH=dtype.width_bits,
            SHIFT=dtype.context_shift, CONTEXTS=dtype.num_contexts, FLAT=old.flat, RUN=1 << SAMPLE_RUN_BITS,
            EVERY=SAMPLE_EVERY, BINS=bins,
        )  # fmt: skip
        value_kernels.count_changes[(section.num_blocks,)](
            changes.where, changes.value, changes.first, section.groups, self._histograms.changed,
            self._histograms.classes[dtype.code], one.lanes.extra_bits if one.lanes else None, WIDTH=dtype.width_bits,
            SIZE=LIST_SIZE, BINS=bins,
        )  # fmt: skip

    def _code_tight(self, histograms: DeviceHistograms | None, given: Tables | None) -> _DeviceTables:
        """Codes all lanes under tables of the histograms, or those given; returns the tables."""
        for one in self.sections:
            one.read_changed()
        counts = self.count() if histograms is None and given is None else histograms or self._histograms
        for one in self.sections:
            one.plan_lanes()  # while the device counts
        if given is not None:
            position, frequencies = gpu_tables.tables_on(given, len(self._sampled), counts.classes, self.device)
        else:
            position = gpu_tables.position_table(counts.changed, counts.elements, self._sampled)
            frequencies = {code: gpu_tables.value_table(classes) for code, classes in counts.classes.items()}
        entries = gpu_tables.position_entries(position)
        for one in self.sections:
            if one.lanes is not None:
                one.lanes.code(one.changed, entries, gpu_tables.class_entries(frequencies[one.section.dtype.code]))
        return position, frequencies

    def _choose(self, modes: tuple[int, ...]) -> int:
        """Gives every block its mode and its place, in block order over all sections; returns all records' bytes."""
        for one in self.sections:
            one.choose(modes)
        sizes = torch.cat([one.record_bytes for one in self.sections])[self._order]
        ends = sizes.cumsum(0)
        bodies = torch.empty_like(ends)
        bodies[self._order] = (ends - sizes + ENTRY_BYTES) >> 2
        for one, body in zip(
            self.sections, bodies.split([one.section.num_blocks for one in self.sections]), strict=True
        ):
            one.body = body
        return int(ends[-1].item())

    def _room(self, size_bytes: int) -> torch.Tensor:
        """Zeroed words for all records: the list's unused end where it suffices and is known, else scratch."""
        words, one = size_bytes // 4, self._largest
        spare, _ = one.part.changes.spare(int(one.changed.sum()))
        found = spare[:words] if one.lanes and spare.numel() >= words else self._memory.take(words, torch.int32)
        return found.zero_()
