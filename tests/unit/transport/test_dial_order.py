"""Whom a child dials, and when."""

from __future__ import annotations

from functools import partial

from sync_runtime.contract.plan import Endpoint
from sync_runtime.transport.dialler import LAST_WAIT_S, SHUNNED_S, DialOrder


def endpoint(member: str) -> Endpoint:
    return Endpoint(member=member, cluster="c", region="r", host="203.0.113.1", port=1)


A, B = endpoint("a"), endpoint("b")


def order(*parents: Endpoint) -> DialOrder:
    return DialOrder(parents, lambda: 1.0)


def test_parents_are_dialled_in_order_at_once_and_then_again_after_a_pause() -> None:
    dials = order(A, B)
    found = []
    for _ in range(6):
        turn = dials.turn(0.0)
        assert turn
        found.append((turn.endpoint.member, round(turn.wait_s, 3)))
        dials.failed(turn.endpoint, 0.0, retry=True)
    assert found == [("a", 0.0), ("b", 0.0), ("a", 0.2), ("b", 0.0), ("a", 0.4), ("b", 0.0)]


def test_the_pause_doubles_up_to_its_limit_and_is_spread_by_the_dice() -> None:
    for dice, share in ((0.0, 0.5), (1.0, 1.0)):
        dials = DialOrder([A], partial(float, dice))
        waits = []
        for _ in range(12):
            turn = dials.turn(0.0)
            assert turn
            waits.append(turn.wait_s)
            dials.failed(A, 0.0, retry=True)
        assert waits[1:4] == [0.2 * share, 0.4 * share, 0.8 * share]
        assert waits[-1] == LAST_WAIT_S * share


def test_a_parent_that_says_never_is_left_alone_for_a_minute() -> None:
    dials = order(A, B)
    assert dials.turn(0.0)
    dials.failed(A, 0.0, retry=False)
    for now_s in (1.0, 20.0, 59.0):
        turn = dials.turn(now_s)
        assert turn
        assert turn.endpoint == B
        dials.failed(B, now_s, retry=True)
    later = dials.turn(SHUNNED_S)
    assert later
    assert later.endpoint == A


def test_a_lonely_parent_that_says_never_is_dialled_after_that_minute() -> None:
    dials = order(A)
    dials.turn(0.0)
    dials.failed(A, 0.0, retry=False)
    turn = dials.turn(10.0)
    assert turn
    assert (turn.endpoint, turn.wait_s) == (A, SHUNNED_S - 10.0)


def test_a_new_plan_forgives_everyone() -> None:
    dials = order(A)
    dials.turn(0.0)
    dials.failed(A, 0.0, retry=False)
    dials.replace([B, A])
    members = []
    for _ in range(2):
        turn = dials.turn(1.0)
        assert turn
        assert turn.wait_s == 0.0
        members.append(turn.endpoint)
    assert members == [B, A]


def test_after_a_link_that_lasted_the_first_parent_is_dialled_at_once() -> None:
    dials = order(A, B)
    dials.turn(0.0)
    dials.failed(A, 0.0, retry=True)
    dials.turn(0.0)
    dials.ended(B, 100.0, lasted_s=100.0, reason="Lost")
    turn = dials.turn(100.0)
    assert turn
    assert (turn.endpoint, turn.wait_s) == (A, 0.0)


def test_after_a_link_that_broke_at_once_the_next_parent_is_dialled() -> None:
    dials = order(A, B)
    dials.turn(0.0)
    dials.ended(A, 1.0, lasted_s=1.0, reason="Lost")
    turn = dials.turn(1.0)
    assert turn
    assert turn.endpoint == B


def test_a_bad_parent_is_not_dialled_again_soon() -> None:
    dials = order(A, B)
    dials.turn(0.0)
    dials.ended(A, 50.0, lasted_s=50.0, reason="BadParent")
    for now_s in (50.0, 60.0, 100.0):
        turn = dials.turn(now_s)
        assert turn
        assert turn.endpoint == B


def test_without_parents_there_is_nobody_to_dial() -> None:
    assert order().turn(0.0) is None


def test_only_parents_before_the_present_one_are_better() -> None:
    dials = order(A, B)
    assert dials.before(A, 0.0) == ()
    assert dials.before(B, 0.0) == (A,)
    dials.failed(A, 0.0, retry=False)
    assert dials.before(B, 1.0) == ()
    assert dials.before(B, SHUNNED_S) == (A,)


def test_a_link_that_we_ended_ourselves_costs_no_pause() -> None:
    dials = order(A, B)
    dials.turn(0.0)
    dials.turn(0.0)
    dials.ended(B, 1.0, lasted_s=1.0, reason="Renewed")
    again = dials.turn(1.0)
    assert again
    assert (again.endpoint, again.wait_s) == (B, 0.0)
    dials.ended(B, 2.0, lasted_s=1.0, reason="NewPlan")
    first = dials.turn(2.0)
    assert first
    assert (first.endpoint, first.wait_s) == (A, 0.0)
