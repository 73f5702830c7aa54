"""What is kept of SyncGroups between passes."""

from __future__ import annotations

from typing import Any

import pytest

from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import GroupKey
from syncgroup_operator.execute.groups import PARSED_KEPT, Groups, SeenGroup, seen_group

KEY = GroupKey("rl", "demo")


def body(*, version: int = 1, uid: str = "u1", name: str = "demo", **metadata: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "example/main:1"}]}}
    return {
        "apiVersion": "syncgroup.dev/v1alpha1",
        "kind": "SyncGroup",
        "metadata": {
            "name": name,
            "namespace": "rl",
            "uid": uid,
            "generation": 3,
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubectl"}],
            **metadata,
        },
        "spec": {
            "trainer": {"region": "us-east", "template": template},
            "rollouts": [{"name": "near", "region": "us-east", "template": template}],
        },
    }


def test_a_new_or_changed_group_is_due_and_an_unchanged_one_is_not() -> None:
    groups = Groups()
    assert groups.put(body())
    assert not groups.put(body())
    assert groups.put(body(version=2))


def seen(groups: Groups) -> SeenGroup:
    found = groups.get(KEY)
    assert found is not None
    return found


def test_the_echo_of_our_own_write_wakes_nobody_but_is_kept() -> None:
    groups = Groups()
    groups.put(body())
    groups.wrote(seen(groups), body(version=2))
    assert seen(groups).resource_version == "2"
    assert not groups.put(body(version=2))
    assert groups.put(body(version=3))


def test_what_the_watch_showed_meanwhile_is_not_written_over_by_the_answer_to_our_own_write() -> None:
    groups = Groups()
    groups.put(body())
    before = seen(groups)
    assert groups.put(body(version=3, deletionTimestamp="2027-01-31T12:00:00Z"))
    groups.wrote(before, body(version=2))
    assert seen(groups).deleting
    groups.keep(before, body(version=2))
    assert seen(groups).deleting


@pytest.mark.parametrize(
    "meanwhile", [{"deletionTimestamp": "2027-01-31T12:00:00Z"}, {"generation": 4}], ids=["deleted", "changed"]
)
def test_a_change_that_the_watch_shows_only_together_with_our_write_is_due(meanwhile: dict[str, Any]) -> None:
    groups = Groups()
    groups.put(body())
    groups.wrote(seen(groups), body(version=3, **meanwhile))  # version 2 was somebody else's
    assert groups.put(body(version=3, **meanwhile))


def test_managed_fields_are_not_kept() -> None:
    assert b"managedFields" not in seen_group(body()).body


def test_a_namesake_with_another_uid_is_not_dropped_by_the_end_of_its_predecessor() -> None:
    groups = Groups()
    groups.put(body(uid="old"))
    groups.put(body(uid="new", version=5))
    assert groups.drop(KEY, "old") is None
    assert groups.key_of("old") is None
    assert groups.key_of("new") == KEY
    assert groups.drop(KEY, "new") is not None
    assert len(groups) == 0


def test_deletion_and_finalizers_are_seen() -> None:
    seen = seen_group(body(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"]))
    assert (seen.deleting, seen.finalizers) == (True, ("a/b",))


def test_a_group_is_parsed_once_per_version_and_only_so_many_are_held() -> None:
    groups = Groups()
    groups.put(body())
    seen = groups.get(KEY)
    assert seen is not None
    first = groups.parse(seen)
    assert groups.parse(seen) is first
    for number in range(PARSED_KEPT):
        other = seen_group(body(uid=f"u-{number}", name=f"g{number}"))
        groups.parse(other)
    assert groups.parse(seen) is not first


def test_a_group_that_this_release_cannot_read_says_why() -> None:
    wrong = body()
    wrong["spec"]["rollouts"] = "many"
    with pytest.raises(ContractError, match="rollouts"):
        Groups().parse(seen_group(wrong))
