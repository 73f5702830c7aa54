"""All places of a group together: whatever their number, no parent serves more than it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.plan import MAX_FAN_OUT, MAX_PARENTS
from syncgroup_operator.planning.nesting import Trees, hosts_of, route_all
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.routes import LOST, SERVING, STARTING, Candidate
from tests.support.examples import examples
from tests.unit.planning.world import World, fill, group

TRAINER = "trainer"
HOME = Place("local", "home")
Members = Mapping[Place, list[Candidate]]


def place_of(members: int, place: Place, ranks: tuple[int, ...] = (SERVING,)) -> list[Candidate]:
    return [
        Candidate(f"{place.cluster}-{place.region}-{index}", Slot(place.region, index), ranks[index % len(ranks)])
        for index in range(members)
    ]


def routed(members: Members) -> Trees:
    return route_all(members, {}, home=HOME, trainer=TRAINER, exposed=True)


def first_parents(trees: Trees) -> dict[str, str]:
    return {name: parents[0] for routes in trees.routes.values() for name, parents in routes.parents.items() if parents}


def assert_is_sound(trees: Trees, members: Members) -> None:
    lost = {one.name for found in members.values() for one in found if one.rank == LOST}
    where = {one.name: place for place, found in members.items() for one in found}
    first = first_parents(trees)
    assert max(Counter(first.values()).values(), default=0) <= MAX_FAN_OUT
    for routes in trees.routes.values():
        for name, parents in routes.parents.items():
            assert parents[-1] == TRAINER
            assert len(parents) <= MAX_PARENTS
            assert not lost & set(parents)
            others = {where[parent].cluster for parent in parents if parent != TRAINER}
            assert others <= {where[name].cluster}, "nobody is dialled from another cluster but the trainer"
    for name in first:
        current, steps = name, 0
        while current != TRAINER:
            current, steps = first[current], steps + 1
            assert steps < 20, "a circle"


REGIONS = st.tuples(st.integers(0, 7), st.integers(0, 40), st.integers(1, 20))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(REGIONS, max_size=80), st.integers(0, 40), st.data())
def test_any_number_of_places_gets_trees_in_which_nobody_serves_too_many(
    places: list[tuple[int, int, int]], local: int, data: st.DataObject
) -> None:
    members: dict[Place, list[Candidate]] = {HOME: place_of(local, HOME)}
    for cluster, region, count in places:
        place = Place(f"c{cluster}" if cluster else "local", f"r{region}")
        # The first one lives, else its place serves nobody; who else does is anybody's guess.
        ranks = (SERVING, *data.draw(st.lists(st.sampled_from([SERVING, STARTING]), max_size=2)))
        members[place] = place_of(count, place, ranks)
    trees = routed(members)
    assert_is_sound(trees, members)
    assert routed(dict(reversed(members.items()))) == trees


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.booleans(), min_size=20, max_size=90))
def test_a_place_without_a_living_member_serves_nobody_and_everybody_else_is_served(living: list[bool]) -> None:
    members: dict[Place, list[Candidate]] = {HOME: place_of(3, HOME)}
    for number, lives in enumerate(living):
        place = Place("far", f"r{number:02}")
        members[place] = place_of(2, place, (SERVING,) if lives else (LOST,))
    trees = routed(members)
    dead = {place for place, found in members.items() if place != HOME and found[0].rank == LOST}
    hosts = {host for place, host in trees.hosts.items() if place not in dead}
    assert not hosts & dead
    first = first_parents(trees)
    alive = [one.name for found in members.values() for one in found if one.rank != LOST]
    assert max(Counter(first[name] for name in alive).values()) <= MAX_FAN_OUT


def test_hundreds_of_places_with_one_member_each_are_nested_level_by_level() -> None:
    places = [Place("far", f"r{number:03}") for number in range(300)]
    members = {HOME: place_of(20, HOME)} | {place: place_of(1, place) for place in places}
    trees = routed(members)
    assert_is_sound(trees, members)
    assert trees.hosts[places[299]] in trees.hosts, "the host is a guest itself"


def test_as_long_as_the_trainer_has_room_every_place_dials_it() -> None:
    members = {HOME: place_of(5, HOME)} | {Place("far", f"r{n}"): place_of(3, Place("far", f"r{n}")) for n in range(15)}
    trees = routed(members)
    assert not trees.hosts
    assert Counter(first_parents(trees).values())[TRAINER] == MAX_FAN_OUT


def test_every_cluster_keeps_a_place_that_dials_the_trainer_and_the_rest_of_its_room_is_shared() -> None:
    places = [Place(cluster, f"r{n:02}") for cluster in ("a", "b") for n in range(20)] + [Place("c", "only")]
    hosts = hosts_of({HOME: place_of(1, HOME)} | {place: place_of(1, place) for place in places}, HOME)
    direct = Counter(place.cluster for place, host in hosts.items() if host is None and place != HOME)
    assert direct == {"a": 7, "b": 7, "c": 1}
    assert all(host is None or host.cluster == place.cluster for place, host in hosts.items())


def test_more_clusters_than_the_trainer_may_serve_all_dial_it_since_nobody_else_can_be_dialled() -> None:
    places = [Place(f"c{n}", region) for n in range(20) for region in ("a", "b")]
    trees = routed({HOME: []} | {place: place_of(2, place) for place in places})
    assert Counter(first_parents(trees).values())[TRAINER] == 20
    assert all(host.region == "a" for host in trees.hosts.values())


def test_a_guests_plan_names_whom_it_dials_and_the_link_from_there() -> None:
    rollouts = [{"name": f"r{n:02}", "cluster": "far", "region": f"r{n:02}", "replicas": 2} for n in range(18)]
    world = World(group(*rollouts))
    decision = fill(world)
    guest, host = Place("far", "r17"), Place("far", "r00")
    plan = decision.plans[guest]
    relay = next(member for member in decision.plans[host].members if member.relay)
    root = next(member for member in plan.members if member.relay)
    assert root.parents[0] == relay.name
    assert root.parents[-1] == decision.plans[host].trainer.member  # type: ignore[union-attr]
    assert {(one.cluster, one.region) for one in plan.endpoints} >= {tuple(host)}
    assert {(one.from_cluster, one.from_region) for one in plan.links} == {("local", "us"), tuple(host), tuple(guest)}
