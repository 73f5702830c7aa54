"""What a pointer names and how a reader finds its way through it, over any history of publishes."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.errors import ChainError
from sync_runtime.transport.object_store.errors import StoreAheadError
from sync_runtime.transport.object_store.lines import (
    Lines,
    Place,
    begun,
    extended,
    missing_from,
    rows_of,
    spans_ending_at,
    trimmed,
    with_anchor,
    with_skips,
)
from sync_runtime.transport.object_store.pointer import Line, Pointer, Row, parse_pointer
from sync_runtime.transport.object_store.route import find_anchor_route, find_route
from tests.support.stores import INCARNATION, LINEAGE, NEXT_LINEAGE, anchor_key, version, way_key

PLACE = "1-" + "0" * 16
LAYOUT = Place("ab" * 32, PLACE)


def link(seq: int, lineage: str = LINEAGE, size_bytes: int = 1_000_000) -> Row:
    return Row(delta_key(lineage, seq - 1, seq), size_bytes, PLACE)


def longer(lines: Lines, seq: int, lineage: str = LINEAGE) -> Lines:
    return extended(
        lines, link(seq, lineage), version(seq - 1, lineage), version(seq, lineage), label="", published_unix_ns=seq
    )


def history(last: int, keep: int = 10_000, *, first: int = 0, lineage: str = LINEAGE) -> Lines:
    """Versions first + 1 to last, each with its skip deltas, as a publisher with this retention would leave them."""
    lines = begun((), lineage, version(first, lineage), LAYOUT, None)
    for seq in range(first + 1, last + 1):
        lines = trimmed(longer(lines, seq, lineage), keep)
        bases = spans_ending_at(seq, lines[0].base.seq)
        lines = with_skips(lines, [Row(delta_key(lineage, base, seq), 1_500_000, PLACE) for base in bases])
    return lines


def pointer(lines: Lines) -> Pointer:
    return Pointer("group", 1, INCARNATION, "ab" * 64, ("PEM",), 1, PLACE, lines)


@given(st.integers(1, 700), st.integers(0, 700))
def test_any_lag_costs_at_most_twice_its_logarithm_in_objects(last: int, held: int) -> None:
    held = min(held, last)
    route = find_route(pointer(_HISTORY_OF_700[last]), VersionRef(LINEAGE, held))
    assert route is not None
    at = held
    for row in route.steps:
        assert row.key.base_seq == at
        at = row.key.target_seq
    assert at == last
    assert len(route.steps) <= max(1, 2 * ceil(log2(max(2, last - held))))


@given(st.integers(1, 80), st.integers(1, 40), st.integers(0, 80))
def test_every_kept_version_leads_to_the_newest_whatever_retention_removed(last: int, keep: int, anchor: int) -> None:
    lines = history(last, keep)
    if lines[0].base.seq <= anchor <= last:
        lines = with_anchor(lines, Row(anchor_key(anchor), 9, PLACE))
    for more in range(last + 1, last + 4):
        lines = trimmed(longer(lines, more), keep)
        line = lines[0]
        assert len(line.links) >= min(keep, more)
        for kept in line.versions:
            route = find_route(pointer(lines), VersionRef(LINEAGE, kept.seq))
            assert route is not None
            assert set(route.steps) <= rows_of(lines)
        if line.anchor is not None:
            joining = find_anchor_route(pointer(lines))
            assert joining is not None
            assert joining.steps[-1].key.target_seq == more or line.anchor.key.target_seq == more
        assert parse_pointer(pointer(lines).to_json()) == pointer(lines)
    if lines[0].anchor is None:
        assert len(lines[0].links) == min(keep, last + 3)


def test_an_anchor_is_kept_with_all_that_follows_it() -> None:
    lines = with_anchor(history(3, 4), Row(anchor_key(2), 9, PLACE))
    for seq in range(4, 30):
        lines = trimmed(longer(lines, seq), 4)
    assert lines[0].base.seq == 2
    lines = trimmed(with_anchor(lines, Row(anchor_key(28), 9, PLACE)), 4)
    assert lines[0].base.seq == 25


def test_members_of_an_older_lineage_go_over_its_head_into_the_new_one() -> None:
    way = Row(way_key(VersionRef(LINEAGE, 8), NEXT_LINEAGE, 5), 7, PLACE)
    lines = begun(history(8), NEXT_LINEAGE, version(5, NEXT_LINEAGE), LAYOUT, way)
    lines = longer(lines, 6, NEXT_LINEAGE)
    route = find_route(pointer(lines), VersionRef(LINEAGE, 4))
    assert route is not None
    assert [row.key.text for row in route.steps] == [
        f"{LINEAGE}/4-8.fast", f"{NEXT_LINEAGE}/{LINEAGE}:8-5.fast", f"{NEXT_LINEAGE}/5-6.fast"
    ]  # fmt: skip
    assert parse_pointer(pointer(lines).to_json()) == pointer(lines)


def test_older_lineages_go_once_the_way_out_of_them_does() -> None:
    way = Row(way_key(VersionRef(LINEAGE, 8), NEXT_LINEAGE, 5), 7, PLACE)
    lines = begun(history(8), NEXT_LINEAGE, version(5, NEXT_LINEAGE), LAYOUT, way)
    for seq in range(6, 9):
        lines = trimmed(longer(lines, seq, NEXT_LINEAGE), 4)
    assert [line.lineage for line in lines] == [NEXT_LINEAGE, LINEAGE]
    assert len(lines[1].links) == 1  # what room was left
    for seq in range(9, 11):
        lines = trimmed(longer(lines, seq, NEXT_LINEAGE), 4)
    assert [line.lineage for line in lines] == [NEXT_LINEAGE]
    assert lines[0].way is None


def test_a_lineage_that_nothing_leads_into_stands_alone() -> None:
    elsewhere = Row(way_key(VersionRef(LINEAGE, 7), NEXT_LINEAGE, 5), 7, PLACE)
    for way in (None, elsewhere):
        (line,) = begun(history(8), NEXT_LINEAGE, version(5, NEXT_LINEAGE), LAYOUT, way)
        assert line.way is None
        assert find_route(pointer((line,)), VersionRef(LINEAGE, 8)) is None


def test_a_lineage_begins_once() -> None:
    with pytest.raises(ChainError):
        begun(history(2), LINEAGE, version(0), LAYOUT, None)


def test_versions_are_published_in_order() -> None:
    with pytest.raises(ChainError, match="must come first"):
        longer(history(3), 5)
    with pytest.raises(StoreAheadError):
        longer(history(3), 3)
    with pytest.raises(ChainError):
        longer((), 1)


def test_a_spool_learns_what_the_store_lacks_or_that_it_is_an_old_copy() -> None:
    lines = history(3)
    own = [version(seq) for seq in range(7)]
    assert missing_from(lines, LINEAGE, own) == (4, 5, 6)
    assert missing_from(lines, LINEAGE, own[:4]) == ()
    assert missing_from((), LINEAGE, own) == (1, 2, 3, 4, 5, 6)
    with pytest.raises(StoreAheadError):
        missing_from(lines, LINEAGE, own[:3])
    forked = [*own[:3], replace(own[3], digest=own[5].digest), *own[4:]]
    with pytest.raises(StoreAheadError):
        missing_from(lines, LINEAGE, forked)


def test_the_cheapest_way_is_taken_and_not_the_shortest() -> None:
    line = Line(
        LINEAGE, LAYOUT.layout_hash, PLACE,
        versions=tuple(version(seq) for seq in range(3)),
        links=(link(1, size_bytes=10), link(2, size_bytes=10)),
        skips=(Row(delta_key(LINEAGE, 0, 2), 10_000_000, PLACE),),
    )  # fmt: skip
    route = find_route(pointer((line,)), VersionRef(LINEAGE, 0))
    assert route is not None
    assert len(route.steps) == 2
    assert route.size_bytes == 20


_HISTORY_OF_700 = {last: history(last) for last in (1, 2)}


def _fill() -> None:
    lines = history(0)
    _HISTORY_OF_700.clear()
    for seq in range(1, 701):
        lines = longer(lines, seq)
        bases = spans_ending_at(seq, 0)
        lines = with_skips(lines, [Row(delta_key(LINEAGE, base, seq), 1_500_000, PLACE) for base in bases])
        _HISTORY_OF_700[seq] = lines


_fill()
