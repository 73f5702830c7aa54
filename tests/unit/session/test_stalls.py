"""Who stands still, and when to ask again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key
from sync_runtime.session.catch_up.stalls import Needs, StallWatch, is_stalled

A, B = "a" * 32, "b" * 32
HEAD = VersionRef(A, 9)
ANCHOR = ObjectKey(A, None, None, 9, "anchor")


@pytest.mark.parametrize(
    ("seq", "stored", "coming", "expected"),
    [
        (9, [], [], False),
        (7, [], [], True),
        (7, [(7, 9)], [], False),
        (7, [], [(7, 9)], False),
        (7, [], [(7, 8)], False),
        (7, [(7, 8)], [(8, 9)], False),
        (7, [(7, 8)], [], True),
        (7, [], [(5, 6)], True),
        (10, [], [], False),
    ],
    ids=[
        "level", "behind", "it is here", "it comes", "the next one comes", "the rest comes", "half is here",
        "something else comes", "ahead of a parent that is behind",
    ],
)  # fmt: skip
def test_who_is_behind_with_nothing_coming_stands_still(
    seq: int, stored: list[tuple[int, int]], coming: list[tuple[int, int]], expected: bool
) -> None:
    here, there = [{delta_key(A, *one) for one in ones} for ones in (stored, coming)]
    assert is_stalled(VersionRef(A, seq), HEAD, here, there) is expected


def test_whole_weights_are_waited_for_only_by_who_wants_them() -> None:
    assert is_stalled(None, HEAD, set(), set(), wants_anchor=True)
    assert not is_stalled(None, HEAD, set(), set())
    assert not is_stalled(None, HEAD, set(), {ANCHOR}, wants_anchor=True)
    assert is_stalled(None, HEAD, set(), {ObjectKey(B, None, None, 9, "anchor")}, wants_anchor=True)
    assert is_stalled(None, HEAD, {ANCHOR}, set(), wants_anchor=True, live=ANCHOR.target)


def test_where_nothing_is_known_of_the_newest_version_nobody_stands_still() -> None:
    assert not is_stalled(VersionRef(A, 1), None, set(), set(), wants_anchor=True)


def test_an_engine_is_looked_after_apart_from_the_line_that_a_relay_follows() -> None:
    needs = Needs(HEAD, furthest=HEAD, own=VersionRef(A, 7), refused=set(), wants_anchor=False)
    assert needs.stalled(set(), set()) == {"line": False, "engine": True}
    assert needs.stalled(set(), {delta_key(A, 7, 9)}) == {"line": False, "engine": False}


def test_an_engine_that_refused_the_only_object_is_not_sent_it_for_ever() -> None:
    span = delta_key(A, 7, 9)
    needs = Needs(HEAD, furthest=HEAD, own=VersionRef(A, 7), refused={span}, wants_anchor=False)
    assert needs.stalled({span}, set()) == {"line": False, "engine": False}


def test_it_is_asked_after_a_while_then_ever_more_rarely_and_from_the_start_after_a_move() -> None:
    watch = StallWatch(patience_s=3, longest_s=8)
    asked = [now_s for now_s in range(40) if watch.due("line", now_s, stalled=True)]
    assert asked == [3, 9, 17, 25, 33]
    assert watch.asked == 5
    assert not watch.due("line", 40, stalled=False)
    assert [now_s for now_s in range(41, 46) if watch.due("line", now_s, stalled=True)] == [44]


def test_the_first_time_is_told_from_the_others() -> None:
    watch = StallWatch(patience_s=1, longest_s=1)
    assert [watch.due("line", now_s, stalled=True) for now_s in range(4)] == [0, 1, 2, 3]
    assert watch.due("engine", 9, stalled=True) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60))
def test_whoever_stays_behind_is_asked_for_again_within_the_longest_wait(steps: list[tuple[float, bool]]) -> None:
    watch, now_s, since_s = StallWatch(patience_s=2, longest_s=10), 0.0, None
    for step_s, stalled in steps:
        now_s += step_s
        if watch.due("line", now_s, stalled=stalled) or not stalled:
            since_s = None
        elif since_s is None:
            since_s = now_s
        assert since_s is None or now_s - since_s <= 10
