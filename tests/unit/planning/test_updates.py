from __future__ import annotations

from syncgroup_operator import reasons
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.state import GroupState
from tests.unit.planning.world import Pod, World, fill, group


def running(replicas: int = 6, max_unavailable: int = 2) -> World:
    world = World(group({"name": "eu", "replicas": replicas, "maxUnavailable": max_unavailable}))
    fill(world)
    return world


def rollouts(world: World) -> list[Pod]:
    return [pod for slot, pod in sorted(world.clusters["local"].pods.items()) if slot.role == "eu"]


def removed(world: World) -> list[int]:
    return [one.pod.slot.index for one in world.decide().removals if one.pod.slot.role == "eu"]


def test_ready_pods_go_as_far_as_max_unavailable_and_the_relay_last() -> None:
    world = running()
    world.template = "v2"
    relay = Slot("eu", 0)
    order: list[int] = []
    least = 6
    for _ in range(60):
        world.step()
        world.pass_time(1.0)
        up = [pod for pod in rollouts(world) if world.is_up(pod) and pod.deleting_s is None]
        least = min(least, len(up))
        order += [pod.slot.index for pod in rollouts(world) if pod.template == "v2" and pod.slot.index not in order]
    assert least == 4
    assert {pod.template for pod in rollouts(world)} == {"v2"}
    assert order[-1] in (relay.index, 1)  # the relay and its standby
    assert GroupState.from_json(world.state).replacements_total == 0


def test_pods_that_are_unavailable_already_count() -> None:
    world = running()
    world.pod("eu", 3).template = "v2"
    world.pod("eu", 3).born_s = world.now_s  # not ready yet
    world.template = "v2"
    assert len(removed(world)) == 1
    world.pod("eu", 4).template = "v2"
    world.pod("eu", 4).born_s = world.now_s
    assert removed(world) == []


def test_broken_pods_are_updated_first_and_all_at_once() -> None:
    world = running()
    for index in (1, 3, 5):
        world.pod("eu", index).born_s = world.now_s
    world.template = "v2"
    assert removed(world) == [1, 3, 5]


def test_a_template_that_is_not_known_dates_nobody() -> None:
    world = running()
    world.template = "v2"
    observation = world.observe()
    assert {removal.reason for removal in world.decide().removals} == {reasons.TEMPLATE_CHANGED}
    world.roles = lambda: []  # type: ignore[method-assign]
    assert observation.template_hashes
    assert world.decide().removals == ()


def test_a_second_change_in_the_middle_of_the_first_ends_in_the_last() -> None:
    world = running()
    world.template = "v2"
    world.settle(10.0)
    world.template = "v3"
    world.settle(200.0, passes=60)
    assert {pod.template for pod in rollouts(world)} == {"v3"}


def test_a_member_that_dies_during_the_change_does_not_stop_it() -> None:
    world = running()
    world.template = "v2"
    world.settle(5.0, passes=2)
    world.pod("eu", 5).dead = True
    world.settle(400.0, passes=80)
    assert {pod.template for pod in rollouts(world)} == {"v2"}
    assert all(world.is_up(pod) for pod in rollouts(world))
