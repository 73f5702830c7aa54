from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest

from syncgroup_operator import reasons
from syncgroup_operator.planning.damping import UNDER_WAY_S
from syncgroup_operator.planning.leases import STARTUP_ALLOWANCE_S
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.placement import UNSCHEDULABLE_AFTER_S
from syncgroup_operator.planning.state import GroupState
from syncgroup_operator.planning.trainers import CREATION_ALLOWANCE_S
from tests.unit.planning.world import World, fill, group

EU, US, ASIA = Place("local", "eu"), Place("local", "us"), Place("far", "asia")
FALLBACK = {"fallback": [{"region": "us"}, {"cluster": "far", "region": "asia"}]}


def running(replicas: int = 4, **spec: Any) -> World:
    world = World(group({"name": "eu", "replicas": replicas, "placement": FALLBACK}, **spec))
    fill(world)
    return world


def places(world: World) -> dict[Slot, Place]:
    return {pod.slot: pod.place for cluster in world.clusters.values() for pod in cluster.pods.values()}


def move_away(world: World, role: str, index: int) -> None:
    """Nowhere is room for it until it is moved."""
    pod = world.pod(role, index)
    pod.unschedulable, pod.renewals, pod.born_s = True, 0, world.now_s
    world.settle(UNSCHEDULABLE_AFTER_S + 30)
    assert places(world)[Slot(role, index)] == US


def test_a_new_group_gets_all_its_pods_at_once() -> None:
    world = World(group({"name": "eu", "replicas": 3}, {"name": "asia", "cluster": "far", "region": "asia"}))
    decision = world.step()
    assert [(seat.slot, seat.place, seat.create) for seat in decision.seats] == [
        (Slot("trainer", 0), US, True),
        (Slot("asia", 0), ASIA, True),
        *((Slot("eu", index), EU, True) for index in range(3)),
    ]
    assert decision.damped == 0


def test_a_group_at_rest_decides_the_same_and_changes_nothing() -> None:
    world = running()
    before = GroupState.from_json(world.state)
    decision = world.settle(300.0)
    assert decision.state == before
    assert (decision.removals, decision.replacements, decision.notes) == ((), (), ())


def test_a_silent_member_is_replaced_in_its_place_on_another_node_after_its_lease_ran_out() -> None:
    world = running()
    lost = world.pod("eu", 2)
    lost.dead = True
    assert not world.settle(38.0).removals
    world.pass_time(6.0)
    decision = world.step()
    (removal,) = decision.removals
    assert (removal.pod.uid, removal.reason, removal.force) == (lost.uid, reasons.LEASE_EXPIRED, True)
    (replacement,) = decision.replacements
    assert (replacement.to_cluster, replacement.to_region, replacement.from_node) == ("local", "eu", lost.node)
    successor = next(seat for seat in decision.seats if seat.slot == lost.slot)
    assert (successor.create, successor.avoid_nodes) == (True, (lost.node,))
    assert world.pod("eu", 2).uid != lost.uid
    assert not world.step().removals


def test_what_wakes_the_operator_is_the_next_lease_to_judge() -> None:
    world = running()
    world.pod("eu", 2).dead = True
    world.pass_time(20.0)
    world.step()
    wake_s = world.decide().wake_after_s
    assert wake_s is not None
    assert 10.0 < wake_s <= 40.1
    world.pass_time(20.0)
    world.step()
    wake_s = world.decide().wake_after_s
    assert wake_s is not None
    world.pass_time(wake_s)
    assert world.decide().replacements


def test_a_lease_that_another_pod_holds_says_nothing() -> None:
    world = running()
    old = world.pod("eu", 0)
    del world.clusters["local"].pods[old.slot]
    new = world.make_pod(old.slot, EU)
    new.starts = False
    world.pass_time(45.0)
    assert not world.step().replacements


def test_a_pod_that_runs_and_never_renews_is_lost_after_its_allowance() -> None:
    world = World(group({"name": "eu", "replicas": 2}))
    world.step()
    world.pod("eu", 1).starts = False
    world.settle(STARTUP_ALLOWANCE_S - 10)
    assert GroupState.from_json(world.state).replacements_total == 0
    world.pass_time(15)
    (replacement,) = world.step().replacements
    assert replacement.reason == reasons.NEVER_REPORTED


def test_a_second_loss_in_a_row_moves_the_seat_to_its_first_fallback() -> None:
    world = running(lease={"maxConcurrentReplacements": 8})
    world.pod("eu", 0).dead = True
    world.pass_time(45.0)
    world.step()
    world.step()
    world.pod("eu", 0).starts = False  # the successor
    world.settle(STARTUP_ALLOWANCE_S + 40)
    assert places(world)[Slot("eu", 0)] == US
    world.settle(60.0)
    assert GroupState.from_json(world.state).slots[0].attempts == 0


def test_a_seat_that_was_moved_stays_and_comes_home_only_when_its_place_leaves_the_spec() -> None:
    world = running()
    move_away(world, "eu", 1)
    assert places(world)[Slot("eu", 1)] == US
    world.settle(3600.0)
    assert places(world)[Slot("eu", 1)] == US
    rollout = world.group.spec.rollouts[0].to_document()
    world.change(rollouts=[{**rollout, "placement": {"fallback": [{"cluster": "far", "region": "asia"}]}}])
    world.settle(30.0)
    assert places(world)[Slot("eu", 1)] == EU
    assert GroupState.from_json(world.state).slots == []


def test_a_pod_without_room_waits_where_there_is_no_fallback() -> None:
    world = World(group({"name": "eu", "replicas": 1}))
    world.step()
    world.pod("eu", 0).unschedulable = True
    world.settle(3600.0)
    assert GroupState.from_json(world.state).replacements_total == 0


def test_a_region_that_goes_silent_is_left() -> None:
    world = running(replicas=6, lease={"maxConcurrentReplacements": 100})
    for index in range(6):
        world.pod("eu", index).dead = True
    world.pass_time(45.0)
    decision = world.step()
    assert {replacement.reason for replacement in decision.replacements} == {reasons.REGION_LOST}
    world.settle(30.0)
    assert {places(world)[Slot("eu", index)] for index in range(6)} == {US}


def test_the_last_member_of_a_region_that_is_left_one_by_one_leaves_too() -> None:
    world = running(replicas=4, lease={"maxConcurrentReplacements": 1})
    for index in range(4):
        world.pod("eu", index).dead = True
    world.settle(300.0, passes=60)
    assert {places(world)[Slot("eu", index)] for index in range(4)} == {US}
    assert GroupState.from_json(world.state).replacements_total == 4


def test_an_unreachable_cluster_is_held() -> None:
    world = World(group({"name": "asia", "cluster": "far", "region": "asia", "replicas": 3}))
    fill(world)
    before = dict(world.clusters["far"].pods)
    world.cut("far")
    world.settle(7200.0)
    world.mend("far")
    world.settle(300.0)
    assert world.clusters["far"].pods == before
    assert GroupState.from_json(world.state).replacements_total == 0


def lost_cluster(grace_s: int = 900) -> World:
    placement = {"fallback": [{"region": "us"}]}
    lease = {"onClusterLost": "Replace", "lostGraceSeconds": grace_s, "maxConcurrentReplacements": 3}
    rollout = {"name": "asia", "cluster": "far", "region": "asia", "replicas": 3, "placement": placement}
    world = World(group(rollout, lease=lease))
    fill(world)
    world.cut("far")
    return world


def test_a_lost_cluster_is_left_after_its_grace_which_survives_restarts() -> None:
    world = lost_cluster()
    for _ in range(8):
        world.settle(100.0, passes=2)
        world.restart()
    assert not world.clusters["local"].pods.keys() & {Slot("asia", 0)}
    wake_s = world.decide().wake_after_s
    assert wake_s is not None
    world.pass_time(max(wake_s, 900 - 800 + 1))
    decision = world.step()
    assert [replacement.reason for replacement in decision.replacements] == [reasons.CLUSTER_LOST] * 3
    assert {pod.place for slot, pod in world.clusters["local"].pods.items() if slot.role == "asia"} == {US}


def test_members_that_come_back_late_find_their_seat_taken_and_go() -> None:
    world = lost_cluster()
    world.settle(1200.0)
    assert len(world.clusters["local"].pods) == 4
    world.mend("far")
    decision = world.step()
    assert {(removal.reason, removal.force) for removal in decision.removals} == {(reasons.SLOT_TAKEN, True)}
    assert len(decision.removals) == 3
    world.settle(600.0)
    assert not world.clusters["far"].pods


def test_a_clock_that_was_ahead_does_not_end_the_grace_early() -> None:
    world = lost_cluster()
    world.clusters["far"].lost_time = world.now + datetime.timedelta(days=3)
    world.settle(300.0)
    assert GroupState.from_json(world.state).replacements_total == 0


def test_after_a_reconnect_leases_are_watched_for_their_duration_first() -> None:
    world = World(group({"name": "asia", "cluster": "far", "region": "asia", "replicas": 2}))
    fill(world)
    world.cut("far")
    for pod in world.clusters["far"].pods.values():
        pod.dead = True
    world.pass_time(600.0)
    world.step()
    world.mend("far")
    world.pass_time(0.0)
    world.step()
    world.pass_time(39.0)
    assert not world.step().replacements
    world.pass_time(2.0)
    assert len(world.step().replacements) == 2


def test_deleted_pods_are_replaced_within_the_damping() -> None:
    world = running(replicas=4, lease={"maxConcurrentReplacements": 2})
    for index in range(4):
        del world.clusters["local"].pods[Slot("eu", index)]
    decision = world.step()
    assert [replacement.reason for replacement in decision.replacements] == [reasons.POD_DELETED] * 2
    assert decision.damped == 2
    world.settle(60.0)
    assert len(world.clusters["local"].pods) == 5


def test_an_operator_that_dies_before_it_made_the_first_pods_makes_them_all_undamped() -> None:
    world = World(group({"name": "eu", "replicas": 50}))
    world.state = world.decide().state.to_json()  # and nothing was done
    world.restart()
    world.step()
    assert len(world.clusters["local"].pods) == 50
    world.pass_time(CREATION_ALLOWANCE_S + 1)  # the trainer may have been made: it is asked for with another term
    world.step()
    assert world.pod("trainer", 0).term == 2
    assert GroupState.from_json(world.state).replacements_total == 0


def test_a_replacement_that_is_seen_late_is_not_counted_twice() -> None:
    world = running()
    world.pod("eu", 0).dead = True
    world.pass_time(45.0)
    for _ in range(3):  # deletions fail, or the cache lags behind
        world.state = world.decide().state.to_json()
    state = GroupState.from_json(world.state)
    assert (state.replacements_total, state.slots[0].attempts) == (1, 1)
    (removal,) = world.decide().removals
    assert removal.force


def test_two_hundred_members_that_vanish_at_once_come_back_within_the_limits() -> None:
    lease = {"maxConcurrentReplacements": 20, "maxReplacementsPerHour": 120}
    world = World(group({"name": "eu", "replicas": 220}, lease=lease))
    fill(world)
    survivors = {slot: pod.uid for slot, pod in world.clusters["local"].pods.items() if slot.index >= 200}
    for index in range(200):
        del world.clusters["local"].pods[Slot("eu", index)]
    hours = 0
    while len(world.clusters["local"].pods) < 221 and hours < 8:
        before = GroupState.from_json(world.state).replacements_total
        for _ in range(20):
            world.pass_time(180.0)
            assert len(world.step().replacements) <= 20
        hours += 1
        assert GroupState.from_json(world.state).replacements_total - before <= 120
    assert len(world.clusters["local"].pods) == 221
    assert survivors.items() <= {slot: pod.uid for slot, pod in world.clusters["local"].pods.items()}.items()


def test_zero_per_hour_means_never() -> None:
    world = running(lease={"maxReplacementsPerHour": 0})
    world.pod("eu", 0).dead = True
    world.pod("trainer", 0).dead = True
    decision = world.settle(3600.0)
    assert (decision.damped, GroupState.from_json(world.state).replacements_total) == (2, 0)


def test_a_replacement_that_never_serves_holds_up_the_others_only_for_a_while() -> None:
    world = running(lease={"maxConcurrentReplacements": 1})
    del world.clusters["local"].pods[Slot("eu", 0)]
    world.step()
    world.pod("eu", 0).starts, world.pod("eu", 0).phase = False, "Pending"
    del world.clusters["local"].pods[Slot("eu", 1)]
    assert world.settle(60.0).damped == 1
    world.settle(UNDER_WAY_S)
    assert Slot("eu", 1) in world.clusters["local"].pods


def test_a_seat_that_keeps_dying_is_left_alone_for_longer_and_longer() -> None:
    world = World(group({"name": "eu", "replicas": 1}, lease={"maxReplacementsPerHour": 1000}))
    fill(world)
    moments = []
    while world.now_s < 2350.0:
        pod = world.clusters["local"].pods.get(Slot("eu", 0))
        if pod is not None:
            pod.phase = "Failed"
        world.pass_time(5.0)
        if world.step().replacements:
            moments.append(world.now_s)
    pauses = [after - before for before, after in itertools.pairwise(moments)]
    assert [pytest.approx(pause, abs=5.0) for pause in (10, 20, 40, 80, 160, 320, 600)] == pauses


def test_scaling_down_takes_the_highest_indices_politely() -> None:
    world = running()
    rollout = world.group.spec.rollouts[0].to_document()
    world.change(rollouts=[{**rollout, "replicas": 2}])
    decision = world.step()
    assert [(one.pod.slot.index, one.reason, one.force) for one in decision.removals] == [
        (2, reasons.SCALED_DOWN, False),
        (3, reasons.SCALED_DOWN, False),
    ]
    assert [note.reason for note in decision.notes] == [reasons.SCALED_DOWN]
    world.settle(10.0)
    world.change(rollouts=[rollout])
    decision = world.step()
    assert not decision.replacements
    assert len(world.clusters["local"].pods) == 5


def test_suspend_stops_all_pods_politely_and_keeps_the_state() -> None:
    world = running()
    move_away(world, "eu", 1)
    assert places(world)[Slot("eu", 1)] == US
    world.change(suspend=True)
    decision = world.step()
    assert {removal.force for removal in decision.removals} == {False}
    assert not any(seat.create for seat in decision.seats)
    world.settle(30.0)
    assert not world.clusters["local"].pods
    world.change(suspend=False)
    decision = world.step()
    assert not decision.replacements
    assert places(world)[Slot("eu", 1)] == US
    assert GroupState.from_json(world.state).term == 2


def test_a_member_in_a_fallback_that_an_older_state_does_not_know_is_adopted() -> None:
    world = running()
    older = world.state
    move_away(world, "eu", 1)
    moved = world.pod("eu", 1).uid
    state = GroupState.from_json(older)
    world.state = state.model_copy(update={"seen": []}).to_json()
    world.settle(60.0)
    assert world.pod("eu", 1).uid == moved
