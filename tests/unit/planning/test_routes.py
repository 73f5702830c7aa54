from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.plan import MAX_FAN_OUT, MAX_PARENTS
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.routes import (
    ABSENT,
    LIVE,
    LOST,
    SERVING,
    STARTING,
    Candidate,
    Routes,
    route,
    trainer_roots,
)
from tests.support.examples import examples

TRAINER = "trainer"


def members(*ranks: int) -> list[Candidate]:
    return [Candidate(f"m-{index:04}", Slot("eu", index), rank, 0, 100) for index, rank in enumerate(ranks)]


def depth_of(name: str, routes: Routes) -> int:
    depth = 0
    while name != TRAINER:
        name, depth = routes.parents[name][0], depth + 1
        assert depth < 10
    return depth


def assert_is_sound(routes: Routes, found: list[Candidate], roots: int) -> None:
    """Fan-out, no lost parent, no circle whatever fails, and a way to the trainer for all that live."""
    lost = {member.name for member in found if member.rank == LOST}
    firsts = Counter(parents[0] for parents in routes.parents.values() if parents)
    assert max(firsts.values(), default=0) <= MAX_FAN_OUT
    order = {name: number for number, name in enumerate(routes.parents)}
    for name, parents in routes.parents.items():
        assert len(parents) <= MAX_PARENTS
        assert len(set(parents)) == len(parents)
        assert not lost & set(parents)
        assert all(parent == TRAINER or order[parent] < order[name] for parent in parents)
        if name not in lost:
            assert parents[-1] == TRAINER
    assert firsts[TRAINER] <= max(roots, MAX_FAN_OUT)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([SERVING, LIVE, STARTING, ABSENT, LOST]), max_size=400),
    st.lists(st.integers(0, 450), max_size=30, unique=True),
    st.booleans(),
    st.integers(0, 16),
)
def test_any_place_gets_a_sound_tree(ranks: list[int], before: list[int], local: bool, remote_places: int) -> None:
    found = members(*ranks)
    roots = trainer_roots(len(found), remote_places) if local else 1
    heads = [f"m-{index:04}" for index in before]
    routes = route(found, heads, trainer=TRAINER, roots=roots, local=local)
    assert_is_sound(routes, found, roots)
    again = route(list(reversed(found)), routes.heads, trainer=TRAINER, roots=roots, local=local)
    assert again == routes  # sticky, and the order of members does not matter


def test_one_relay_dials_the_trainer_and_the_others_dial_it_with_a_standby_behind() -> None:
    routes = route(members(SERVING, SERVING, SERVING), [], trainer=TRAINER, roots=1)
    assert routes.relays == ("m-0000",)
    assert routes.parents == {
        "m-0000": (TRAINER,),
        "m-0001": ("m-0000", TRAINER),
        "m-0002": ("m-0000", "m-0001", TRAINER),
    }


def test_a_thousand_members_get_further_levels_of_relays() -> None:
    found = members(*[SERVING] * 1024)
    routes = route(found, [], trainer=TRAINER, roots=1)
    assert_is_sound(routes, found, 1)
    assert len(routes.relays) == 64
    assert max(depth_of(member.name, routes) for member in found) <= 4


def test_a_living_relay_stays_even_if_others_are_better() -> None:
    found = members(SERVING, SERVING, LIVE, SERVING)
    assert route(found, ["m-0002", "m-0003"], trainer=TRAINER, roots=1).relays == ("m-0002",)


def test_the_standby_takes_the_place_of_a_lost_relay_and_nobody_else_moves() -> None:
    ranks = [SERVING] * 40
    before = route(members(*ranks), [], trainer=TRAINER, roots=1)
    assert before.relays == ("m-0000", "m-0001", "m-0002")
    ranks[0] = LOST
    after = route(members(*ranks), before.heads, trainer=TRAINER, roots=1)
    assert after.heads[0] == "m-0001"
    assert after.heads[2] == "m-0002"
    stayed = sum(
        after.parents[name][0] == parents[0] for name, parents in before.parents.items() if parents[0] == "m-0002"
    )
    assert stayed >= sum(parents[0] == "m-0002" for parents in before.parents.values()) - 1


def test_a_lost_leaf_changes_nothing() -> None:
    before = route(members(*[SERVING] * 20), [], trainer=TRAINER, roots=1)
    ranks = [SERVING] * 20
    ranks[9] = LOST
    assert route(members(*ranks), before.heads, trainer=TRAINER, roots=1) == before


def test_the_freshest_and_fastest_of_those_that_serve_becomes_relay() -> None:
    found = [
        Candidate("lagging", Slot("eu", 0), SERVING, lag=3, sync_millis=10),
        Candidate("slow", Slot("eu", 1), SERVING, lag=0, sync_millis=900),
        Candidate("fast", Slot("eu", 2), SERVING, lag=0, sync_millis=100),
        Candidate("starting", Slot("eu", 3), STARTING, lag=0, sync_millis=1),
    ]
    assert route(found, [], trainer=TRAINER, roots=1).heads == ("fast", "slow")


def test_a_relay_that_starts_is_given_a_while_before_somebody_who_lives_takes_over() -> None:
    young = Candidate("m-0000", Slot("eu", 0), STARTING, young=True)
    old = Candidate("m-0000", Slot("eu", 0), STARTING)
    other = Candidate("m-0001", Slot("eu", 1), SERVING)
    assert route([young, other], ["m-0000"], trainer=TRAINER, roots=1).relays == ("m-0000",)
    assert route([old, other], ["m-0000"], trainer=TRAINER, roots=1).relays == ("m-0001",)


def test_of_a_place_that_cannot_be_seen_the_heads_stay() -> None:
    found = members(ABSENT, ABSENT, ABSENT)
    assert route(found, ["m-0002", "m-0001"], trainer=TRAINER, roots=1, held=True).heads == ("m-0002", "m-0001")


def test_the_trainers_own_region_dials_it_as_far_as_fan_out_goes() -> None:
    assert trainer_roots(5, remote_places=3) == 5
    routes = route(members(*[SERVING] * 5), [], trainer=TRAINER, roots=5, local=True)
    assert set(routes.parents.values()) == {(TRAINER,)}
    assert routes.relays == ()
    roots = trainer_roots(30, remote_places=3)
    assert roots == 13
    crowded = route(members(*[SERVING] * 30), [], trainer=TRAINER, roots=roots, local=True)
    assert sum(parents[0] == TRAINER for parents in crowded.parents.values()) == 13
    assert crowded.relays == ("m-0000", "m-0001")


def test_without_the_trainers_address_the_region_is_ready_but_for_it() -> None:
    routes = route(members(SERVING, SERVING), [], trainer=None, roots=1)
    assert routes.parents == {"m-0000": (), "m-0001": ("m-0000",)}


def test_a_region_of_lost_members_may_still_dial_the_trainer() -> None:
    routes = route(members(LOST, LOST), [], trainer=TRAINER, roots=1)
    assert (routes.heads, set(routes.parents.values())) == ((), {(TRAINER,)})
