"""Pods that an API server refused, and when it is asked again."""

from __future__ import annotations

from typing import Any

from sync_runtime.contract.names import LABEL_INDEX, LABEL_ROLE, GroupKey
from syncgroup_operator import reasons
from syncgroup_operator.execute.refusals import FIRST_PAUSE_S, MAX_PAUSE_S, Refusals
from syncgroup_operator.planning.diff import Apply
from syncgroup_operator.planning.observation import Slot
from syncgroup_operator.planning.problems import Failure

KEY = GroupKey("rl", "demo")
TRAINER, NEAR = Slot("trainer", 0), Slot("near", 1)


def asks_for(slot: Slot) -> Apply:
    labels = {LABEL_ROLE: slot.role, LABEL_INDEX: str(slot.index)}
    metadata: dict[str, Any] = {"name": name_of(slot), "namespace": "rl", "labels": labels}
    return Apply("local", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def name_of(slot: Slot) -> str:
    return f"demo-{slot.role}-{slot.index}"


def refusal(slot: Slot, reason: str = reasons.DENIED) -> Failure:
    return Failure("local", f"apply Pod {name_of(slot)}", "exceeded quota", reason=reason)


def test_a_refused_pod_is_remembered_until_it_is_made() -> None:
    refusals = Refusals()
    refusals.note(KEY, 1, [asks_for(TRAINER), asks_for(NEAR)], [refusal(TRAINER)])
    assert refusals.slots(KEY, 1) == {TRAINER}
    refusals.note(KEY, 1, [], [])
    assert refusals.slots(KEY, 1) == {TRAINER}
    refusals.note(KEY, 1, [asks_for(TRAINER)], [])
    assert refusals.slots(KEY, 1) == frozenset()


def test_an_answer_that_is_not_definite_says_nothing_about_the_pod() -> None:
    refusals = Refusals()
    refusals.note(KEY, 1, [asks_for(NEAR)], [refusal(NEAR, reason="")])
    assert refusals.slots(KEY, 1) == frozenset()


def test_a_changed_spec_begins_anew() -> None:
    refusals = Refusals()
    refusals.note(KEY, 1, [asks_for(NEAR)], [refusal(NEAR)])
    assert refusals.slots(KEY, 2) == frozenset()
    assert refusals.note(KEY, 2, [asks_for(NEAR)], [refusal(NEAR)]) == FIRST_PAUSE_S


def test_failures_in_a_row_wait_longer_and_longer_up_to_a_limit_and_success_ends_that() -> None:
    refusals = Refusals()
    pauses = [refusals.note(KEY, 1, [asks_for(NEAR)], [refusal(NEAR)]) for _ in range(12)]
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses[1] == 2 * FIRST_PAUSE_S
    assert pauses[-1] == MAX_PAUSE_S
    assert refusals.note(KEY, 1, [asks_for(NEAR)], []) is None
    assert refusals.note(KEY, 1, [asks_for(NEAR)], [refusal(NEAR)]) == FIRST_PAUSE_S
