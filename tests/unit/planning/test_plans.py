from __future__ import annotations

import json
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.plan import Plan
from syncgroup_operator.planning.observation import ChildView, ObjectKey, Place, Slot
from syncgroup_operator.planning.state import GroupState
from tests.unit.planning.world import World, fill, group

US, EU, ASIA = Place("local", "us"), Place("local", "eu"), Place("far", "asia")
ROLLOUTS = (
    {"name": "us", "region": "us", "replicas": 2},
    {"name": "eu", "region": "eu", "replicas": 3},
    {"name": "asia", "cluster": "far", "region": "asia", "replicas": 3},
)


def running(**trainer: Any) -> World:
    world = World(group(*ROLLOUTS, trainer=trainer))
    fill(world)
    return world


def service(world: World, cluster: str = "local", **body: Any) -> None:
    key = ObjectKey("Service", "ml", names.trainer_service_name(world.group.key))
    child = ChildView(key, "uid", "1", json.dumps({"kind": "Service", **body}).encode())
    world.children.setdefault(cluster, {})[key] = child


def test_there_is_a_plan_per_place_and_each_can_be_read_back() -> None:
    plans = running().decide().plans
    assert set(plans) == {US, EU, ASIA}
    for place, plan in plans.items():
        assert Plan.from_json(plan.to_json()) == plan
        assert (plan.cluster, plan.region) == place
    assert [member.role for member in plans[US].members] == ["Trainer", "Rollout", "Rollout"]
    assert [(link.from_cluster, link.from_region) for link in plans[ASIA].links] == [ASIA, US]


def test_an_equal_plan_keeps_its_revision_over_restarts_and_time() -> None:
    world = running()
    before = {place: plan.to_json() for place, plan in world.decide().plans.items()}
    world.restart()
    for seconds in (1.0, 10.0, 3600.0):
        world.pass_time(seconds)
        assert {place: plan.to_json() for place, plan in world.step().plans.items()} == before


def test_a_change_of_the_spec_gives_all_plans_one_new_revision() -> None:
    world = running()
    before = GroupState.from_json(world.state).revision
    world.change(sync={"maxStaleness": 9})
    decision = world.step()
    assert {plan.revision for plan in decision.plans.values()} == {before + 1}
    assert decision.state.revision == before + 1
    assert {plan.max_staleness for plan in decision.plans.values()} == {9}


def test_a_lost_relay_is_replaced_in_the_plan_at_once_and_a_lost_leaf_changes_nothing() -> None:
    world = running()
    before = world.decide()
    relay, standby, leaf = (names.member_name(world.group.key, "asia", index) for index in range(3))
    assert [member.name for member in before.plans[ASIA].members if member.relay] == [relay]
    world.pod("asia", 2).dead = True
    world.pass_time(45.0)
    assert world.decide().plans[ASIA] == before.plans[ASIA]
    world.pod("asia", 0).dead = True
    world.step()
    world.pass_time(45.0)
    plan = world.decide().plans[ASIA]
    assert [member.name for member in plan.members if member.relay] == [standby]
    assert {member.name for member in plan.members} == {relay, standby, leaf}


def test_members_are_dialled_by_names_that_outlive_their_pods() -> None:
    plan = running().decide().plans[ASIA]
    key = names.GroupKey("ml", "grpo")
    relay = names.member_name(key, "asia", 0)
    hosts = {endpoint.member: endpoint.host for endpoint in plan.endpoints}
    assert hosts[relay] == f"{relay}.{names.members_service_name(key)}.ml.svc"


@pytest.mark.parametrize(
    ("exposure", "body", "address"),
    [
        ({"type": "External", "host": "a.example", "port": 9}, {}, ("a.example", 9)),
        ({"type": "LoadBalancer"}, {}, None),
        (
            {"type": "LoadBalancer"},
            {"status": {"loadBalancer": {"ingress": [{}, {"ip": "203.0.113.7"}]}}},
            ("203.0.113.7", 7443),
        ),
        (
            {"type": "LoadBalancer", "host": "lb.example", "port": 443},
            {"status": {"loadBalancer": {"ingress": [{"hostname": "x.example"}]}}},
            ("lb.example", 443),
        ),
        ({"type": "LoadBalancer"}, {"status": {"loadBalancer": {"ingress": [{"hostname": "not a host"}]}}}, None),
        ({"type": "NodePort", "host": "n.example"}, {"spec": {"ports": [{"nodePort": 30001}]}}, ("n.example", 30001)),
        ({"type": "NodePort", "host": "n.example", "port": 30002}, {}, ("n.example", 30002)),
        ({"type": "NodePort"}, {"spec": {"ports": [{"nodePort": 30001}]}}, None),
    ],
)
def test_other_clusters_dial_what_the_spec_or_the_service_says(
    exposure: dict[str, Any], body: dict[str, Any], address: tuple[str, int] | None
) -> None:
    world = World(group(*ROLLOUTS, trainer={"exposure": exposure}))
    service(world, **body)
    plans = world.decide().plans
    far, near = plans[ASIA].trainer, plans[EU].trainer
    assert (None if far is None else (far.host, far.port)) == address
    assert near is not None
    assert near.host.endswith(".ml.svc")


def test_an_address_that_was_known_is_kept_while_its_service_is_out_of_sight() -> None:
    world = World(group(*ROLLOUTS, trainer={"cluster": "far", "region": "us", "exposure": {"type": "LoadBalancer"}}))
    service(world, "far", status={"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}})
    fill(world)
    before = world.decide()
    world.cut("far")
    world.restart()
    world.pass_time(10.0)
    after = world.decide()
    assert after.plans == before.plans
    assert (after.state.trainer_host, after.state.trainer_port) == ("203.0.113.7", 7443)


def test_the_slowest_members_join_traces_without_flapping() -> None:
    world = running()
    for index, millis in enumerate((100, 900, 300)):
        world.reports[Slot("eu", index)] = {"syncMillis": millis}
    world.change(telemetry={"sampledMembersPerRegion": 1})
    world.step()
    name = names.member_name(world.group.key, "eu", 1)
    assert world.decide().plans[EU].telemetry.sampled_members == [name]
    for slow in (1200, 1700, 600):
        world.reports[Slot("eu", 2)] = {"syncMillis": slow}
        assert world.step().plans[EU].telemetry.sampled_members == [name]
    world.reports[Slot("eu", 2)] = {"syncMillis": 2000}
    assert world.step().plans[EU].telemetry.sampled_members == [names.member_name(world.group.key, "eu", 2)]


def test_a_cluster_whose_namespace_is_not_known_gets_no_plan_and_loses_no_memory() -> None:
    world = running()
    state = GroupState.from_json(world.state)
    del world.clusters["far"]
    decision = world.decide()
    assert set(decision.plans) == {US, EU}
    assert [place for place in decision.state.places if place.cluster == "far"] == [
        place for place in state.places if place.cluster == "far"
    ]


def test_an_object_store_travels_with_the_plan() -> None:
    sync = {"transport": "ObjectStore", "objectStore": {"url": "s3://weights"}}
    world = World(group(*ROLLOUTS, sync=sync, trainer={"exposure": {"type": "ClusterIP"}}))
    plans = world.decide().plans
    assert {plan.transport for plan in plans.values()} == {"ObjectStore"}
    assert plans[ASIA].trainer is None
