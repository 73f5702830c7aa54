"""An object from anywhere, decoded on the device to lists of (position, new bits); live weights are only read.

The host checks what sizes can tell (FORMAT.md, sections 5, 6 and 11) before a kernel runs; kernels bound every read by
these sizes and every write by the block's part of the list, and note what else is wrong in a status word per block. No
list is handed out while a status is not zero.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sync_runtime.codec.gpu.entries import EntryReader, Homes, Records
from sync_runtime.codec.gpu.read import STREAM_ROOM, SectionRead
from sync_runtime.codec.tables import Tables
from sync_runtime.errors import FormatError
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.device.bind import Bound
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.overlay import Overlay

FIRST_SHARE = 8
"""This part of the blocks is decoded while the host still reads the entries of the others."""


class DeltaDecoder:
    """Decodes objects against one state, again and again."""

    def __init__(self, blocks: BlockMap, base: Sequence[Bound], *, capacity: int = 0) -> None:
        self.blocks = blocks
        self.reads = [SectionRead(bound, capacity) for bound in base]
        self._homes = Homes(blocks, [bound.section for bound in base])
        self._pinned = torch.empty(0, dtype=torch.uint8)

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
        entries = EntryReader(self._homes, data)
        for at, read in enumerate(self.reads):
            read.begin(stream, entries.tables, len(self.blocks.groups), None if over is None else over[at])
        self._launch(entries.take(max(1, self.blocks.num_blocks // FIRST_SHARE)))
        self._launch(entries.rest())
        for read in self.reads:
            read.check()
        return [read.changes for read in self.reads]

    def _launch(self, records: Sequence[Records]) -> None:
        for read, found in zip(self.reads, records, strict=True):
            read.launch_lot(found)

    def parse(self, data: memoryview) -> tuple[list[Records], Tables]:
        """All entries by section, and tables, without decoding anything."""
        entries = EntryReader(self._homes, data)
        return entries.rest(), entries.tables
