"""Counts of several ranks, added up: the tables of one rank, and refusals of what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sync_runtime.codec.cpu.steps import count_block
from sync_runtime.codec.frame import parse_object
from sync_runtime.codec.tables import MAX_CLASSES, MAX_CONTEXTS, Histograms, is_sampled, num_counts
from sync_runtime.delta.cpu import extract_block
from sync_runtime.errors import FormatError, LocalProtocolError, SyncError, TruncatedError
from sync_runtime.offline import diff, layout_of
from sync_runtime.session.ranks.counting import Counting
from sync_runtime.tensors.bits import bind, gather
from sync_runtime.tensors.blocks import BlockMap
from tests.support.states import next_state, small_state

OLD = small_state()
NEW = next_state(OLD, 1, 40)
LAYOUT = layout_of(OLD)
BLOCKS = BlockMap(LAYOUT)
Counts = NDArray[np.int64]


def counted(numbers: list[int]) -> Counts:
    """What a rank with these blocks sends."""
    old, new, sums = bind(LAYOUT, OLD), bind(LAYOUT, NEW), Histograms()
    for block in (BLOCKS.block(number) for number in numbers):
        before, after = gather(block, old), gather(block, new)
        delta = extract_block(before, after, block.number)
        if delta.positions.size:
            sampled = is_sampled(BLOCKS.groups[block.group])
            sums.add(count_block(before, delta.positions, delta.differences, block, sampled=sampled))
    codes = sorted({group.dtype.code for group in BLOCKS.groups})
    nothing, none = np.zeros(MAX_CONTEXTS, np.int64), np.zeros((MAX_CONTEXTS, MAX_CLASSES), np.int64)
    parts = [sums.elements.get(at, nothing) for at in range(len(BLOCKS.groups))]
    parts += [sums.changed.get(at, nothing) for at in range(len(BLOCKS.groups))]
    parts += [sums.classes.get(code, none).reshape(-1) for code in codes]
    return np.concatenate(parts)


def sent(counting: Counting, rank: int, counts: Counts, step: int = 1001) -> None:
    data = counts.astype("<i8").tobytes()
    counting.begin(rank)
    for at in range(0, len(data), step):
        counting.feed(rank, memoryview(data)[at : at + step])
    counting.end(rank)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_tables_of_all_ranks_counts_are_those_of_one_rank(ranks: int) -> None:
    counting = Counting(BLOCKS, ranks)
    numbers = list(range(BLOCKS.num_blocks))
    for rank in range(ranks):
        assert not counting.is_complete
        sent(counting, rank, counted(numbers[rank::ranks]))
    assert counting.is_complete
    _, tables, _ = parse_object(memoryview(bytes(diff(OLD, NEW, codec="tight", layout=LAYOUT).object)))
    assert len(tables) > 0
    assert counting.tables() == bytes(tables)


def test_ranks_that_counted_nothing_make_no_tables() -> None:
    counting = Counting(BLOCKS, 2)
    for rank in (0, 1):
        sent(counting, rank, np.zeros(num_counts(BLOCKS), np.int64))
    assert counting.tables() == b""


def refused(counts: Counts, kind: type[SyncError], sentence: str) -> None:
    def tables() -> bytes:
        counting = Counting(BLOCKS, 1)
        sent(counting, 0, counts)
        return counting.tables()

    with pytest.raises(kind, match=sentence):
        tables()


def test_counts_that_cannot_be_are_refused() -> None:
    good = counted(list(range(BLOCKS.num_blocks)))
    refused(good[:-1], TruncatedError, "sent")
    refused(np.append(good, 0), FormatError, "more than")
    refused(-good, FormatError, "cannot be")
    refused(good + (1 << 49), FormatError, "cannot be")
    refused(good + (1 << 40), FormatError, "than the layout has")
    doubled = good.copy()
    doubled[: 2 * len(BLOCKS.groups) * MAX_CONTEXTS] *= 1 << 20
    refused(doubled, FormatError, "ranks counted")
    moved = good.copy()
    at = int(np.flatnonzero(moved[-MAX_CONTEXTS * MAX_CLASSES :])[0])
    moved[moved.size - MAX_CONTEXTS * MAX_CLASSES + at] += 1
    refused(moved, FormatError, "by class")


def test_a_rank_counts_once() -> None:
    counting = Counting(BLOCKS, 2)
    counting.begin(0)
    with pytest.raises(LocalProtocolError, match="twice"):
        counting.begin(0)
