"""Several deltas side by side, block by block: what merge and invert read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sync_runtime.codec.frame import Record
from sync_runtime.codec.limits import MODE_TIGHT
from sync_runtime.errors import MissingBaseError
from sync_runtime.offline.deltafile import Delta
from sync_runtime.offline.staging import apply_differences, check_totals
from sync_runtime.tensors.blocks import Block
from sync_runtime.tensors.sparse import Bits, SparseBlock


class Chain:
    """The records of consecutive deltas, by block. Whether a block exists shows when it is asked for.

    A tight record is decoded against the base plus the records before it.
    """

    def __init__(self, deltas: Sequence[Delta], old: Callable[[Block], Bits] | None) -> None:
        self._old = old
        self._readers = [delta.reader() for delta in deltas]
        self._records: dict[int, list[tuple[int, Record]]] = {}
        for at, (delta, reader) in enumerate(zip(deltas, self._readers, strict=True)):
            num_blocks, num_changed = 0, 0
            for record in reader.raw_records():
                self._records.setdefault(record.block, []).append((at, record))
                num_blocks += 1
                num_changed += record.count
            check_totals(delta, num_blocks, num_changed)

    @property
    def numbers(self) -> list[int]:
        """The blocks that any delta names, ascending."""
        return sorted(self._records)

    def parts(self, block: Block) -> list[Record | SparseBlock]:
        """A block's records in order; decoded where one of them is tight."""
        records = self._records[block.number]
        if all(record.mode != MODE_TIGHT for _, record in records):
            return [record for _, record in records]
        return [part for part, _ in self._walk(block)]

    def after(self, block: Block) -> Bits:
        """The block as the last delta leaves it."""
        return list(self._walk(block))[-1][1]

    def _walk(self, block: Block) -> Iterator[tuple[SparseBlock, Bits]]:
        """The block's differences one after the other, each with the elements it leaves behind."""
        if self._old is None:
            raise MissingBaseError("a delta of this chain is coded tight: the base's weights are needed")
        bits = self._old(block)
        for at, record in self._records[block.number]:
            part = self._readers[at].decode(block, record, bits)
            bits = apply_differences(bits, part)
            yield part, bits
