from __future__ import annotations

from dataclasses import replace

from sync_runtime.contract import names
from syncgroup_operator import reasons
from syncgroup_operator.planning.decide import decide
from syncgroup_operator.planning.observation import Place, Slot
from syncgroup_operator.planning.state import GroupState
from syncgroup_operator.planning.trainers import CREATION_ALLOWANCE_S, MAX_BELIEVED
from tests.unit.planning.world import World, fill, group

TRAINER = Slot("trainer", 0)


def running() -> World:
    world = World(group({"name": "eu", "replicas": 2}, trainer={"cluster": "far", "region": "us"}))
    fill(world)
    return world


def state_of(world: World) -> GroupState:
    return GroupState.from_json(world.state)


def test_a_term_is_allocated_before_the_pod_and_used_once_it_is_seen() -> None:
    world = World(group({"name": "eu"}))
    decision = world.decide()
    assert (decision.seats[0].slot, decision.seats[0].create, decision.seats[0].term) == (TRAINER, True, 1)
    assert decision.state.term_open
    assert all(plan.term == 1 for plan in decision.plans.values())
    world.step()
    world.pass_time(1.0)
    world.step()
    assert (state_of(world).term, state_of(world).term_open, state_of(world).term_time) == (1, False, None)


def test_a_pod_is_asked_for_once_per_term_even_if_it_is_not_seen() -> None:
    world = World(group({"name": "eu"}))
    asked = []
    for _ in range(8):
        decision = world.decide()
        world.state = decision.state.to_json()  # and nobody sees a pod
        asked += [decision.seats[0].term] if decision.seats[0].create else []
        world.pass_time(CREATION_ALLOWANCE_S / 3)
    assert asked == [1, 2]


def test_a_pod_that_is_never_made_is_asked_for_less_and_less_often() -> None:
    world = World(group({"name": "eu"}))
    for _ in range(240):
        world.state = world.decide().state.to_json()
        world.pass_time(15.0)
    assert 8 <= state_of(world).term <= 14
    assert state_of(world).replacements_total == 0


def test_a_pod_that_the_server_refused_is_asked_for_again_with_its_term() -> None:
    world = World(group({"name": "eu"}))
    world.state = world.decide().state.to_json()
    world.pass_time(1.0)
    observation = replace(world.observe(), refused=frozenset({TRAINER}))
    decision = decide(observation, state_of(world))
    assert (decision.seats[0].create, decision.seats[0].term) == (True, 1)


def test_a_silent_trainer_is_fenced_by_a_new_term_before_its_pod_goes() -> None:
    world = running()
    old = world.pod("trainer", 0)
    old.dead = True
    world.pass_time(45.0)
    decision = world.decide()
    assert (decision.state.term, {plan.term for plan in decision.plans.values()}) == (2, {2})
    (removal,) = decision.removals
    assert (removal.pod.uid, removal.reason, removal.force) == (old.uid, reasons.LEASE_EXPIRED, True)
    assert decision.seats[0].create is False
    world.step()
    world.step()
    assert (world.pod("trainer", 0).term, state_of(world).term) == (2, 2)
    assert state_of(world).replacements_total == 1


def test_a_failed_trainer_is_replaced_and_a_finished_one_is_not() -> None:
    world = running()
    world.pod("trainer", 0).phase = "Succeeded"
    world.settle(600.0)
    assert state_of(world).term == 1
    world.pod("trainer", 0).phase = "Failed"
    world.settle(30.0)
    assert (world.pod("trainer", 0).phase, world.pod("trainer", 0).term) == ("Running", 2)


def test_a_trainer_whose_cluster_is_away_is_left_alone() -> None:
    world = running()
    before = world.pod("trainer", 0).uid
    world.cut("far")
    decision = world.settle(7200.0)
    assert (decision.seats[0].create, decision.state.term) == (False, 1)
    world.mend("far")
    world.settle(120.0)
    assert world.pod("trainer", 0).uid == before


def test_a_trainer_that_keeps_failing_waits_for_its_back_off_alone() -> None:
    world = World(group({"name": "eu", "replicas": 4}, lease={"maxReplacementsPerHour": 1}))
    fill(world)
    terms = []
    for _ in range(100):
        if TRAINER in world.clusters["local"].pods:
            world.pod("trainer", 0).phase = "Failed"
        world.pass_time(2.0)
        world.step()
        terms.append(state_of(world).term)
    assert terms[-1] == 6  # 0, 10, 30, 70 and 150 s after the first
    assert len(set(terms)) == 5


def test_a_template_change_ends_the_trainer_politely_and_begins_another_term() -> None:
    world = running()
    world.template = "v2"
    decision = world.step()
    found = [removal for removal in decision.removals if removal.pod.slot == TRAINER]
    assert [(one.reason, one.force) for one in found] == [(reasons.TEMPLATE_CHANGED, False)]
    assert decision.state.term == 1
    world.settle(30.0)
    assert (world.pod("trainer", 0).template, world.pod("trainer", 0).term) == ("v2", 2)
    assert not any(one.member == names.member_name(world.group.key, *TRAINER) for one in decision.replacements)


def test_a_pod_of_an_older_term_goes_and_one_of_a_newer_term_is_believed() -> None:
    world = running()
    world.state = state_of(world).model_copy(update={"term": 7}).to_json()
    (removal,) = world.decide().removals
    assert (removal.reason, removal.force) == (reasons.SLOT_TAKEN, True)
    world.pod("trainer", 0).term = 9
    decision = world.decide()
    assert (decision.removals, decision.state.term) == ((), 9)


def test_terms_that_anybody_saw_are_not_given_out_again_but_absurd_ones_are_ignored() -> None:
    world = running()
    world.reports[Slot("eu", 0)] = {"term": 40}
    world.reports[Slot("eu", 1)] = {"term": MAX_BELIEVED + 1}
    del world.clusters["far"].pods[TRAINER]
    assert world.decide().state.term == 41


def test_a_trainer_that_has_seen_a_later_term_than_its_own_is_replaced_and_its_successor_is_later_still() -> None:
    world = running()
    old = world.pod("trainer", 0)
    world.reports[TRAINER] = {"term": 6}
    decision = world.step()
    (removal,) = decision.removals
    assert (removal.pod.uid, removal.reason, removal.force) == (old.uid, reasons.FENCED, True)
    assert (decision.state.term, {plan.term for plan in decision.plans.values()}) == (7, {7})
    assert "seen term 6" in (decision.replacements[0].message or "")
    world.settle(60.0)  # its successor has seen as much and was made for more
    assert (world.pod("trainer", 0).term, state_of(world).replacements_total) == (7, 1)


def test_a_trainer_that_has_seen_its_own_term_or_an_absurd_one_stays() -> None:
    world = running()
    before = world.pod("trainer", 0)
    for term in (0, before.term, MAX_BELIEVED + 1):
        world.reports[TRAINER] = {"term": term}
        world.settle(30.0)
    assert world.pod("trainer", 0) is before


def test_only_reports_of_the_plan_or_its_annotations_raise_the_revision() -> None:
    world = running()
    before = state_of(world).revision
    world.reports[Slot("eu", 0)] = {"planRevision": before}
    assert world.decide().state.revision == before
    world.reports[Slot("eu", 0)] = {"planRevision": before + 5}
    assert world.decide().state.revision == before + 6
    world.reports[Slot("eu", 0)] = {"planRevision": MAX_BELIEVED + 5}
    assert world.decide().state.revision == before


def test_the_trainer_never_moves() -> None:
    world = running()
    world.pod("trainer", 0).dead = True
    world.settle(2000.0, passes=50)
    assert world.pod("trainer", 0).place == Place("far", "us")
