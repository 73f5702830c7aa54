"""BLOCKS and its answers: what is not the answer is refused, and whoever waits always hears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.codec.frame import END_RECORD, pack_header
from sync_runtime.errors import LibraryLostError, LocalProtocolError, SyncError
from sync_runtime.local.messages import Anchor, Blocks, Message
from sync_runtime.offline.anchors import AnchorBlock, anchor_header, raw_record
from sync_runtime.session.publish.asking import Answer, Asking
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import make_layout

A = "a" * 32
BLOCKS = BlockMap(make_layout([("w", "BF16", (5, 3)), ("b", "F32", (8,)), ("i", "I64", ())]))


class Library:
    """A link that writes down what it is told."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self.is_lost = is_lost
        self.said: list[Message] = []

    async def send(self, message: Message) -> None:
        self.said.append(message)


def raw(numbers: list[int], seq: int) -> bytes:
    parts = [pack_header(anchor_header(BLOCKS))]
    for block in map(BLOCKS.block, numbers):
        parts.append(raw_record(AnchorBlock(block, seq, np.arange(block.num_elements).astype(block.dtype.bits_dtype))))
    return b"".join([*parts, END_RECORD])


def fetch(answer: Callable[[Asking], None], library: Library | None = None) -> Answer:
    """Asks for blocks 0 and 2 while something answers."""

    async def run() -> Answer:
        asking = Asking()
        task = asyncio.create_task(asking.fetch(cast("Any", library or Library()), BLOCKS, [0, 2]))
        await asyncio.sleep(0)
        answer(asking)
        found = await asyncio.wait_for(task, 10)
        assert not asking.is_arriving
        return found

    return asyncio.run(run())


def give(asking: Asking, data: bytes, *, seq: int = 4, ranges: tuple[tuple[int, int], ...] = ((0, 1), (2, 3))) -> None:
    asking.begin(Anchor(A, seq, ranges))
    assert asking.is_arriving
    for at in range(0, len(data), 50):
        asking.take(memoryview(data)[at : at + 50])
    asking.end()


def test_the_blocks_that_were_asked_for_come_with_their_version() -> None:
    library = Library()
    found = fetch(lambda asking: give(asking, raw([0, 2], 4)), library)
    assert library.said == [Blocks(((0, 1), (2, 3)))]
    assert found.version == VersionRef(A, 4)
    assert [one.block.number for one in found.blocks] == [0, 2]
    assert (found.blocks[0].bits == np.arange(BLOCKS.block(0).num_elements)).all()


@pytest.mark.parametrize(
    "data",
    [raw([0, 1], 4), raw([0], 4), raw([0, 2], 5), raw([0, 2], 4)[:-4], raw([0, 2], 4) + bytes(4), b""],
    ids=["other blocks", "too few", "other version", "cut", "more", "nothing"],
)
def test_an_answer_that_is_something_else_is_refused(data: bytes) -> None:
    def answer(asking: Asking) -> None:
        try:
            give(asking, data)
        except LocalProtocolError:
            return  # longer than it may be: the link throws the rest away

    with pytest.raises(SyncError):
        fetch(answer)


def test_an_answer_that_announces_other_blocks_fails_at_once() -> None:
    def answer(asking: Asking) -> None:
        with pytest.raises(LocalProtocolError):
            asking.begin(Anchor(A, 4, ((0, 2),)))
        assert not asking.is_arriving

    with pytest.raises(LocalProtocolError, match="other blocks"):
        fetch(answer)


def test_blocks_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no blocks were asked for"):
        Asking().begin(Anchor(A, 4, ((0, 1),)))


@pytest.mark.parametrize("begun", [False, True])
def test_the_end_of_the_library_is_heard_by_whoever_waits(begun: bool) -> None:
    def answer(asking: Asking) -> None:
        if begun:
            asking.begin(Anchor(A, 4, ((0, 1), (2, 3))))
        asking.fail(LibraryLostError("gone"))

    with pytest.raises(LibraryLostError, match="gone"):
        fetch(answer)


def test_a_library_that_is_lost_already_is_not_asked() -> None:
    library = Library(is_lost=True)
    with pytest.raises(LibraryLostError):
        fetch(lambda asking: None, library)
    assert library.said == []
