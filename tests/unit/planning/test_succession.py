"""Who is given up goes at once, and the successor of the same name is asked for in the same pass."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sync_runtime.contract import names
from syncgroup_operator.errors import ApiError, ConflictError, NotFoundError
from syncgroup_operator.execute.act import act
from syncgroup_operator.planning.diff import Action, Apply, Delete, Wanted, diff
from tests.unit.planning.world import World, fill, group


def lost_member() -> tuple[World, str]:
    """A group whose member eu-1 has been silent for too long, and its pod's uid."""
    world = World(group({"name": "eu", "replicas": 2}, lease={"maxConcurrentReplacements": 1024}))
    fill(world)
    lost = world.pod("eu", 1)
    lost.dead = True
    world.settle(36.0)
    world.pass_time(8.0)
    return world, lost.uid


def planned(world: World) -> list[Action]:
    decision = world.decide()
    wanted = [
        Wanted(seat.place.cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ml", "name": name}})
        for seat in decision.seats
        for name in [names.member_name(world.group.key, *seat.slot)]
        if seat.create
    ]
    return [one for one in diff(wanted, world.observe(), decision) if one.key.kind == "Pod"]


def test_a_lost_member_and_its_successor_are_one_action() -> None:
    world, uid = lost_member()
    (action,) = planned(world)
    assert isinstance(action, Apply)
    assert (action.key.name, action.instead_of) == (names.member_name(world.group.key, "eu", 1), uid)


def test_a_lease_that_ran_out_is_told_whether_its_member_may_be_replaced_or_not() -> None:
    world, uid = lost_member()
    assert world.decide().expired == (uid,)
    world.change(lease={"maxReplacementsPerHour": 0})
    assert (world.decide().expired, world.decide().replacements) == ((uid,), ())
    world.cut("local")
    assert world.decide().expired == ()  # of a cluster that is away nothing is known


def test_a_member_that_is_asked_politely_has_no_successor_before_it_is_gone() -> None:
    world = World(group({"name": "eu", "replicas": 2}))
    fill(world)
    world.template = "v2"
    actions = planned(world)
    assert actions
    assert all(isinstance(action, Delete) and action.grace_s is None for action in actions)


class Server:
    """Notes what it is asked; answers as told."""

    name = "local"

    def __init__(self, refusal: ApiError | None = None, created: ApiError | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.refusal = refusal
        self.created = created

    async def delete(self, _kind: Any, _namespace: str, name: str, *, uid: str, grace_s: int | None) -> None:
        self.asked.append((f"delete {uid} {grace_s}", name))
        if self.refusal is not None:
            raise self.refusal

    async def create(self, document: Any) -> dict[str, Any]:
        self.asked.append(("create", document["metadata"]["name"]))
        if self.created is not None:
            raise self.created
        return {"metadata": {"uid": "new", "resourceVersion": "8"}}

    async def apply(self, document: Any) -> dict[str, Any]:
        self.asked.append(("apply", document["metadata"]["name"]))
        return {"metadata": {"uid": "plan", "resourceVersion": "9"}}


def succeed(server: Server, *before: Action) -> Any:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ml", "name": "eu-1"}}
    actions = [*before, Apply("local", document, instead_of="old")]
    return asyncio.run(act(actions, {"local": server}))  # type: ignore[dict-item]


def test_a_successor_does_not_wait_for_the_new_plan() -> None:
    server = Server()
    plan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ml", "name": "plan"}}
    succeed(server, Apply("local", plan))
    assert [verb for verb, _ in server.asked] == ["delete old 0", "create", "apply"]


@pytest.mark.parametrize("refusal", [None, NotFoundError("gone"), ConflictError("another uid")])
def test_the_old_pod_is_deleted_without_grace_before_the_new_one_is_created(refusal: ApiError | None) -> None:
    server = Server(refusal)
    outcome = succeed(server)
    assert server.asked == [("delete old 0", "eu-1"), ("create", "eu-1")]
    assert [(done.uid, done.deleted) for done in outcome.done] == [("new", False)]
    assert outcome.failures == ()


def test_an_old_pod_that_lingers_is_never_changed_into_the_new_one() -> None:
    outcome = succeed(Server(created=ConflictError("it exists")))
    assert outcome.done == ()
    assert [failure.retry for failure in outcome.failures] == [True]
