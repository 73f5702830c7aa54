"""Which object leads where: every case of the protocol's list, and every key a hostile peer may ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key, parse_key
from sync_runtime.session.catch_up import SpoolIndex, Step, find_path, key_between

OLD, NEW, LOST = "11" * 16, "22" * 16, "33" * 16
HEAD = VersionRef(NEW, 9)
FORK = {VersionRef(OLD, 5), VersionRef(NEW, 5)}


def links(lineage: str, first: int, last: int) -> set[ObjectKey]:
    """The deltas between two versions."""
    return {delta_key(lineage, seq, seq + 1) for seq in range(first, last)}


INDEX = SpoolIndex(links(OLD, 0, 8) | links(NEW, 5, 9), {NEW: VersionRef(OLD, 5), OLD: None})


def steps(base: VersionRef, target: VersionRef, index: SpoolIndex = INDEX) -> list[str] | None:
    """The steps of what is to be made, as `-` and `+` with the link's target; None: no way leads there."""
    path = find_path(key_between(base, target), index)
    if path is None:
        return None
    return [f"{'-' if step.is_back else '+'}{step.link.lineage[0]}{step.link.target_seq}" for step in path.steps]


def test_several_versions_behind_get_a_merged_object() -> None:
    assert key_between(VersionRef(NEW, 6), HEAD).text == f"{NEW}/6-9.fast"
    assert steps(VersionRef(NEW, 6), HEAD) == ["+27", "+28", "+29"]


@pytest.mark.parametrize(
    ("seq", "expected"),
    [(7, ["-17", "-16"]), (5, []), (3, ["+14", "+15"])],
    ids=["past the fork", "at the fork", "before the fork"],
)
def test_from_an_older_lineage_a_way_leads_through_the_fork(seq: int, expected: list[str]) -> None:
    assert key_between(VersionRef(OLD, seq), HEAD).text == f"{NEW}/{OLD}:{seq}-9.fast"
    assert steps(VersionRef(OLD, seq), HEAD) == [*expected, "+26", "+27", "+28", "+29"]


def test_a_way_leads_from_one_branch_to_another_over_the_version_that_both_began_from() -> None:
    third = "44" * 16
    index = SpoolIndex({*INDEX.stored, *links(third, 3, 4)}, {**INDEX.origins, third: VersionRef(OLD, 3)})
    assert steps(VersionRef(NEW, 7), VersionRef(third, 4), index) == ["-27", "-26", "-15", "-14", "+44"]


def test_a_way_may_lead_through_several_lineages() -> None:
    third = "44" * 16
    index = SpoolIndex({*INDEX.stored, *links(third, 7, 8)}, {**INDEX.origins, third: VersionRef(NEW, 7)})
    assert steps(VersionRef(OLD, 6), VersionRef(third, 8), index) == ["-16", "+26", "+27", "+48"]


@pytest.mark.parametrize(
    "held",
    [VersionRef(LOST, 4), VersionRef(NEW, 3), VersionRef(OLD, 9), VersionRef(NEW, 12)],
    ids=["unknown lineage", "before the first", "never was", "ahead of all"],
)
def test_where_no_way_leads_nothing_can_be_made(held: VersionRef) -> None:
    assert steps(held, HEAD) is None


def test_an_evicted_link_breaks_the_way() -> None:
    index = SpoolIndex(set(INDEX.stored) - {delta_key(NEW, 7, 8)}, INDEX.origins)
    assert steps(VersionRef(NEW, 6), HEAD, index) is None
    assert steps(VersionRef(NEW, 8), HEAD, index) == ["+29"]


def test_lineages_in_a_circle_do_not_hang() -> None:
    index = SpoolIndex(INDEX.stored, {NEW: VersionRef(OLD, 5), OLD: VersionRef(NEW, 5)})
    assert steps(VersionRef(LOST, 1), HEAD, index) is None


@pytest.mark.parametrize(
    "text",
    [
        f"{NEW}/0-{2**63 - 1}.fast",
        f"{NEW}/{2**63 - 1}-0.fast",
        f"{NEW}/{OLD}:{2**63 - 1}-9.fast",
        f"{NEW}/6-9.tight",
        f"{NEW}/anchor-9",
    ],
)
def test_what_a_hostile_peer_asks_for_costs_nothing(text: str) -> None:
    assert find_path(parse_key(text), INDEX) is None


def test_a_way_back_inside_a_lineage_can_be_asked_for() -> None:
    path = find_path(parse_key(f"{OLD}/7-5.fast"), INDEX)
    assert path is not None
    assert path.steps == (Step(delta_key(OLD, 6, 7), is_back=True), Step(delta_key(OLD, 5, 6), is_back=True))


@given(st.sampled_from([OLD, NEW]), st.integers(0, 12), st.sampled_from([OLD, NEW]), st.integers(0, 12))
def test_every_way_is_a_walk_from_base_to_target(first: str, base_seq: int, last: str, target_seq: int) -> None:
    base, target = VersionRef(first, base_seq), VersionRef(last, target_seq)
    if base == target:
        return
    path = find_path(key_between(base, target), INDEX)
    if path is None:
        return
    at = base
    for step in path.steps:
        begins, ends = step.link.base, step.link.target
        assert begins is not None
        if step.is_back:
            begins, ends = ends, begins
        if begins != at:
            assert {at, begins} == FORK  # one state, two names
        at = ends
    assert at == target or {at, target} == FORK
