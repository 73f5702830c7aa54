"""Blocks and objects of several ranks: who has what, how records are joined and split, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.codec.frame import END_RECORD, pack_entry, pack_header, parse_object
from sync_runtime.codec.limits import MODE_FAST
from sync_runtime.errors import FormatError, LayoutError, LocalProtocolError, SyncError
from sync_runtime.local.messages import Part, Publish, Totals, VersionRef
from sync_runtime.session.ranks.joining import RecordFeed, RecordSplitter, all_taken, header_of, next_records
from sync_runtime.session.ranks.parts import (
    NOTHING,
    Owners,
    agreed,
    earliest,
    holds,
    joined_totals,
    opened_digest,
    summed,
)
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.digest import Digest
from sync_runtime.tensors.layout import Shards, make_layout

ROWS = 512
BLOCKS = BlockMap(make_layout([("w", "BF16", (ROWS, 256))], shards={"w": Shards(64, None)}))
EVEN = {0: ((0, 1), (2, 3), (4, 5), (6, 7)), 1: ((1, 2), (3, 4), (5, 6), (7, 8))}
HEADER = pack_header(header_of(Owners(BLOCKS, EVEN), "fast"))


def record(block: int, words: int = 1) -> bytes:
    body = bytes([block]) * (4 * words)
    return pack_entry(block=block, mode=MODE_FAST, parameter=4, count=1, body_bytes=len(body)) + body


def an_object(*blocks: int) -> bytes:
    return HEADER + b"".join(record(block, 1 + block) for block in blocks) + END_RECORD


def fed(data: bytes, rank: int = 0, step: int = 7) -> RecordFeed:
    owners = Owners(BLOCKS, EVEN)
    feed = RecordFeed(rank, header_of(owners, "fast"), owners)
    for at in range(0, len(data), step):
        feed.feed(memoryview(data)[at : at + step])
    feed.finish()
    return feed


@given(st.sets(st.integers(0, 7)), st.integers(1, 40), st.integers(1, 60))
def test_joined_records_are_those_of_one_rank(changed: set[int], step: int, most: int) -> None:
    parts = [sorted(number for number in changed if number % 2 == rank) for rank in (0, 1)]
    feeds = [fed(an_object(*part), rank, step) for rank, part in enumerate(parts)]
    joined = b""
    while not all_taken(feeds):
        joined += next_records(feeds, most)
    assert HEADER + joined + END_RECORD == an_object(*sorted(changed))


@given(st.sets(st.integers(0, 7)), st.integers(1, 40))
def test_split_records_are_what_each_rank_holds(changed: set[int], step: int) -> None:
    whole = an_object(*sorted(changed))
    splitter = RecordSplitter({0: lambda number: number < 4, 1: lambda number: number > 2})
    got = {0: b"", 1: b""}
    for at in range(0, len(whole), step):
        for rank, part in splitter.feed(whole[at : at + step]).items():
            got[rank] += part
    assert got[0] == an_object(*sorted(number for number in changed if number < 4))
    assert got[1] == an_object(*sorted(number for number in changed if number > 2))
    assert [one.block for one in parse_object(memoryview(got[0]))[2]] == sorted(n for n in changed if n < 4)


def test_records_wait_for_a_rank_that_may_have_an_earlier_one() -> None:
    owners = Owners(BLOCKS, EVEN)
    late = RecordFeed(1, header_of(owners, "fast"), owners)
    early = fed(an_object(0, 2))
    assert next_records([early, late], 1000) == b""
    late.feed(memoryview(an_object(1)))
    assert next_records([early, late], 1000) == record(0, 1) + record(1, 2) + record(2, 3)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (an_object(0, 1), "rank 0 sent block 1, which is rank 1's"),
        (an_object(0, 8), "rank 0 sent block 8, which nobody has"),
        (HEADER + record(2) + record(0) + END_RECORD, "after block 2"),
        (HEADER + record(2) + record(2) + END_RECORD, "after block 2"),
        (HEADER + record(0), "without its end record"),
        (an_object(0) + b"more", "follow its end record"),
        (pack_header(header_of(Owners(BLOCKS, EVEN), "fast")._replace(layout_hash=bytes(16))) + END_RECORD, "layout"),
        (HEADER + pack_entry(block=0, mode=9, parameter=0, count=1, body_bytes=0) + END_RECORD, "malformed"),
        (HEADER + pack_entry(block=0, mode=1, parameter=0, count=1, body_bytes=1 << 30), "too many"),
        (HEADER + pack_entry(block=0xFFFFFFFF, mode=1, parameter=0, count=0, body_bytes=0), "not zero"),
    ],
)
def test_a_rank_that_sends_what_is_not_its_own_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(SyncError, match=sentence):
        fed(data)


def test_ranks_code_what_needs_no_look_at_whole_objects() -> None:
    with pytest.raises(FormatError, match="coded fast or tight"):
        header_of(Owners(BLOCKS, EVEN), "auto")


def test_ranks_code_tight_under_the_same_tables() -> None:
    owners, tables = Owners(BLOCKS, EVEN), b"tables of 16 byt"
    header = header_of(owners, "tight", tables)
    feed = RecordFeed(0, header, owners, tables)
    feed.feed(memoryview(pack_header(header) + tables[:3]))
    feed.feed(memoryview(tables[3:] + END_RECORD))
    feed.finish()
    other = RecordFeed(0, header, owners, tables)
    with pytest.raises(FormatError, match="other tables"):
        other.feed(memoryview(pack_header(header) + tables[::-1]))


@pytest.mark.parametrize(
    ("counted", "sentence"),
    [
        ({0: ((0, 4),), 1: ((3, 8),)}, "block 3 .of 'w'. is counted by ranks 0 and 1"),
        ({0: ((0, 4),), 1: ((5, 8),)}, "block 4 .of 'w'. is counted by no rank"),
        ({0: ((0, 4),), 1: ((4, 7),)}, "block 7 .of 'w'. is counted by no rank"),
        ({0: (), 1: ()}, "block 0 .of 'w'. is counted by no rank"),
        ({0: ((0, 4),), 1: ((4, 9),)}, "the layout has 8"),
    ],
)
def test_every_block_is_counted_by_one_rank(counted: dict[int, tuple[tuple[int, int], ...]], sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        Owners(BLOCKS, counted)


def test_blocks_are_split_by_who_counts_them() -> None:
    assert Owners(BLOCKS, EVEN).split([0, 1, 2, 5, 7]) == {0: ((0, 1), (2, 3)), 1: ((1, 2), (5, 6), (7, 8))}
    assert [holds(EVEN[1], number) for number in range(10)] == [False, True] * 4 + [False, False]


def test_totals_are_summed_tensor_by_tensor() -> None:
    one, two = (str(Digest(number, 2 * number)) for number in (1, 2))
    parts = [Totals("fast", 2, 5, one, one + two), Totals("fast", 1, 3, two, two + two)]
    assert joined_totals(parts) == Totals("fast", 3, 8, str(Digest(3, 6)), str(Digest(3, 6)) + str(Digest(4, 8)))
    with pytest.raises(LocalProtocolError, match="different"):
        joined_totals([parts[0], Totals("fast", 1, 3, two, two)])


def test_ranks_publish_the_same_step() -> None:
    assert agreed({0: Publish(1, "", "fast"), 1: Publish(1, "", "fast")}).step == 1
    with pytest.raises(LocalProtocolError, match="rank 1 step 2"):
        agreed({0: Publish(1, "", "fast"), 1: Publish(2, "", "fast")})


def test_a_copy_that_differs_makes_the_digest_another_one() -> None:
    here, other, wrong = (str(Digest(number, number)) for number in (5, 7, 6))
    first = Part(((0, 1),), (), here)
    assert opened_digest({0: first, 1: Part(((1, 2),), ((0, 1),), other + here)}) == summed([here, other])
    assert opened_digest({0: first, 1: Part(((1, 2),), ((0, 1),), other + wrong)}) != summed([here, other])
    with pytest.raises(LocalProtocolError, match="other digests"):
        opened_digest({0: Part(((0, 2),), (), here)})


def test_leave_is_for_the_newest_version_that_all_ranks_have() -> None:
    first, second, third = (VersionRef("1" * 32, seq) for seq in (1, 2, 3))
    assert earliest([second, second], [first, second]) == second
    assert earliest([second, first], [first, second]) == first
    assert earliest([third, second], [first, second]) == second
    assert earliest([third, third], [first, second]) == second
    assert earliest([second, NOTHING], [first, second]) is None
    assert earliest([second, second], []) is None
