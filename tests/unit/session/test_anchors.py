"""Which blocks an anchor is made of: batches, and what a key and the blocks beside it ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sync_runtime.bucket.keys import ANCHOR, ObjectKey, VersionRef, repair_key
from sync_runtime.errors import ChainError
from sync_runtime.session.publish.anchors import Order, batches, ordered
from sync_runtime.session.versions import Versions
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import make_layout

A, B = "a" * 32, "b" * 32
LAYOUT = make_layout([("w", "BF16", (3000, 1024)), ("b", "F32", (8,)), ("i", "I64", ())])
BLOCKS = BlockMap(LAYOUT)


def ask(key: ObjectKey, ranges: list[list[int]] | None) -> Order:
    """Asked of a publisher that stands on version 5 of lineage A."""
    versions = Versions()
    versions.learn_lineage(A, [(seq, f"{seq:032x}") for seq in range(6)], start=None)
    context = SimpleNamespace(versions=versions)
    standing = SimpleNamespace(version=VersionRef(A, 5), layout=LAYOUT)
    return ordered(cast("Any", context), cast("Any", standing), key, ranges)


def whole(seq: int, lineage: str = A) -> ObjectKey:
    return ObjectKey(lineage, None, None, seq, ANCHOR)


@pytest.mark.parametrize("most_bytes", [1, 1 << 20, 5 << 20, 1 << 40])
def test_batches_bring_every_block_once_and_are_no_larger_than_they_may_be(most_bytes: int) -> None:
    numbers = list(range(BLOCKS.num_blocks))
    assert len(numbers) > 3
    found = list(batches(BLOCKS, numbers, most_bytes))
    assert [number for batch in found for number in batch] == numbers
    for batch in found:
        sizes = [BLOCKS.block(number).num_elements * BLOCKS.block(number).dtype.width_bytes for number in batch]
        assert len(batch) == 1 or sum(sizes) <= most_bytes


def test_a_whole_anchor_is_of_all_blocks_of_any_version_up_to_the_newest() -> None:
    for seq in (3, 5):
        order = ask(whole(seq), None)
        assert (list(order.numbers), order.target.seq, order.is_whole) == (list(range(BLOCKS.num_blocks)), seq, True)


def test_a_repair_is_of_the_blocks_that_its_key_stands_for() -> None:
    ranges = [[0, 2], [3, 4]]
    order = ask(repair_key(VersionRef(A, 4), ranges), ranges)
    assert (order.numbers, order.is_whole) == ([0, 1, 3], False)


@pytest.mark.parametrize(
    ("key", "ranges"),
    [
        (whole(6), None),
        (whole(5, B), None),
        (whole(5), [[0, 1]]),
        (repair_key(VersionRef(A, 5), [[0, 1]]), None),
        (repair_key(VersionRef(A, 5), [[0, 1]]), [[0, 2]]),
        (repair_key(VersionRef(A, 5), []), []),
        (repair_key(VersionRef(A, 5), [[1, 2], [0, 1]]), [[1, 2], [0, 1]]),
        (repair_key(VersionRef(A, 5), [[2, 2]]), [[2, 2]]),
        (repair_key(VersionRef(A, 5), [[0, 1 << 40]]), [[0, 1 << 40]]),
    ],
    ids=["newer", "lineage", "no part", "no blocks", "other", "none", "order", "empty", "beyond"],
)
def test_what_a_key_does_not_stand_for_is_not_made(key: ObjectKey, ranges: list[list[int]] | None) -> None:
    with pytest.raises(ChainError):
        ask(key, ranges)
