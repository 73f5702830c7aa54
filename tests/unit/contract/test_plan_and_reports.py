from __future__ import annotations

import json
from typing import Any

import pytest

from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.plan import MAX_FAN_OUT, MAX_PLAN_BYTES, PLAN_FORMAT_VERSION, Plan
from sync_runtime.contract.reports import MAX_REPORT_BYTES, MAX_REPORTED_LINKS, REPORT_FORMAT_VERSION, MemberReport
from sync_runtime.contract.wire import WireModel
from tests.unit.contract.wire_samples import endpoint, largest_plan, link_report, member_report, plan

TRAINER = "grpo-trainer-0-aaaaaaaa"


def problems_of(model: type[WireModel], document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidDocumentError) as caught:
        model.from_json(json.dumps(document))
    return [str(problem) for problem in caught.value.problems]


def test_the_samples_set_every_field() -> None:
    assert Plan.parse(plan()).to_document() == plan()
    assert MemberReport.parse(member_report()).to_document() == member_report()


def test_a_plan_survives_a_round_trip() -> None:
    sample = Plan.parse(plan())
    assert Plan.from_json(sample.to_json()) == sample


def test_a_report_survives_a_round_trip() -> None:
    sample = MemberReport.parse(member_report())
    assert MemberReport.from_json(sample.to_json().encode()) == sample


def test_the_largest_plan_fits_a_config_map() -> None:
    sample = largest_plan()
    assert MAX_PLAN_BYTES * 0.8 < len(sample.to_json().encode()) <= MAX_PLAN_BYTES < 2**20


def test_the_largest_report_fits_an_annotation() -> None:
    links = [
        link_report(f"peer-{index}-".ljust(63, "x")) | {"message": "ß" * 256} for index in range(MAX_REPORTED_LINKS)
    ]
    text = MemberReport.parse(member_report() | {"links": links}).to_json()
    assert len(text.encode()) <= MAX_REPORT_BYTES < 256 * 1024


def test_a_member_never_has_more_than_sixteen_children() -> None:
    def with_children(count: int) -> dict[str, Any]:
        members = [{"name": f"m{index}", "role": "Rollout", "parents": [TRAINER]} for index in range(count)]
        return plan() | {"members": members, "endpoints": []}

    assert MAX_FAN_OUT == 16
    Plan.parse(with_children(16))
    assert problems_of(Plan, with_children(17)) == [
        "members: a member has more than 16 children; give some another parent"
    ]


def test_a_standby_does_not_count_as_a_parent() -> None:
    relays = [f"r{index}" for index in range(2)]
    members = [
        {"name": f"m{index}", "role": "Rollout", "parents": [relays[index % 2], relays[1 - index % 2]]}
        for index in range(32)
    ]
    Plan.parse(plan() | {"members": members, "endpoints": [endpoint(relay, "us-west-2") for relay in relays]})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            {
                "members": [{"name": "a", "role": "Rollout", "parents": ["a"]}],
                "endpoints": [endpoint("a", "us-west-2")],
            },
            "members[0].parents: a member must not be its own parent",
            id="own parent",
        ),
        pytest.param(
            {"members": [{"name": "a", "role": "Rollout", "parents": [TRAINER, TRAINER]}]},
            "members[0].parents: a parent is named twice",
            id="parent twice",
        ),
        pytest.param(
            {"members": [{"name": "a", "role": "Trainer", "parents": [TRAINER]}]},
            "members[0].parents: the trainer publishes and has no parents",
            id="trainer with parents",
        ),
        pytest.param(
            {
                "members": [
                    {"name": "a", "role": "Rollout", "parents": ["b"]},
                    {"name": "b", "role": "Rollout", "parents": ["c"]},
                    {"name": "c", "role": "Rollout", "parents": ["a"]},
                ],
                "endpoints": [endpoint(name, "us-west-2") for name in "abc"],
            },
            "members: first parents form a circle; no version could ever reach it",
            id="circle",
        ),
        pytest.param(
            {"endpoints": []},
            "endpoints: a parent is neither the trainer nor among the endpoints; nobody could dial it",
            id="parent without endpoint",
        ),
        pytest.param({"links": []}, "links: a parent is in a place that no link comes from", id="parent without link"),
        pytest.param(
            {"members": [{"name": "a", "role": "Trainer"}, {"name": "b", "role": "Trainer"}]},
            "members: at most one member is the trainer",
            id="two trainers",
        ),
        pytest.param(
            {"transport": "Streams"},
            "objectStore: objectStore and transport ObjectStore need each other",
            id="store without transport",
        ),
        pytest.param(
            {"members": [{"name": "a", "role": "Rollout"}, {"name": "a", "role": "Rollout"}]},
            "members[1]: has the same name as an earlier item; each must be unique",
            id="member twice",
        ),
        pytest.param({"extra": 1}, "extra: is not a field here", id="unknown field"),
        pytest.param({"term": -1}, "term: must be at least 0", id="negative term"),
        pytest.param({"revision": 2**53}, "revision: must be at most 9007199254740991", id="inexact revision"),
        pytest.param({"groupUid": "a/../b"}, None, id="uid with slashes"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change: dict[str, Any], problem: str | None) -> None:
    problems = problems_of(Plan, plan() | change)
    assert len(problems) == 1
    assert problem is None or problems == [problem]


@pytest.mark.parametrize("field", ["streams", "bucketBytes"])
def test_a_seed_lies_inside_its_bounds(field: str) -> None:
    document = plan()
    document["links"][0][field]["seed"] = document["links"][0][field]["max"] * 2
    assert problems_of(Plan, document) == [
        f"links[0].{field}.seed: {field} need{'s' * (field != 'streams')} min <= seed <= max"
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"trouble": None}, "trouble: a member that is Poisoned must say why"),
        (
            {"links": [link_report() | {"fromRegion": "x"}]},
            "links: a member reports only the links that it sends over itself",
        ),
        (
            {"links": [link_report()] * 2},
            "links[1]: has the same toCluster and toRegion and peer as an earlier item; each must be unique",
        ),
        ({"links": [link_report(f"p{index}") for index in range(33)]}, "links: must have at most 32 items"),
        ({"state": "Fine"}, "state: must be Starting, Joining, CatchingUp, Serving, Draining or Poisoned"),
        ({"tokensPerSecond": 1e3}, None),
        ({"trouble": {"reason": "x y", "message": ""}}, "trouble.reason: must be one word such as LeaseExpired"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(change: dict[str, Any], problem: str | None) -> None:
    document = {**member_report(), **change}
    if problem is None:
        with pytest.raises(ValueError, match="no whole number"):
            problems_of(MemberReport, document)
    else:
        assert problems_of(MemberReport, document) == [problem]


def test_the_written_format_is_the_newest_that_is_read() -> None:
    assert Plan.FORMAT_VERSIONS[-1] == PLAN_FORMAT_VERSION
    assert MemberReport.FORMAT_VERSIONS[-1] == REPORT_FORMAT_VERSION
