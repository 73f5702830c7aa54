"""With the real documents: what was applied is recognised, and nothing is done twice."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from syncgroup_operator.manifests.children import children_of
from syncgroup_operator.manifests.inputs import Extras, LibraryFacts
from syncgroup_operator.planning.diff import Action, Apply, Delete, diff
from syncgroup_operator.planning.observation import ChildView, Slot
from tests.unit.planning.world import World, fill, group

EXTRAS = Extras(hub_id="hub-1", trust_bundle="-----BEGIN CERTIFICATE-----", library=LibraryFacts(hash="0" * 64))
ROLLOUTS = ({"name": "eu", "replicas": 2}, {"name": "asia", "cluster": "far", "region": "asia", "replicas": 2})


def actions_of(world: World) -> tuple[Action, ...]:
    observation = world.observe()
    decision = world.step()
    return diff(children_of(observation, decision, EXTRAS), observation, decision)


def perform(world: World, actions: tuple[Action, ...]) -> None:
    """What an API server does; pods and leases are the world's own business."""
    for action in actions:
        children = world.children.setdefault(action.cluster, {})
        if isinstance(action, Delete):
            children.pop(action.key, None)
        elif isinstance(action, Apply) and action.key.kind not in ("Pod", "Lease"):
            body = served(copy.deepcopy(dict(action.document)))
            children[action.key] = ChildView(action.key, f"uid-{action.key.name}", "1", json.dumps(body).encode())


def served(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"] = {**body["metadata"], "uid": "1", "resourceVersion": "1"}
    if body["kind"] == "Service":
        ports = [{"protocol": "TCP", "nodePort": 30001, **port} for port in body["spec"].get("ports", ())]
        body["spec"] = {"sessionAffinity": "None", **body["spec"], "ports": ports}
    return body


def at_rest(**spec: Any) -> World:
    world = World(group(*ROLLOUTS, trainer={"exposure": {"type": "LoadBalancer", "host": "t.example"}}, **spec))
    fill(world)
    world.children.clear()
    world.writes_plans = False  # the real documents take their place
    perform(world, actions_of(world))
    return world


@pytest.mark.parametrize("storage", ["EmptyDir", "PersistentVolumeClaim"])
def test_a_group_at_rest_needs_nothing_and_a_restart_touches_nothing(storage: str) -> None:
    world = at_rest(runtime={"storage": {"type": storage}})
    kinds = {key.kind for children in world.children.values() for key in children}
    assert kinds >= {"ConfigMap", "Role", "RoleBinding", "Service"}
    assert ("PersistentVolumeClaim" in kinds) == (storage == "PersistentVolumeClaim")
    assert actions_of(world) == ()
    world.restart()
    world.pass_time(600.0)
    assert actions_of(world) == ()


def test_every_child_that_somebody_deletes_is_made_again() -> None:
    world = at_rest()
    for cluster, children in world.children.items():
        for key in list(children):
            gone = children.pop(key)
            (action,) = actions_of(world)
            assert isinstance(action, Apply)
            assert (action.cluster, action.key) == (cluster, key)
            children[key] = gone


def test_every_child_that_somebody_edits_is_applied_again() -> None:
    world = at_rest()
    for cluster, children in world.children.items():
        for key, child in list(children.items()):
            body = json.loads(child.body)
            for part in ("data", "rules", "subjects", "spec"):
                body.pop(part, None)
            children[key] = ChildView(key, child.uid, "2", json.dumps(body).encode())
            found = [(action.cluster, action.key) for action in actions_of(world)]
            assert found == [(cluster, key)]
            children[key] = child


def test_a_rollout_that_leaves_takes_its_objects_with_it_but_for_claims() -> None:
    world = at_rest(runtime={"storage": {"type": "PersistentVolumeClaim"}})
    eu, _ = (rollout.to_document() for rollout in world.group.spec.rollouts)
    world.change(rollouts=[eu])
    for _ in range(4):
        perform(world, actions_of(world))
        world.pass_time(2.0)
    assert {key.kind for key in world.children["far"]} == {"PersistentVolumeClaim"}
    assert actions_of(world) == ()


def test_a_cluster_that_is_away_gets_nothing_and_everything_once_it_is_back() -> None:
    world = at_rest()
    world.cut("far")
    world.children["far"].clear()
    world.pass_time(5.0)
    assert actions_of(world) == ()
    world.mend("far")
    found = {(action.cluster, action.key.kind) for action in actions_of(world)}
    assert found >= {("far", "ConfigMap"), ("far", "Role"), ("far", "Service")}
    assert {cluster for cluster, _ in found} == {"far"}


def test_pods_of_a_new_group_come_after_all_that_they_need() -> None:
    world = World(group(*ROLLOUTS))
    kinds = [action.key.kind for action in actions_of(world)]
    assert kinds.index("Pod") > max(index for index, kind in enumerate(kinds) if kind != "Pod")
    assert kinds.count("Pod") == 5
    assert Slot("trainer", 0) in world.clusters["local"].pods
