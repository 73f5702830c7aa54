"""Requests of the spec: begun once, within the limits, whatever happens to the operator meanwhile."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract.names import GroupKey, member_name
from sync_runtime.contract.requests import MAX_REQUESTS, RequestStatus
from syncgroup_operator import reasons
from syncgroup_operator.planning.damping import FIRST_BACK_OFF_S
from syncgroup_operator.planning.leases import STARTUP_ALLOWANCE_S
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.state import MAX_REQUEST_STATES, GroupState
from syncgroup_operator.planning.status import status_of
from tests.support.examples import examples
from tests.unit.planning.world import World, fill, group

KEY = GroupKey("ml", "grpo")


def member(role: str, index: int = 0) -> str:
    return member_name(KEY, role, index)


def replace(number: int, role: str, index: int = 0) -> dict[str, Any]:
    return {"id": f"r{number}", "type": "Replace", "member": member(role, index)}


def running(replicas: int = 3, **spec: Any) -> World:
    world = World(group({"name": "eu", "replicas": replicas}, **spec))
    fill(world)
    return world


def statuses(world: World) -> dict[str, RequestStatus]:
    observation = world.observe()
    return {one.id: one for one in status_of(observation, world.decide()).requests}


def test_a_requested_member_gets_another_pod_politely_and_the_status_says_so() -> None:
    world = running()
    old = world.pod("eu", 1)
    world.change(requests=[replace(1, "eu", 1)])
    assert statuses(world)["r1"].state == "Running"
    decision = world.step()
    assert [(one.member, one.reason) for one in decision.replacements] == [(member("eu", 1), reasons.REQUESTED)]
    assert [(one.pod.uid, one.force) for one in decision.removals] == [(old.uid, False)]
    world.settle()
    new = world.pod("eu", 1)
    assert new.uid != old.uid
    assert (statuses(world)["r1"].state, world.group.spec.requests[0].id) == ("Done", "r1")
    assert new.node in (statuses(world)["r1"].message or "")


def test_a_pod_that_ends_slowly_is_never_forced_and_its_successor_waits() -> None:
    world = running()
    old = world.pod("eu", 0)
    world.change(requests=[replace(1, "eu", 0)])
    world.step()
    for _ in range(5):
        decision = world.step()  # no time passes: the pod is still ending
        assert not [one for one in decision.removals if one.force]
        assert world.pod("eu", 0) is old
    assert statuses(world)["r1"].state == "Running"


def test_an_operator_that_dies_before_it_acts_finds_the_pod_still_to_go() -> None:
    world = running()
    old = world.pod("eu", 0)
    world.change(requests=[replace(1, "eu", 0)])
    world.state = world.decide().state.to_json()  # written, and nothing done
    world.restart()
    decision = world.step()
    assert [(one.pod.uid, one.force) for one in decision.removals] == [(old.uid, False)]
    assert not decision.replacements  # it was counted before
    world.settle()
    assert world.pod("eu", 0).uid != old.uid


def test_a_requested_trainer_gets_a_new_term_before_its_pod_goes() -> None:
    world = running()
    old = world.pod("trainer", 0)
    before = GroupState.from_json(world.state).term
    world.change(requests=[replace(1, "trainer")])
    decision = world.step()
    assert decision.state.term == before + 1
    assert [one.force for one in decision.removals] == [False]
    world.settle()
    new = world.pod("trainer", 0)
    assert (new.uid != old.uid, new.term) == (True, before + 1)
    assert statuses(world)["r1"].state == "Done"


def test_requests_wait_for_the_limit_of_concurrent_replacements() -> None:
    world = running(4, lease={"maxConcurrentReplacements": 1})
    world.change(requests=[replace(index, "eu", index) for index in range(4)])
    decision = world.step()
    assert len(decision.replacements) == 1
    found = statuses(world)
    assert sorted(one.state for one in found.values()) == ["Running", "Waiting", "Waiting", "Waiting"]
    assert reasons.DAMPED in (found["r3"].message or "")
    world.settle(300, 60)
    assert {one.state for one in statuses(world).values()} == {"Done"}


def test_members_that_are_never_replaced_wait_for_ever_and_the_reason_is_told() -> None:
    world = running(lease={"maxReplacementsPerHour": 0})
    world.change(requests=[replace(1, "eu")])
    world.settle()
    assert "maxReplacementsPerHour is 0" in (statuses(world)["r1"].message or "")


def test_a_member_that_does_not_exist_is_refused_once_and_stays_so() -> None:
    world = running()
    world.change(requests=[replace(1, "eu", 7)])
    world.step()
    assert statuses(world)["r1"].state == "Refused"
    rollouts = world.group.to_document()["spec"]["rollouts"]
    world.change(rollouts=[{**rollouts[0], "replicas": 9}])
    world.settle()
    assert statuses(world)["r1"].state == "Refused"
    assert GroupState.from_json(world.state).replacements_total == 0


def test_a_suspended_group_keeps_requests_waiting() -> None:
    world = running()
    world.change(suspend=True, requests=[replace(1, "eu")])
    world.settle()
    assert statuses(world)["r1"].state == "Waiting"
    world.change(suspend=False)
    world.settle()
    world.settle()
    assert statuses(world)["r1"].state == "Done"


def test_a_member_that_is_lost_anyway_is_not_replaced_twice() -> None:
    world = running()
    world.pod("eu", 0).dead = True
    world.pass_time(60)
    world.change(requests=[replace(1, "eu", 0)])
    decision = world.step()
    assert [one.reason for one in decision.replacements] == [reasons.LEASE_EXPIRED]
    world.settle(200, 40)
    assert GroupState.from_json(world.state).replacements_total == 1
    assert statuses(world)["r1"].state == "Done"


def test_a_scrub_gets_a_number_in_every_plan_and_is_over_when_all_members_have_answered() -> None:
    world = running(2)
    world.change(requests=[{"id": "s1", "type": "Scrub"}])
    revision = GroupState.from_json(world.state).revision
    decision = world.step()
    assert {plan.scrub_request for plan in decision.plans.values()} == {1}
    assert decision.state.revision == revision + 1
    world.reports[Slot("eu", 0)] = {"scrubAnswer": {"request": 1, "result": "Passed"}}
    world.settle()
    assert statuses(world)["s1"].state == "Running"
    world.reports[Slot("eu", 1)] = {"scrubAnswer": {"request": 1, "result": "Failed"}}
    world.settle()
    found = statuses(world)["s1"]
    assert found.state == "Done"
    assert member("eu", 1) in (found.message or "")
    assert GroupState.from_json(world.state).revision == revision + 1


def test_a_second_scrub_has_the_next_number_and_the_number_stays_when_requests_are_taken_away() -> None:
    world = running(1)
    world.change(requests=[{"id": "s1", "type": "Scrub"}])
    world.step()
    world.change(requests=[{"id": "s2", "type": "Scrub"}])
    world.step()
    world.change(requests=[])
    decision = world.step()
    assert {plan.scrub_request for plan in decision.plans.values()} == {2}


def test_a_group_that_never_asked_has_plans_without_a_number() -> None:
    assert {plan.scrub_request for plan in running().decide().plans.values()} == {None}


def test_old_requests_are_forgotten_but_never_those_of_the_spec() -> None:
    world = running(1)
    for turn in range(12):
        ids = [f"t{turn}-{number}" for number in range(MAX_REQUESTS)]
        world.change(requests=[{"id": one, "type": "Scrub"} for one in ids])
        world.step()
        kept = [entry.id for entry in GroupState.from_json(world.state).requests]
        assert set(ids) <= set(kept)
        assert len(kept) <= MAX_REQUEST_STATES


REQUESTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=4)
EVENTS = st.lists(st.sampled_from(["pass", "again", "crash", "restart", "drop", "put back", "die"]), max_size=15)


@settings(max_examples=examples(15), deadline=None)
@given(REQUESTS, EVENTS)
def test_a_request_is_begun_once_whatever_happens_to_operator_and_spec(
    wanted: list[tuple[int, int]], events: list[str]
) -> None:
    world = running(3, lease={"maxReplacementsPerHour": 1000})
    asked = [replace(number, "eu", index) for number, index in dict(wanted).items()]
    asked += [{"id": "s", "type": "Scrub"}]
    world.change(requests=asked)
    begun: list[str] = []
    for event in (*events, "put back", *["wait"] * 15):
        if event == "die":
            for pod in world.clusters["local"].pods.values():
                pod.dead = pod.dead or pod.slot == Slot("eu", 0)
        elif event in ("drop", "put back"):
            world.change(requests=[] if event == "drop" else asked)
        elif event == "restart":
            world.restart()
        else:
            world.pass_time({"again": 0.0, "wait": STARTUP_ALLOWANCE_S / 4}.get(event, FIRST_BACK_OFF_S))
            decision = world.decide()
            begun += [one.message or "" for one in decision.replacements if one.reason == reasons.REQUESTED]
            world.state = decision.state.to_json()
            if event != "crash":
                world.act(decision)
    assert len(begun) == len(set(begun)) <= len(asked) - 1
    assert GroupState.from_json(world.state).scrubs == 1
    found = statuses(world)
    assert {one.state for key, one in found.items() if key != "s"} == {"Done"}
    assert found["s"].state == "Running"  # the members of this world answer no scrubs
