from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sync_runtime.contract.base import Model
from sync_runtime.contract.documents import check_update, load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.plan import Plan
from sync_runtime.contract.reports import MemberReport
from sync_runtime.contract.rules import Rule
from sync_runtime.contract.synccluster import SyncCluster
from sync_runtime.contract.syncgroup import SyncGroup
from tests.unit.contract.samples import BAD_EXAMPLES, minimal_group, models_below, pinned_messages
from tests.unit.contract.update_samples import FORBIDDEN_UPDATES, claim_group

RESOURCE_MODELS = {model for root in (SyncGroup, SyncCluster) for model in models_below(root)}


def test_every_rule_of_a_resource_has_its_cel_twin() -> None:
    rules = [rule for model in RESOURCE_MODELS for rule in model.RULES]
    assert len(rules) > 20
    assert all(isinstance(rule, Rule) and "self" in rule.cel for rule in rules)


def test_no_two_rules_complain_in_the_same_words() -> None:
    models = RESOURCE_MODELS | {model for root in (Plan, MemberReport) for model in models_below(root)}
    messages = Counter(rule.message for model in models for rule in model.RULES)
    assert [message for message, count in messages.items() if count > 1] == []


def test_every_rule_has_a_bad_example() -> None:
    shown = {pinned_messages(path).refused for path in BAD_EXAMPLES}
    assert [rule.message for model in RESOURCE_MODELS for rule in model.RULES if rule.message not in shown] == []


def test_every_update_rule_has_a_sample() -> None:
    shown = {message for _, message in FORBIDDEN_UPDATES.values()}
    assert {rule.message for model in RESOURCE_MODELS for rule in model.UPDATE_RULES} == shown


@pytest.mark.parametrize("path", BAD_EXAMPLES, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_offline_with_one_problem(path: Path) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        load_resource(yaml.safe_load(path.read_text(encoding="utf-8")))
    (problem,) = caught.value.problems
    assert pinned_messages(path).contract in str(problem)


def test_there_are_bad_examples_enough() -> None:
    assert len(BAD_EXAMPLES) >= 25


def test_all_broken_rules_of_an_object_are_reported_at_once() -> None:
    group = minimal_group()
    group["spec"]["rollouts"][0] |= {"name": "trainer", "size": 2, "maxUnavailable": 2}
    with pytest.raises(InvalidDocumentError) as caught:
        load_resource(group)
    assert [problem.path for problem in caught.value.problems] == [
        "spec.rollouts[0].name",
        "spec.rollouts[0].size",
        "spec.rollouts[0].maxUnavailable",
    ]


@pytest.mark.parametrize(("change", "message"), FORBIDDEN_UPDATES.values(), ids=FORBIDDEN_UPDATES)
def test_a_forbidden_change_names_its_field(change: Callable[[dict[str, Any]], None], message: str) -> None:
    old, new = claim_group(), claim_group()
    change(new["spec"])
    with pytest.raises(InvalidDocumentError) as caught:
        check_update(load_resource(old), load_resource(new))
    assert [problem.message for problem in caught.value.problems] == [message]
    assert caught.value.problems[0].path.startswith("spec.")


def test_items_of_a_list_map_correspond_by_name_and_not_by_place() -> None:
    old = claim_group()
    new = copy.deepcopy(old)
    new["spec"]["rollouts"].reverse()
    check_update(load_resource(old), load_resource(new))


def test_what_did_not_exist_before_may_be_anything() -> None:
    old = claim_group()
    new = copy.deepcopy(old)
    new["spec"]["rollouts"][1] |= {"name": "moved", "region": "eu-north-1", "cluster": "oregon"}
    check_update(load_resource(old), load_resource(new))


def test_a_claim_may_grow_and_may_be_given_up() -> None:
    old, larger, gone = claim_group(), claim_group(), claim_group()
    larger["spec"]["runtime"]["storage"]["sizeBytes"] *= 2
    gone["spec"]["runtime"]["storage"] = {"type": "EmptyDir"}
    check_update(load_resource(old), load_resource(larger))
    check_update(load_resource(old), load_resource(gone))


def test_a_rule_message_may_contain_braces() -> None:
    class Braces(Model):
        RULES = (Rule(cel="false", message="use {this} form", holds=lambda self: False),)

    with pytest.raises(ValueError, match=r"use \{this\} form"):
        Braces()
