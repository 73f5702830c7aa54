"""Regions behind object stores in a group that streams, and the other way round: plans, status, who dials whom."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract import names
from sync_runtime.contract.plan import MAX_FAN_OUT
from sync_runtime.contract.stores import address_of, fed_stores, store_at
from sync_runtime.contract.sync import ObjectStore
from sync_runtime.contract.syncgroup import SyncGroup
from syncgroup_operator import reasons
from syncgroup_operator.planning.decision import Decision
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.state import GroupState
from tests.support.examples import examples
from tests.unit.planning.test_status import conditions, shown, status
from tests.unit.planning.test_stores import region, told
from tests.unit.planning.world import World, fill, group

US, EU, ASIA = Place("local", "us"), Place("local", "eu"), Place("far", "asia")
ROLLOUTS = (
    {"name": "us", "region": "us", "replicas": 2},
    {"name": "eu", "replicas": 3},
    {"name": "asia", "cluster": "far", "region": "asia", "replicas": 4},
)
OWN = {"url": "gs://asia", "secretRef": {"name": "asia-keys"}}
SHARED = {"url": "s3://weights", "secretRef": {"name": "keys"}}
TRAINER = Slot("trainer", 0)
SHARED_ADDRESS, OWN_ADDRESS = "s3://weights/ml/grpo", "gs://asia/ml/grpo"


def through(place: Place, store: dict[str, Any] | None = None, transport: str = "ObjectStore") -> dict[str, Any]:
    way = {"cluster": place.cluster, "region": place.region, "transport": transport}
    return way if store is None else {**way, "objectStore": store}


def mixed(**sync: Any) -> World:
    world = World(group(*ROLLOUTS, sync={"regions": [through(ASIA, OWN)], **sync}))
    fill(world)
    return world


def name(role: str, index: int) -> str:
    return names.member_name(World(group(*ROLLOUTS)).group.key, role, index)


def test_only_the_region_with_a_store_leaves_the_streams() -> None:
    plans = mixed().step().plans
    assert {place: plan.transport for place, plan in plans.items()} == {
        US: "Streams", EU: "Streams", ASIA: "ObjectStore",
    }  # fmt: skip
    assert plans[ASIA].object_store == ObjectStore.parse(OWN)
    assert plans[US].object_store is None
    assert [fed.object_store.url for fed in plans[US].feeds or ()] == ["gs://asia"]
    assert (plans[US].feeds or [])[0].keys == plans[ASIA].store_keys is not None
    assert plans[EU].feeds is plans[ASIA].feeds is None


def test_members_behind_a_store_are_told_no_parent_outside_their_region() -> None:
    asia = mixed().step().plans[ASIA]
    parents = {member.name: member.parents for member in asia.members}
    assert [one for one, above in parents.items() if not above] == [name("asia", 0)]
    assert {parent for above in parents.values() for parent in above} <= set(parents)
    assert asia.trainer is None
    assert {(link.from_cluster, link.from_region) for link in asia.links} == {ASIA}


def test_work_leases_are_dialled_also_where_weights_come_from_a_store() -> None:
    world = World(group(*ROLLOUTS, sync={"regions": [through(ASIA, OWN)]}, work={"mode": "Leased"}))
    plan = world.decide().plans[ASIA]
    assert plan.trainer is not None
    assert all(plan.trainer.member not in member.parents for member in plan.members)


def test_the_trainers_neighbours_stream_in_a_group_that_has_a_store() -> None:
    world = World(group(*ROLLOUTS, sync={
        "transport": "ObjectStore", "objectStore": SHARED, "regions": [through(US, transport="Streams")],
    }))  # fmt: skip
    plans = world.decide().plans
    assert plans[US].transport == "Streams"
    assert all(member.parents == [name("trainer", 0)] for member in plans[US].members if member.role == "Rollout")
    assert [(fed.object_store.url, fed.keys) for fed in plans[US].feeds or ()] == [("s3://weights", None)]
    assert (plans[EU].transport, plans[EU].store_keys) == ("ObjectStore", None)


def test_a_plan_of_a_group_without_regions_says_what_it_always_said() -> None:
    for sync in ({}, {"transport": "ObjectStore", "objectStore": SHARED}):
        for plan in World(group(*ROLLOUTS, sync=sync)).decide().plans.values():
            assert not {"feeds", "storeKeys"} & set(plan.to_document())


def test_a_lost_relay_is_followed_by_one_that_follows_the_store() -> None:
    world = mixed()
    world.pod("asia", 0).dead = True
    world.settle(120.0)
    parents = {member.name: member.parents for member in world.plans[ASIA].members}
    following = [one for one, above in parents.items() if not above]
    assert len(following) == 1
    assert {parent for above in parents.values() for parent in above} <= set(parents)


def test_copies_of_secrets_are_looked_for_only_where_a_store_is_opened() -> None:
    world = World(group(*ROLLOUTS, {"name": "more", "cluster": "third", "region": "x"}, sync={
        "regions": [through(ASIA, OWN)],
    }))  # fmt: skip
    fill(world)
    assert GroupState.from_json(world.state).store_clusters == ["far", "local"]


def test_the_status_shows_streams_beside_a_store() -> None:
    world = mixed()
    assert shown(status(world), "Ready") == ("False", reasons.STORE_UNPROVED)
    assert OWN_ADDRESS in conditions(status(world))["Ready"].message
    told(world, TRAINER, objects=3, seq=3, rateBitsPerSecond=10**9)
    told(world, Slot("asia", 0), objects=3, seq=3, rateBitsPerSecond=10**8)
    found = status(world)
    assert shown(found, "Ready")[0] == "True"
    assert region(found, "asia").link.store == OWN_ADDRESS
    assert region(found, "eu").link is None
    assert found.store is not None
    assert (found.store.address, found.store.version) == (OWN_ADDRESS, 3)
    told(world, Slot("asia", 0), trouble={"reason": "StoreDenied", "message": "no"})
    found = status(world)
    assert shown(found, "LinksHealthy") == ("False", reasons.STORE_DENIED)
    assert OWN_ADDRESS in conditions(found)["Ready"].message
    world.change(sync={})
    told(world, Slot("asia", 0), trouble={"reason": "StoreDenied", "message": "no"})  # not heard of the new plan yet
    found = status(world)
    assert shown(found, "Ready")[0] == "True"
    assert found.store is region(found, "asia").link is None


@pytest.mark.parametrize(
    ("told_of", "shown_as"), [(SHARED_ADDRESS, SHARED_ADDRESS), (OWN_ADDRESS, OWN_ADDRESS), ("s3://x", OWN_ADDRESS)]
)
def test_of_several_stores_the_one_that_the_trainer_tells_of_is_shown(told_of: str, shown_as: str) -> None:
    world = mixed(objectStore=SHARED, regions=[through(ASIA, OWN), through(EU)])
    trouble = {"reason": "StoreUnavailable", "message": "it is away"}
    told(world, TRAINER, address=told_of, trouble=trouble)
    found = status(world)
    assert found.store is not None
    assert found.store.address == shown_as
    assert shown_as in conditions(found)["Ready"].message
    assert region(found, "eu").link.store == SHARED_ADDRESS


WAYS = st.sampled_from(["none", "Streams", "group", "own"])
PLACES = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 9)), st.tuples(st.integers(0, 20), WAYS), max_size=24
)


def any_group(places: dict[tuple[int, int], tuple[int, str]], *, stored: bool, home: tuple[int, str]) -> SyncGroup:
    """A rollout in each place, and the trainer's place, each with a way of its own or none."""
    everywhere = {Place("local", "us"): home}
    everywhere |= {Place(f"c{c}" if c else "local", f"r{r}"): found for (c, r), found in places.items()}
    rollouts, regions = [], []
    for number, (place, (replicas, way)) in enumerate(everywhere.items()):
        where = {"cluster": place.cluster, "region": place.region}
        rollouts.append({"name": f"r{number}", **where, "replicas": replicas})
        if way == "Streams":
            regions.append(through(place, transport="Streams"))
        elif way != "none":
            regions.append(through(place, {"url": f"s3://of-{number}"} if way == "own" else None))
    sync: dict[str, Any] = {"regions": regions}
    if stored or any(way == "group" for _, way in everywhere.values()):
        sync["objectStore"] = SHARED
    if stored:
        sync["transport"] = "ObjectStore"
    return group(*rollouts, sync=sync)


def assert_keeps_to_its_ways(found: SyncGroup, decision: Decision) -> None:
    sync, plans = found.spec.sync, decision.plans
    where = {member.name: place for place, plan in plans.items() for member in plan.members}
    children: dict[str, int] = {}
    for place, plan in plans.items():
        store = store_at(sync, *place)
        assert plan.object_store == store
        rollouts = [member for member in plan.members if member.role == "Rollout"]
        following = [member.name for member in rollouts if not member.parents]
        assert len(following) == (1 if store is not None and rollouts else 0)
        for member in rollouts:
            for parent in member.parents:
                outside = where[parent] != place
                assert not (store is not None and outside), "nobody dials out of a region with a store"
                assert not (outside and store_at(sync, *where[parent]) is not None and parent != name("trainer", 0))
            first = member.parents[0] if member.parents else None
            if first is not None:
                children[first] = children.get(first, 0) + 1
    assert max(children.values(), default=0) <= MAX_FAN_OUT
    trainer = plans[Place("local", "us")]
    fed = [
        *([] if trainer.object_store is None else [trainer.object_store]),
        *(f.object_store for f in trainer.feeds or ()),
    ]
    used = {address_of(store, *found.key) for place in plans if (store := store_at(sync, *place)) is not None}
    addresses = [address_of(store, *found.key) for store in fed]
    assert len(set(addresses)) == len(addresses)
    assert used <= set(addresses) == {address_of(store, *found.key) for store in fed_stores(sync, found.key)}


@settings(max_examples=examples(30), deadline=None)
@given(PLACES, st.booleans(), st.tuples(st.integers(0, 20), WAYS))
def test_whatever_ways_regions_have_everybody_keeps_to_theirs(
    places: dict[tuple[int, int], tuple[int, str]], stored: bool, home: tuple[int, str]
) -> None:
    found = any_group(places, stored=stored, home=home)
    assert_keeps_to_its_ways(found, World(found).decide())
