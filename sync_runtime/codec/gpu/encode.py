"""Change lists to an object on the device: measures, chooses the smallest mode per block, writes the records.

Byte for byte what `codec.cpu` writes. Workspaces are kept between calls and grow only where they were too small.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from sync_runtime.codec.tables import MAX_CLASSES, MAX_CONTEXTS, is_sampled, pack_tables
from sync_runtime.tensors.blocks import BlockMap

_PARTS = 8
_ENTRIES = 128
WRITE_SIZE = 512
"""List entries that a writer of fast bodies takes at a time: more need too many registers."""


@dataclass(frozen=True)
class EncodedObject:
    """An object: records on the device, tables on the host."""

    codec: int
    records: torch.Tensor
    """int32 words, without the end record; valid until the next object is made."""
    device_tables: tuple[torch.Tensor, dict[int, torch.Tensor]] | None
    """Position table and value tables by dtype code; None for fast."""

    @property
    def tables(self) -> bytes:
        """The tables section."""
        return b"" if self.device_tables is None else pack_tables(gpu_tables.to_tables(*self.device_tables))

    def to_bytes(self, layout_hash: bytes) -> bytes:
        """The whole object on the host."""
        tables = self.tables
        header = pack_header(Header(KIND_DELTA, self.codec, layout_hash[:LAYOUT_HASH_BYTES], len(tables)))
        return b"".join([header, tables, self.records.cpu().numpy().astype("<i4").tobytes(), END_RECORD])


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
        self._out = torch.empty(0, dtype=torch.int32, device=self.device)
        self.elements = torch.zeros((len(groups), MAX_CONTEXTS), dtype=torch.int64, device=self.device)
        """Elements per group and context, sampled where the format says so."""
        self.changed = torch.zeros_like(self.elements)
        """Changed elements per group and context."""
        self.classes = {
            one.section.dtype.code: torch.zeros((MAX_CONTEXTS, MAX_CLASSES), dtype=torch.int64, device=self.device)
            for one in self.sections
        }
        """Per dtype: changed elements per context and class."""

    def encode(self) -> EncodedObject:
        """An object of the parts' lists, which must be whole."""
        tables = self._code_tight() if MODE_TIGHT in self.modes else None
        encoded = EncodedObject(self.codec, self._out, tables)
        for one in self.sections:
            if MODE_FAST in self.modes:
                one.measure()
        total = self._choose(self.modes)
        if self.codec == CODEC_AUTO:
            smaller = self._choose(MODES_OF_CODEC[CODEC_FAST])
            if smaller <= total + len(encoded.tables):
                encoded, total = EncodedObject(CODEC_FAST, self._out, None), smaller
            else:
                self._choose(self.modes)
        out = self._room(total)
        for one in self.sections:
            one.write(out)
        return replace(encoded, records=out)

    def count(self) -> None:
        """Fills the histograms that tables are built from; ranks add theirs before the tables are built."""
        self.elements.zero_()
        self.changed.zero_()
        for one in self.sections:
            self._count_section(one)

    def _count_section(self, one: _SectionState) -> None:
        section, old, changes, dtype = one.section, one.part.old, one.part.changes, one.section.dtype
        bins = max(32, dtype.num_contexts)
        sampled = self._sampled[section.groups.long()].to(torch.int32)
        value_kernels.count_contexts[(section.num_blocks, _PARTS)](
            changes.first, section.elements, section.groups, sampled, old.blocks.address, old.blocks.row_stride,
            old.blocks.col_stride, old.blocks.cols, self.elements, WIDTH=dtype.width_bits, SHIFT=dtype.context_shift,
            CONTEXTS=dtype.num_contexts, FLAT=old.flat, RUN=1 << SAMPLE_RUN_BITS, EVERY=SAMPLE_EVERY, BINS=bins,
        )  # fmt: skip
        value_kernels.count_changes[(section.num_blocks,)](
            changes.where, changes.value, changes.first, section.groups, self.changed,
            self.classes[dtype.code].zero_(), one.lanes.extra_bits if one.lanes else None, WIDTH=dtype.width_bits,
            SIZE=LIST_SIZE, BINS=bins,
        )  # fmt: skip

    def _code_tight(self) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Codes all lanes under tables of the histograms; returns the tables."""
        for one in self.sections:
            one.read_changed()
        self.count()
        for one in self.sections:
            one.plan_lanes()  # while the device counts
        position = gpu_tables.position_table(self.changed, self.elements, self._sampled)
        frequencies = {code: gpu_tables.value_table(counts) for code, counts in self.classes.items()}
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
        """Zeroed words for all records."""
        words = size_bytes // 4
        if self._out.numel() < words:
            self._out = torch.empty(0, dtype=torch.int32, device=self.device)
            self._out = torch.empty(words + words // 16, dtype=torch.int32, device=self.device)
        return self._out[:words].zero_()
