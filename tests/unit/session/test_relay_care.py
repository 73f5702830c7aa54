"""What the distributor does where nothing happens by itself: lost requests, full links, the end of its work."""

from __future__ import annotations

import pytest

from sync_runtime.bucket.keys import delta_key
from sync_runtime.session.catch_up.stalls import PATIENCE_S
from sync_runtime.transport.messages import Want
from tests.unit.session.relays import A, House


@pytest.fixture
def house() -> House:
    return House()


def test_what_a_child_waits_for_is_asked_for_again_while_nothing_comes(house: House) -> None:
    link = house.child(1)
    span = delta_key(A, 1, 4)
    house.asked.clear()  # the request was lost
    house.distributor.look_after(100.0)
    assert house.asked == []
    house.distributor.look_after(100.0 + PATIENCE_S)
    assert house.asked == [(span.text, None)]
    assert house.distributor.asked_again == 1
    house.shelve(span, buckets=1)
    house.asked.clear()
    for later_s in range(110, 400, 10):
        house.distributor.look_after(later_s)
    assert house.asked == []
    assert link.heard("begin") == [("begin", 1, span.text)]


def test_what_a_full_link_did_not_take_follows_though_no_transfer_ends(house: House) -> None:
    link = house.child(4)
    link.refuses = True
    key = delta_key(A, 4, 5)
    house.shelve(key, buckets=1)
    link.refuses = False
    house.distributor.look_after(100.0)
    house.distributor.look_after(100.0 + PATIENCE_S)
    assert link.heard("begin") == [("begin", 1, key.text)]


def test_what_is_on_its_way_is_not_sent_twice_whoever_asks_again(house: House) -> None:
    link = house.child(4)
    key = delta_key(A, 4, 5)
    house.shelve(key, buckets=2, done=True)
    house.distributor.arrived(link, Want(key=key.text))
    house.follow(link, 4)
    assert link.heard("begin") == [("begin", 1, key.text)]


def test_an_object_that_was_made_and_evicted_at_once_is_answered(house: House) -> None:
    link = house.child(1)
    house.distributor.made(delta_key(A, 1, 4))
    assert link.heard("abort") == [("abort", 1, "NotFound")]


def test_who_drains_begins_nothing_and_lets_go_whom_it_has_served(house: House) -> None:
    served, busy = house.child(4), house.child(3)
    key = delta_key(A, 3, 4)
    house.shelve(key, buckets=1)
    assert house.distributor.drain() == (served,)
    house.shelve(delta_key(A, 4, 5), buckets=1)
    assert served.heard("begin") == []
    house.distributor.bucket(key, 1)
    assert busy.heard("bucket")[-1] == ("bucket", 1, 1)
    house.distributor.finished(busy, 1)
    assert house.distributor.drain() == (served, busy)
    assert busy.heard("begin") == [("begin", 1, key.text)]
