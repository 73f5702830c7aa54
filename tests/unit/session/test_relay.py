"""Which object goes to which child: the distributor over recorded links."""

from __future__ import annotations

import pytest

from sync_runtime.bucket.keys import ObjectKey, VersionRef, delta_key
from sync_runtime.transport.messages import Drop, Follow, Head, Index, LayoutDocument, Place, Signer, Status, Want
from tests.unit.session.relays import ME, A, B, House, Link


@pytest.fixture
def house() -> House:
    return House()


def test_a_child_that_is_level_gets_the_next_version_while_it_is_written(house: House) -> None:
    link = house.child(4)
    key = delta_key(A, 4, 5)
    house.shelve(key)
    house.distributor.bucket(key, 0)
    house.distributor.bucket(key, 1)
    house.distributor.completed(key, b"m")
    assert [item for item in link.said if isinstance(item, tuple)] == [
        ("begin", 1, key.text), ("bucket", 1, 0), ("bucket", 1, 1), ("complete", 1),
    ]  # fmt: skip


def test_the_layout_goes_once_and_before_the_first_object(house: House) -> None:
    link = house.child(4)
    house.shelve(delta_key(A, 4, 5), buckets=1, done=True)
    house.publish(5)
    house.shelve(delta_key(A, 5, 6), buckets=1, done=True)
    layouts = [at for at, item in enumerate(link.said) if isinstance(item, LayoutDocument)]
    assert len(layouts) == 1
    assert layouts[0] < link.said.index(("begin", 1, delta_key(A, 4, 5).text))


def test_a_child_that_is_behind_gets_one_merged_object_and_asks_for_it_once(house: House) -> None:
    first, second = house.child(1), house.child(1)
    span = delta_key(A, 1, 4)
    assert house.asked == [(span.text, None)]
    house.shelve(span, buckets=2, done=True)
    for link in (first, second):
        assert link.heard("begin") == [("begin", 1, span.text)]
        assert link.heard("complete") == [("complete", 1)]


def test_a_child_of_a_relay_that_follows_a_store_is_led_on_step_by_step(house: House) -> None:
    house.chain += [delta_key(A, 0, 2), delta_key(A, 2, 4), delta_key(A, 1, 2)]
    for key in house.chain:
        house.shelve(key, buckets=1, done=True)
    link = house.child(0)
    assert [item[2] for item in link.heard("begin")] == [delta_key(A, 0, 2).text, delta_key(A, 2, 4).text]
    assert house.asked == []
    house.publish(6)
    behind = house.child(4)
    assert behind.heard("begin") == []
    assert house.asked == [(delta_key(A, 4, 6).text, None)]  # what the chain does not reach is asked for


def test_a_child_far_behind_its_link_is_not_sent_every_version(house: House) -> None:
    link = house.child(4)
    for seq in range(5, 9):
        house.shelve(delta_key(A, seq - 1, seq), buckets=1, done=True)
        house.publish(seq)
    assert [item[2] for item in link.heard("begin")] == [delta_key(A, 4, 5).text, delta_key(A, 5, 6).text]
    house.distributor.finished(link, 1)
    assert house.asked[-1] == (delta_key(A, 6, 8).text, None)


def test_a_member_of_an_older_lineage_gets_a_way_into_the_new_one(house: House) -> None:
    link = house.child(4)
    house.versions.learn_lineage(B, [(2, f"{2:032x}")], start=VersionRef(A, 2))
    house.distributor.tell_index(B)
    assert link.said[-1] == Index(
        lineage=B, term=1, incarnation=ME, start=Place(lineage=A, seq=2), versions=[(2, f"{2:032x}")]
    )
    house.follow(link, 4)
    assert house.asked == [(ObjectKey(B, A, 4, 2, "fast").text, None)]


def test_an_unknown_state_gets_an_anchor_only_out_of_service(house: House) -> None:
    house.child(None)
    assert house.asked == [(f"{A}/anchor-4", None)]
    house.asked.clear()
    link = Link()
    house.distributor.connected(link, "eu-1")
    house.distributor.arrived(
        link,
        Follow(lineage=None, seq=None, digest="e" * 32, codecs=["fast"], out_of_service=False, want_anchor=False),
    )
    assert house.asked == []


def test_a_digest_alone_is_enough_to_be_known(house: House) -> None:
    link = Link()
    house.distributor.connected(link, "eu-1")
    house.distributor.arrived(
        link,
        Follow(lineage=None, seq=None, digest=f"{3:032x}", codecs=["fast"], out_of_service=True, want_anchor=True),
    )
    assert house.asked == [(delta_key(A, 3, 4).text, None)]


def test_a_digest_that_becomes_known_later_needs_no_whole_weights(house: House) -> None:
    link = Link()
    house.distributor.connected(link, "eu-1")
    digest = f"{5:032x}"
    house.distributor.arrived(
        link, Follow(lineage=None, seq=None, digest=digest, codecs=["fast"], out_of_service=True, want_anchor=True)
    )
    house.asked.clear()
    house.publish(5)
    assert house.asked == []
    house.shelve(delta_key(A, 5, 6), buckets=1)
    assert link.heard("begin") == [("begin", 1, delta_key(A, 5, 6).text)]


def test_a_resumed_transfer_brings_only_what_is_missing(house: House) -> None:
    link = Link()
    house.distributor.connected(link, "eu-0")
    key = delta_key(A, 3, 4)
    house.shelve(key, buckets=6, done=True)
    house.distributor.arrived(link, Want(key=key.text, have=[[0, 2], [4, 5]]))
    assert [item[2] for item in link.heard("bucket")] == [2, 3, 5]


def test_what_nobody_has_is_answered_and_not_left_open(house: House) -> None:
    link = Link()
    house.distributor.connected(link, "eu-0")
    key = delta_key(A, 0, 1)
    house.distributor.arrived(link, Want(key=key.text))
    assert house.asked == [(key.text, None)]
    house.distributor.missing(key, "NotFound")
    assert link.heard("abort") == [("abort", 1, "NotFound")]


def test_an_aborted_object_is_void_and_the_child_says_anew_what_it_holds(house: House) -> None:
    link = house.child(4)
    key = delta_key(A, 4, 5)
    house.shelve(key, buckets=1)
    house.distributor.aborted(key, "Failed")
    assert link.heard("abort") == [("abort", 1, "Failed")]
    house.shelve(key, buckets=1)
    assert len(link.heard("begin")) == 1
    house.follow(link, 4)
    assert len(link.heard("begin")) == 2


def test_a_child_that_prefers_tight_waits_for_it_while_others_get_fast(house: House) -> None:
    tight, fast = house.child(4, codecs=("tight", "fast")), house.child(4)
    assert house.distributor.wants_codec("tight")
    house.distributor.promise(delta_key(A, 4, 5, "tight"))
    house.shelve(delta_key(A, 4, 5), buckets=1)
    assert tight.heard("begin") == []
    assert fast.heard("begin") == [("begin", 1, delta_key(A, 4, 5).text)]
    house.shelve(delta_key(A, 4, 5, "tight"), buckets=1)
    assert tight.heard("begin") == [("begin", 1, delta_key(A, 4, 5, "tight").text)]


def test_a_child_that_drops_a_transfer_is_left_alone_until_it_follows_again(house: House) -> None:
    link = house.child(4)
    house.shelve(delta_key(A, 4, 5), buckets=1)
    house.distributor.arrived(link, Drop(transfer=1, reason="Full"))
    house.shelve(delta_key(A, 4, 5, "tight"), buckets=1)
    assert len(link.heard("begin")) == 1


def test_a_newcomer_is_told_signers_lineages_and_the_head_in_this_order(house: House) -> None:
    house.distributor.add_signer("PEM")
    house.publish(5)
    link = Link()
    house.distributor.connected(link, "eu-0")
    assert [type(item) for item in link.said] == [Signer, Index, Head]


def test_a_newcomer_is_told_of_versions_that_came_after_the_lineage_was_announced(house: House) -> None:
    house.distributor.tell_index(A)
    house.publish(5)
    link = Link()
    house.distributor.connected(link, "eu-0")
    index = next(item for item in link.said if isinstance(item, Index))
    assert [seq for seq, _ in index.versions] == [0, 1, 2, 3, 4, 5]


def test_who_waits_for_an_object_gets_it_though_a_newer_version_came_meanwhile(house: House) -> None:
    link = house.child(1)
    asked = delta_key(A, 1, 4)
    assert house.asked == [(asked.text, None)]
    house.publish(5)
    house.shelve(asked, buckets=1, done=True)
    assert link.heard("begin") == [("begin", 1, asked.text)]
    assert house.asked[-1] == (delta_key(A, 4, 5).text, None)


def test_what_children_wait_for_is_asked_of_the_next_parent_too(house: House) -> None:
    link = house.child(1)
    house.asked.clear()
    house.distributor.ask_again()
    assert house.asked == [(delta_key(A, 1, 4).text, None)]
    house.distributor.gone(link)
    house.asked.clear()
    house.distributor.ask_again()
    assert house.asked == []


def test_a_follow_that_crosses_a_push_does_not_bring_it_twice(house: House) -> None:
    link = house.child(4)
    key = delta_key(A, 4, 5)
    house.shelve(key, buckets=1, done=True)
    house.publish(5)
    house.follow(link, 4)
    house.distributor.finished(link, 1)
    assert [item[2] for item in link.heard("begin")] == [key.text]


def test_a_link_that_has_just_ended_keeps_nothing_from_the_others(house: House) -> None:
    ended, other = house.child(4), house.child(4)
    ended.refuses = True
    key = delta_key(A, 4, 5)
    house.shelve(key, buckets=1)
    house.distributor.completed(key, b"m")
    assert ended.heard("begin") == []
    assert other.heard("complete") == [("complete", 1)]
    house.distributor.missing(delta_key(A, 0, 1), "NotFound")


def test_what_a_full_link_does_not_take_follows_when_a_transfer_ends(house: House) -> None:
    link = house.child(None)
    first, second = delta_key(A, 2, 3), delta_key(A, 3, 4)
    house.shelve(first, buckets=1, done=True)
    house.shelve(second, buckets=3, done=True)
    house.distributor.arrived(link, Want(key=first.text))
    link.refuses = True
    house.distributor.arrived(link, Want(key=second.text, have=[[0, 2]]))
    link.refuses = False
    house.distributor.finished(link, 1)
    assert [item[2] for item in link.heard("begin")] == [first.text, second.text]
    assert [item for item in link.heard("bucket") if item[1] == 2] == [("bucket", 2, 2)]


def test_the_session_hears_when_a_child_stands_elsewhere(house: House) -> None:
    heard: list[list[VersionRef]] = []
    house.distributor.on_moved(lambda: heard.append(house.distributor.positions()))
    house.child(4)
    house.shelve(delta_key(A, 4, 5))
    assert heard == [[VersionRef(A, 4)], [VersionRef(A, 5)]]


def test_retention_hears_of_the_oldest_version_below(house: House) -> None:
    link = house.child(4)
    assert house.distributor.needed() == [VersionRef(A, 4)]
    house.distributor.arrived(link, Status(serving=None, needs=Place(lineage=A, seq=1), members=3))
    assert house.distributor.needed() == [VersionRef(A, 1)]
    house.distributor.gone(link)
    assert house.distributor.needed() == []


def test_a_child_that_waits_for_whole_weights_is_made_no_second_anchor(house: House) -> None:
    link = house.child(None)
    house.publish(5)
    assert house.asked == [(f"{A}/anchor-4", None)]
    house.shelve(ObjectKey(A, None, None, 4, "anchor"), buckets=1)  # it is served, though something newer is there
    house.publish(6)
    assert [key for _, _, key in link.heard("begin")] == [f"{A}/anchor-4"]
    assert [key for key, _ in house.asked if "anchor" in key] == [f"{A}/anchor-4"]
