"""What goes first, what goes last, and that limits are kept."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey, VersionRef, parse_key
from sync_runtime.bucket.retention import Held, plan_retention
from tests.unit.bucket.samples import LINEAGE, OTHER_LINEAGE, files, link, open_spool, store

PLENTY = 1 << 60
HEAD = VersionRef(LINEAGE, 9)


def chain(first: int, last: int, lineage: str = LINEAGE, size_bytes: int = 10) -> list[Held]:
    return [Held(link(seq, lineage), size_bytes) for seq in range(first, last + 1)]


def made(text: str, size_bytes: int = 10, lineage: str = LINEAGE) -> Held:
    return Held(parse_key(f"{lineage}/{text}"), size_bytes)


def targets(keys: tuple[ObjectKey, ...]) -> list[int]:
    return [key.target_seq for key in keys]


def test_below_the_limits_nothing_goes() -> None:
    objects = [*chain(1, 9), made("1-5.fast"), made("anchor-3"), *chain(1, 2, OTHER_LINEAGE)]
    assert plan_retention(objects, (), max_bytes=PLENTY, max_versions=11, head=HEAD) == ()


def test_of_too_many_versions_the_oldest_go() -> None:
    assert targets(plan_retention(chain(1, 9), (), max_bytes=PLENTY, max_versions=4)) == [1, 2, 3, 4, 5]


def test_of_too_many_bytes_the_oldest_go_whatever_order_they_came_in() -> None:
    objects = [*chain(6, 9), *chain(1, 5)]
    assert sorted(targets(plan_retention(objects, (), max_bytes=45, max_versions=99, head=HEAD))) == [1, 2, 3, 4, 5]


def test_limits_win_over_needs() -> None:
    needed = {VersionRef(LINEAGE, 2)}
    assert targets(plan_retention(chain(1, 9), needed, max_bytes=30, max_versions=99)) == [1, 2, 3, 4, 5, 6]


def test_the_newest_version_stays_even_if_it_alone_is_too_large() -> None:
    assert targets(plan_retention(chain(1, 3, size_bytes=100), (), max_bytes=1, max_versions=1)) == [1, 2]


def test_what_can_be_made_again_goes_before_a_link() -> None:
    objects = [*chain(1, 9), made("1-5.fast", 50), made("3-9.fast", 50)]
    assert plan_retention(objects, (), max_bytes=140, max_versions=99, head=HEAD) == (made("1-5.fast").key,)
    gone = plan_retention(objects, (), max_bytes=90, max_versions=99, head=HEAD)
    assert gone == (made("1-5.fast").key, made("3-9.fast").key)


def test_the_newest_anchor_outlives_older_ones_and_old_spans() -> None:
    objects = [made("anchor-3", 50), made("anchor-7", 50), *chain(8, 9), made("2-3.tight", 50)]
    gone = plan_retention(objects, (), max_bytes=80, max_versions=99, head=HEAD)
    assert gone == (made("anchor-3").key, made("2-3.tight").key)


def test_a_dead_lineage_goes_before_the_living_one() -> None:
    objects = [*chain(1, 9, OTHER_LINEAGE), *chain(7, 9)]
    gone = plan_retention(objects, (), max_bytes=30, max_versions=99, head=HEAD)
    assert gone == tuple(link(seq, OTHER_LINEAGE) for seq in range(1, 10))


def test_the_way_to_the_fork_stays_while_someone_stands_on_the_dead_lineage() -> None:
    objects = [*chain(1, 9, OTHER_LINEAGE), *chain(7, 9)]
    origins = {LINEAGE: VersionRef(OTHER_LINEAGE, 6)}
    for stands_on, needed_links in ((8, {7, 8}), (4, {5, 6})):
        gone = plan_retention(
            objects, {VersionRef(OTHER_LINEAGE, stands_on)}, max_bytes=50, max_versions=99, head=HEAD, origins=origins
        )
        assert {key.target_seq for key in gone} == set(range(1, 10)) - needed_links
        assert {key.lineage for key in gone} == {OTHER_LINEAGE}


def test_the_way_through_two_forks_stays_while_someone_needs_it() -> None:
    oldest = "33" * 16
    objects = [*chain(1, 4, oldest), *chain(3, 6, OTHER_LINEAGE), *chain(6, 9)]
    origins = {LINEAGE: VersionRef(OTHER_LINEAGE, 5), OTHER_LINEAGE: VersionRef(oldest, 2), oldest: None}
    gone = plan_retention(objects, {VersionRef(oldest, 3)}, max_bytes=80, max_versions=99, head=HEAD, origins=origins)
    assert set(gone) == {link(1, oldest), link(2, oldest), link(4, oldest), link(6, OTHER_LINEAGE)}


def test_what_was_made_from_links_does_not_pile_up_either() -> None:
    objects = [*chain(8, 9), *(made(f"{at}-{at + 2}.fast", 0) for at in range(20))]
    gone = plan_retention(objects, (), max_bytes=PLENTY, max_versions=5, head=HEAD)
    assert len(gone) == 15
    assert made("7-9.fast").key not in gone


@st.composite
def spools(draw: st.DrawFn) -> list[Held]:
    size = st.integers(0, 100)
    last = draw(st.integers(1, 12))
    objects = [Held(link(seq), draw(size)) for seq in range(draw(st.integers(1, last)), last + 1)]
    objects += [Held(link(seq, OTHER_LINEAGE), draw(size)) for seq in range(1, draw(st.integers(1, 6)))]
    texts = draw(st.sets(st.sampled_from(["1-5.fast", "9-2.fast", "anchor-2", "anchor-3", "0-12.fast"])))
    objects += [made(text, draw(size)) for text in sorted(texts)]
    return draw(st.permutations(objects))


@given(spools(), st.integers(0, 500), st.integers(1, 12), st.sets(st.integers(0, 12), max_size=3))
def test_limits_hold_and_what_stays_leads_to_the_newest(
    objects: list[Held], max_bytes: int, max_versions: int, needed_seqs: set[int]
) -> None:
    last = max(held.key.target_seq for held in objects if held.key.is_link and held.key.lineage == LINEAGE)
    head = VersionRef(LINEAGE, last)
    needed = {VersionRef(LINEAGE, seq) for seq in needed_seqs}
    gone = set(plan_retention(objects, needed, max_bytes=max_bytes, max_versions=max_versions, head=head))
    kept = [held for held in objects if held.key not in gone]
    links = sorted(held.key.target_seq for held in kept if held.key.is_link and held.key.lineage == LINEAGE)
    assert links == list(range(links[0], last + 1))
    assert sum(held.size_bytes for held in kept if held.key != link(last)) <= max_bytes
    assert sum(held.key.is_link for held in kept) <= max_versions


def test_a_spool_evicts_what_the_plan_says(tmp_path: Path) -> None:
    with open_spool(tmp_path, max_versions=2) as spool:
        for seq in range(1, 5):
            store(spool, link(seq))
        assert spool.retain() == (link(1), link(2))
        assert spool.retain() == ()
        assert [stored.key for stored in spool.objects()] == [link(3), link(4)]
    assert len(files(tmp_path)) == 4
