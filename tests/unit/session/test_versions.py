"""Terms, lineages and digests, as a sidecar learns them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.errors import FormatError, OldTermError, TermConflictError
from sync_runtime.session.versions import MAX_LINEAGES, Fence, Proof, Versions, lineage_id

A, B = "a" * 32, "b" * 32


def digest(number: int) -> str:
    return f"{number:032x}"


def test_a_smaller_term_is_refused_and_a_larger_one_replaces() -> None:
    fence = Fence()
    assert fence.admit(3, A)
    assert not fence.admit(3, A)
    with pytest.raises(OldTermError, match="term 2 was replaced"):
        fence.admit(2, A)
    assert fence.admit(4, B)


def test_two_trainers_with_one_term_are_told_apart() -> None:
    fence = Fence()
    fence.admit(3, A)
    with pytest.raises(TermConflictError, match="two trainers claim term 3"):
        fence.admit(3, B)
    assert (fence.term, fence.incarnation) == (3, A)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([A, B]))))
def test_a_term_never_goes_back(seen: list[tuple[int, str]]) -> None:
    fence = Fence()
    for term, incarnation in seen:
        before = fence.term
        try:
            fence.admit(term, incarnation)
        except (OldTermError, TermConflictError):
            assert fence.term == before
        assert fence.term >= before


def test_a_lineage_depends_on_all_it_is_made_from() -> None:
    names = {
        lineage_id("g", 1, A, digest(1)),
        lineage_id("h", 1, A, digest(1)),
        lineage_id("g", 2, A, digest(1)),
        lineage_id("g", 1, B, digest(1)),
        lineage_id("g", 1, A, digest(2)),
    }
    assert len(names) == 5
    assert all(len(name) == 32 for name in names)


def test_duplicated_and_reordered_heads_change_nothing() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0))], start=None)
    assert versions.learn_head(VersionRef(A, 2), digest(2))
    assert not versions.learn_head(VersionRef(A, 1), digest(1))
    assert not versions.learn_head(VersionRef(A, 2), digest(2))
    assert versions.head == VersionRef(A, 2)
    assert versions.find(digest(1)) == VersionRef(A, 1)


def test_a_new_lineage_becomes_the_head_and_the_old_one_stays_known() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(seq, digest(seq)) for seq in range(9)], start=None)
    versions.learn_lineage(B, [(5, digest(5))], start=VersionRef(A, 5))
    assert versions.head == VersionRef(B, 5)
    assert versions.find(digest(5)) == VersionRef(B, 5)
    assert versions.find(digest(7)) == VersionRef(A, 7)
    assert not versions.learn_head(VersionRef(A, 9), digest(9))
    assert versions.head == VersionRef(B, 5)


def test_nobody_may_contradict_a_digest_that_the_trainer_signed() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0))], start=None)
    versions.prove(VersionRef(A, 0), digest(0))
    with pytest.raises(FormatError, match="its trainer signed"):
        versions.learn_head(VersionRef(A, 0), digest(1))
    assert versions.digest(VersionRef(A, 0)) == digest(0)


def test_a_lie_about_a_digest_gives_way_to_the_signed_one() -> None:
    versions = Versions()
    versions.learn_head(VersionRef(A, 3), digest(666))
    versions.prove(VersionRef(A, 3), digest(3))
    assert versions.find(digest(666)) is None
    assert versions.find(digest(3)) == VersionRef(A, 3)


def test_what_a_liar_said_is_forgotten_and_the_next_parent_may_say_what_is_newest() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0)), (1, digest(1))], start=None)
    versions.prove(VersionRef(A, 1), digest(1))
    versions.learn_head(VersionRef(A, 99), digest(99))
    versions.doubt()
    assert versions.find(digest(99)) is None
    assert versions.find(digest(1)) == VersionRef(A, 1)
    assert versions.learn_head(VersionRef(A, 2), digest(2))
    assert versions.head == VersionRef(A, 2)


def test_an_index_that_comes_late_or_twice_moves_no_head() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0))], start=None, current=False)
    versions.learn_lineage(B, [(0, digest(0))], start=VersionRef(A, 0), current=False)
    assert versions.head is None
    versions.learn_head(VersionRef(B, 1), digest(1))
    versions.learn_lineage(A, [(0, digest(0)), (7, digest(7))], start=None, current=False)
    assert versions.head == VersionRef(B, 1)
    assert not versions.learn_head(VersionRef(A, 7), digest(7))
    assert versions.head == VersionRef(B, 1)


def test_a_lineage_that_another_began_from_is_older_in_whatever_order_they_are_heard_of() -> None:
    versions = Versions()
    versions.learn_lineage(B, [(5, digest(5))], start=VersionRef(A, 5), current=False)
    versions.learn_lineage(A, [(5, digest(5))], start=None, current=False)
    assert list(versions.lineages) == [A, B]
    assert versions.find(digest(5)) == VersionRef(B, 5)


def test_lineages_that_claim_to_begin_from_each_other_end_nothing() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0))], start=VersionRef(B, 0), current=False)
    versions.learn_lineage(B, [(0, digest(0))], start=VersionRef(A, 0), current=False)
    assert set(versions.lineages) == {A, B}


def test_a_new_term_may_go_on_from_a_lineage_that_was_left() -> None:
    versions = Versions()
    versions.admit(Proof(1, A, ""))
    versions.learn_lineage(A, [(0, digest(0))], start=None, current=False)
    versions.learn_head(VersionRef(B, 3), digest(3))
    assert not versions.learn_head(VersionRef(A, 4), digest(4))
    versions.admit(Proof(2, A, ""))
    assert versions.learn_head(VersionRef(A, 5), digest(5))
    assert versions.head == VersionRef(A, 5)


def test_foreign_lineages_do_not_push_out_the_one_that_is_followed() -> None:
    versions = Versions()
    versions.learn_head(VersionRef(A, 3), digest(3))
    for number in range(3 * MAX_LINEAGES):
        versions.learn_lineage(digest(number), [(0, digest(number))], start=None, current=False)
    assert versions.digest(versions.head) == digest(3)


def test_what_is_remembered_is_bounded() -> None:
    versions = Versions()
    for number in range(3 * MAX_LINEAGES):
        versions.learn_lineage(digest(number), [(0, digest(number))], start=None)
    assert len(versions.lineages) == MAX_LINEAGES
    assert versions.head == VersionRef(digest(3 * MAX_LINEAGES - 1), 0)
    assert versions.digest(versions.head) == digest(3 * MAX_LINEAGES - 1)


def test_forgotten_versions_are_not_found_but_the_head_stays() -> None:
    versions = Versions()
    versions.learn_lineage(A, [(0, digest(0)), (1, digest(1))], start=None)
    versions.forget([VersionRef(A, 0), VersionRef(A, 1)])
    assert versions.find(digest(0)) is None
    assert versions.find(digest(1)) == VersionRef(A, 1)
