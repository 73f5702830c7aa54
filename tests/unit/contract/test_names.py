from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from sync_runtime.contract.patterns import DNS_1035, DNS_LABEL
from tests.support.examples import examples

labels = st.text("ab-0", max_size=62).map(lambda text: "a" + text.rstrip("-"))
groups = st.builds(GroupKey, namespace=labels, name=labels)

GROUP = GroupKey("post-training", "grpo")


@pytest.mark.timeout(20)
@settings(max_examples=examples(50), deadline=None)
@given(group=groups, role=labels, index=st.integers(0, 10_000))
def test_a_member_name_is_a_host_name_whatever_it_is_made_of(group: GroupKey, role: str, index: int) -> None:
    name = names.member_name(group, role, index)
    assert len(name) <= 63
    assert re.fullmatch(DNS_1035, name)


@pytest.mark.timeout(20)
@settings(max_examples=examples(50), deadline=None)
@given(first=st.tuples(groups, labels, st.integers(0, 99)), second=st.tuples(groups, labels, st.integers(0, 99)))
def test_different_members_have_different_names(
    first: tuple[GroupKey, str, int], second: tuple[GroupKey, str, int]
) -> None:
    assert (names.member_name(*first) == names.member_name(*second)) == (first == second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            (GroupKey("ns", "a-b"), "c", 0), (GroupKey("ns", "a"), "b-c", 0), id="parts that join to the same text"
        ),
        pytest.param(
            (GroupKey("x", "a"), "b", 0), (GroupKey("y", "a"), "b", 0), id="namespaces that may share a remote one"
        ),
        pytest.param(
            (GroupKey("ns", "a" * 63), "b", 0), (GroupKey("ns", "a" * 62 + "z"), "b", 0), id="names cut short"
        ),
    ],
)
def test_names_that_look_alike_differ_in_their_hash(
    first: tuple[GroupKey, str, int], second: tuple[GroupKey, str, int]
) -> None:
    one, other = names.member_name(*first), names.member_name(*second)
    assert one != other
    assert one.rpartition("-")[0] == other.rpartition("-")[0]


def test_names_are_pinned_because_running_groups_depend_on_them() -> None:
    assert names.member_name(GROUP, "west", 3) == "grpo-west-3-hjxgdn7m"
    assert names.plan_name(GROUP, "local", "us-west-2") == "grpo-plan-local-us-west-2-dkswvkcb"
    assert names.trainer_service_name(GROUP) == "grpo-trainer-rs2jdksf"
    assert names.lease_name(GROUP, "west", 3) == names.member_name(GROUP, "west", 3)


def test_a_long_group_name_gives_way_to_role_and_index() -> None:
    name = names.member_name(
        GroupKey("ns", "a-very-long-name-for-a-group-that-trains-something-large"), "us-west-2", 1234
    )
    assert name.rpartition("-")[0].endswith("-us-west-2-1234")
    assert len(name) == 63


def test_every_object_of_a_group_has_its_own_name() -> None:
    made = [
        names.member_name(GROUP, "trainer", 0),
        names.spool_claim_name(GROUP, "trainer", 0),
        names.trainer_service_name(GROUP),
        names.members_service_name(GROUP),
        names.plan_name(GROUP, "local", "us-east-1"),
        names.state_name(GROUP),
        names.ca_secret_name(GROUP),
        names.trust_bundle_name(GROUP),
        names.member_role_name(GROUP),
        names.certificate_request_name(GROUP, names.member_name(GROUP, "trainer", 0), "0a1b-2c", "1"),
    ]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(DNS_1035, name) and len(name) <= 63 for name in made)


def test_labels_of_a_member_select_it_and_fit_a_label_value() -> None:
    found = names.member_labels(GROUP, "0a1b-2c", role="west", index=3, cluster="local", region="us-west-2")
    assert found == {
        "syncgroup.dev/group": "grpo",
        "syncgroup.dev/group-namespace": "post-training",
        "syncgroup.dev/group-uid": "0a1b-2c",
        "syncgroup.dev/role": "west",
        "syncgroup.dev/index": "3",
        "syncgroup.dev/cluster": "local",
        "syncgroup.dev/region": "us-west-2",
    }
    assert all(re.fullmatch(DNS_LABEL, value) for value in found.values())


def test_constants_of_one_kind_do_not_collide() -> None:
    for kind in ("LABEL_", "ANNOTATION_", "ENV_", "_PORT", "_VOLUME", "_DIR", "_CONTAINER"):
        values = [value for name, value in vars(names).items() if kind in name and not name.endswith("_NAME")]
        assert len(values) > 1
        assert len(set(values)) == len(values), kind


def test_a_socket_path_fits_the_kernel() -> None:
    assert len(names.SOCKET_PATH.encode()) < 108


@pytest.mark.timeout(20)
def test_names_need_no_package_beyond_the_standard_library() -> None:
    program = "import sys, sync_runtime.contract.names; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
