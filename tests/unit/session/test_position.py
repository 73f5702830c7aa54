"""What a member tells its parent that it holds, and what a relay asks for beside that."""

from __future__ import annotations

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key, repair_key
from sync_runtime.session.position import furthest, lead_on, newest_whole, next_step, own_want

A, B = "a" * 32, "b" * 32


def at(seq: int, lineage: str = A) -> VersionRef:
    return VersionRef(lineage, seq)


def test_a_leaf_follows_for_itself() -> None:
    assert furthest(at(3), [], at(7)) == at(3)
    assert furthest(None, [], at(7)) is None


def test_a_relay_follows_for_whoever_is_furthest_on() -> None:
    assert furthest(at(3), [at(6), at(5)], at(7)) == at(6)
    assert furthest(None, [at(2)], at(7)) == at(2)


def test_a_version_of_a_lineage_that_was_left_counts_only_where_there_is_no_other() -> None:
    assert furthest(at(9), [at(2, B)], at(3, B)) == at(2, B)
    assert furthest(at(9), [], at(3, B)) == at(9)


def test_what_is_here_or_on_its_way_counts_as_held() -> None:
    keys = {delta_key(A, 1, 2), delta_key(A, 2, 3), delta_key(A, 1, 6), delta_key(A, 6, 7)}
    assert lead_on(at(1), keys, at(9)) == at(7)
    assert lead_on(at(4), keys, at(9)) == at(4)
    assert lead_on(None, keys, at(9)) is None
    assert lead_on(at(1), keys, None) == at(1)


def test_the_engine_takes_the_shortest_way() -> None:
    keys = {delta_key(A, 1, 2), delta_key(A, 2, 6), delta_key(A, 1, 6), delta_key(A, 6, 7)}
    assert next_step(at(1), keys, at(7)) == delta_key(A, 1, 6)
    assert next_step(at(7), keys, at(7)) is None


def test_no_way_leads_through_versions_of_a_lineage_that_was_left() -> None:
    over = ObjectKey(B, A, 3, 9, "fast")
    keys = {delta_key(A, 1, 2), delta_key(A, 2, 3), over, delta_key(B, 9, 10)}
    assert next_step(at(1), keys, at(10, B)) is None  # the user could activate version 2 on the way
    assert lead_on(at(1), keys, at(10, B)) == at(1)
    assert next_step(at(3), keys, at(10, B)) == over
    assert lead_on(at(3), keys, at(10, B)) == at(10, B)


def test_links_of_a_lineage_that_was_left_lead_nowhere_by_themselves() -> None:
    keys = {delta_key(A, 1, 2), delta_key(A, 2, 3)}
    assert next_step(at(1), keys, at(10, B)) is None
    assert lead_on(at(1), keys, at(10, B)) == at(1)


def test_inside_a_lineage_no_way_leads_back_and_circles_end() -> None:
    keys = {delta_key(A, 1, 2), delta_key(A, 2, 1), ObjectKey(B, A, 2, 2, "fast"), ObjectKey(A, B, 2, 2, "fast")}
    assert lead_on(at(1), keys, at(2)) == at(2)
    assert next_step(at(2), keys, at(2)) is None


def test_a_relay_asks_for_what_its_own_engine_needs() -> None:
    assert own_want(at(1), at(6), [], out_of_service=False) == delta_key(A, 1, 6)
    assert own_want(at(1), at(6), [delta_key(A, 1, 3)], out_of_service=False) is None
    assert own_want(at(6), at(6), [], out_of_service=False) is None
    assert own_want(at(1), None, [], out_of_service=False) is None


def test_a_relay_asks_for_whole_weights_once_and_only_out_of_service() -> None:
    anchor = ObjectKey(A, None, None, 6, "anchor")
    assert own_want(None, at(6), [], out_of_service=True) == anchor
    assert own_want(None, at(6), [], out_of_service=False) is None
    assert own_want(None, at(7), [anchor], out_of_service=True) is None


def test_old_whole_weights_do_not_pass_for_those_that_an_engine_waits_for() -> None:
    """A relay keeps what its children once needed; what is older than its own engine's version never helps that."""
    anchors = [ObjectKey(A, None, None, seq, "anchor") for seq in (3, 5)]
    newest = ObjectKey(A, None, None, 9, "anchor")
    assert own_want(None, at(9), anchors, out_of_service=True, live=at(5)) == newest
    assert own_want(None, at(9), anchors, out_of_service=True, live=at(4)) is None
    assert own_want(None, at(9), [*anchors, newest], out_of_service=True, live=at(5)) is None
    assert own_want(None, at(9), anchors, out_of_service=True, live=at(5, B)) is None


def test_blocks_for_a_repair_are_no_whole_weights() -> None:
    keys = {repair_key(at(7), [[0, 1]])}
    assert own_want(None, at(7), keys, out_of_service=True) == ObjectKey(A, None, None, 7, "anchor")


def test_an_engine_out_of_service_takes_the_newest_whole_weights_that_lead_it_on() -> None:
    keys = [ObjectKey(A, None, None, seq, "anchor") for seq in (3, 7, 5)]
    others = [repair_key(at(9), [[0, 1]]), ObjectKey(B, None, None, 8, "anchor"), delta_key(A, 8, 9)]
    assert newest_whole(None, [*keys, *others], at(9)) == keys[1]
    assert newest_whole(at(5), keys, at(9)) == keys[1]
    assert newest_whole(at(7), keys, at(9)) is None
    assert newest_whole(at(7, B), keys, at(9)) == keys[1]
