"""Requests as a person makes them: whom they mean, what goes into the spec, and that nothing is asked for twice."""

from __future__ import annotations

from typing import Any

import pytest

from sync_runtime.contract.requests import MAX_REQUESTS, Request
from syncgroup.errors import CommandError
from syncgroup.looking.requests import asked, find_member, members_of, progress
from tests.unit.kubectl.samples import group, member, status

REPLACE = Request(id="new", type="Replace", member=member("near"))
SCRUB = Request(id="new", type="Scrub")


def entry(number: int, state: str | None, role: str = "near") -> tuple[dict[str, Any], dict[str, Any] | None]:
    spec = {"id": f"r{number}", "type": "Replace", "member": member(role)}
    return spec, None if state is None else {**spec, "state": state}


def with_requests(*entries: tuple[dict[str, Any], dict[str, Any] | None]) -> Any:
    told = [one for _, one in entries if one is not None]
    return group(spec={"requests": [spec for spec, _ in entries]}, status=status(requests=told))


def test_a_first_request_is_written_alone() -> None:
    found = asked(group(), REPLACE)
    assert (found.id, found.again) == ("new", False)
    assert found.requests == [{"id": "new", "type": "Replace", "member": member("near")}]


@pytest.mark.parametrize("state", [None, "Waiting", "Running"])
def test_what_is_asked_for_already_is_not_asked_for_twice(state: str | None) -> None:
    found = asked(with_requests(entry(1, state)), REPLACE)
    assert (found.id, found.again) == ("r1", True)
    assert [one["id"] for one in found.requests] == ["r1"]


def test_an_id_of_its_own_is_a_request_of_its_own() -> None:
    found = asked(with_requests(entry(1, "Running")), REPLACE, own_id=True)
    assert (found.id, found.again) == ("new", False)
    assert [one["id"] for one in found.requests] == ["r1", "new"]


@pytest.mark.parametrize("state", ["Done", "Refused"])
def test_what_is_over_makes_room_and_may_be_asked_for_again(state: str) -> None:
    found = asked(with_requests(entry(1, state), entry(2, "Waiting", "eu")), REPLACE)
    assert (found.id, found.again) == ("new", False)
    assert [one["id"] for one in found.requests] == ["r2", "new"]


def test_the_same_id_is_the_same_request_even_when_it_is_over() -> None:
    found = asked(with_requests(entry(1, "Done")), REPLACE.model_copy(update={"id": "r1"}))
    assert (found.id, found.again) == ("r1", True)


def test_an_id_of_something_else_is_refused() -> None:
    with pytest.raises(CommandError, match="the id r1 is taken by another request"):
        asked(with_requests(entry(1, "Waiting")), SCRUB.model_copy(update={"id": "r1"}))


def test_too_many_open_requests_are_refused_with_where_to_look() -> None:
    open_ones = [
        ({"id": f"s{number}", "type": "Replace", "member": f"m{number}"}, None) for number in range(MAX_REQUESTS)
    ]
    with pytest.raises(CommandError, match="16 requests wait already: see `kubectl syncgroup why grpo`"):
        asked(with_requests(*open_ones), SCRUB)


def test_progress_is_that_of_the_id() -> None:
    seen = with_requests(entry(1, "Running"))
    found = progress(seen, "r1")
    assert found is not None
    assert found.state == "Running"
    assert progress(seen, "r2") is None
    assert progress(group(status=None), "r1") is None


def test_members_are_found_by_their_name_and_by_role_and_index() -> None:
    assert find_member([group()], member("near", 1))[1] == member("near", 1)
    assert find_member([group()], "near-1")[1] == member("near", 1)
    assert find_member([group()], "trainer-0")[1] == member("trainer")
    assert len(members_of(group())) == 4


def test_a_member_that_does_not_exist_gets_close_names() -> None:
    with pytest.raises(CommandError, match="no SyncGroup here has a member naer-1; did you mean near-1"):
        find_member([group()], "naer-1")
    with pytest.raises(CommandError, match="kubectl syncgroup top NAME"):
        find_member([], "near-1")


def test_a_short_name_that_two_groups_have_is_refused_with_the_whole_ones() -> None:
    other = group(metadata={"namespace": "rl", "name": "other", "uid": "u-2"})
    with pytest.raises(CommandError, match="near-0 is in several groups: grpo-near-0-"):
        find_member([group(), other], "near-0")
