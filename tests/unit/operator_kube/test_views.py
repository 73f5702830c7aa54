"""Bodies to views; whatever a body holds, it never is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract import names
from sync_runtime.contract.reports import MAX_REPORT_BYTES
from syncgroup_operator.kube.views import (
    LeaseRow,
    child_view,
    group_uid_of,
    lease_row,
    lease_view,
    node_view,
    pod_view,
    read_report,
    seat_of,
)
from syncgroup_operator.planning.observation import NodeView, ObjectKey, Place, PodView, Slot
from tests.unit.operator_kube.bodies import CLUSTER, config_map, labels, lease, node, pod

WAITING = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}],
}


def seen(body: dict[str, Any], now_s: float = 5.0, before: PodView | None = None) -> PodView:
    view = pod_view(body, CLUSTER, now_s, before)
    assert view is not None
    return view


def row(body: dict[str, Any], now_s: float = 5.0, before: LeaseRow | None = None) -> LeaseRow:
    found = lease_row(body, CLUSTER, now_s, before)
    assert found is not None
    return found


def test_a_running_pod_is_seen_whole() -> None:
    view = seen(pod())
    assert (view.slot, view.place) == (Slot("west", 0), Place(CLUSTER, "eu-west"))
    assert (view.phase, view.ready, view.deleting, view.node, view.ip) == ("Running", True, False, "node-1", "10.0.0.1")
    assert (view.template_hash, view.term, view.trouble, view.seen_s) == ("abc", 3, None, 5.0)
    assert view.labels_ours
    assert view.service_account == "workers"


def test_moments_are_carried_over_for_the_same_pod_only() -> None:
    first = seen(pod(status=WAITING, spec={}), 5.0)
    assert (first.seen_s, first.unschedulable_since_s) == (5.0, 5.0)
    again = seen(pod(status=WAITING, spec={}), 9.0, first)
    assert again == first
    placed = seen(pod(), 10.0, again)
    assert (placed.seen_s, placed.unschedulable_since_s) == (5.0, None)
    successor = seen(pod(uid="u-2", status=WAITING, spec={}), 11.0, placed)
    assert (successor.seen_s, successor.unschedulable_since_s) == (11.0, 11.0)


@pytest.mark.parametrize(
    ("label", "value"),
    [
        (names.LABEL_GROUP_UID, ""),
        (names.LABEL_ROLE, "Not_A_Label"),
        (names.LABEL_ROLE, None),
        (names.LABEL_INDEX, "-1"),
        (names.LABEL_INDEX, "01"),
        (names.LABEL_INDEX, "1e3"),
        (names.LABEL_INDEX, "9999999"),
        (names.LABEL_INDEX, 0),
        (names.LABEL_REGION, "x" * 64),
        (names.LABEL_REGION, ["eu"]),
    ],
)
def test_odd_labels_are_no_seat(label: str, value: Any) -> None:
    body = pod()
    body["metadata"]["labels"][label] = value
    assert seat_of(body, CLUSTER) is None
    assert pod_view(body, CLUSTER, 1.0) is None
    assert lease_row(body, CLUSTER, 1.0) is None


def test_a_label_that_names_another_member_group_or_cluster_is_noticed() -> None:
    for label, value in [
        (names.LABEL_INDEX, "1"),
        (names.LABEL_ROLE, "east"),
        (names.LABEL_GROUP, "other"),
        (names.LABEL_GROUP_NAMESPACE, "other"),
        (names.LABEL_CLUSTER, "other"),
    ]:
        body = pod()
        body["metadata"]["labels"][label] = value
        assert not seen(body).labels_ours, label


def managed(manager: str, *, part: str = "labels", keys: Any = ()) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": {"f:metadata": {f"f:{part}": {f"f:{key}": {} for key in keys}}}}


def test_a_label_that_somebody_else_wrote_is_noticed() -> None:
    body = pod()
    annotations = list(body["metadata"]["annotations"])
    rest = managed(names.FIELD_MANAGER, part="annotations", keys=annotations)
    body["metadata"]["managedFields"] = [managed(names.FIELD_MANAGER, keys=labels()), rest]
    assert seen(body).labels_ours
    mine = [key for key in labels() if key != names.LABEL_REGION]
    body["metadata"]["managedFields"] = [
        managed(names.FIELD_MANAGER, keys=mine),
        managed("kubectl-label", keys=[names.LABEL_REGION]),
        rest,
    ]
    assert not seen(body).labels_ours
    body["metadata"]["managedFields"] = [3, {"manager": names.FIELD_MANAGER, "fieldsV1": []}]
    assert not seen(body).labels_ours


def test_only_a_changed_renew_time_or_holder_is_a_sign_of_life() -> None:
    first = row(lease(), 5.0)
    assert row(lease(state="Draining"), 9.0, first).changed_s == 5.0
    assert row(lease("2020-01-01T00:00:00.000000Z"), 9.0, first).changed_s == 9.0  # a clock that was set back
    assert row(lease(holder="u-2"), 9.0, first).changed_s == 9.0
    other = lease()
    other["metadata"]["uid"] = "l-2"
    assert row(other, 9.0, first).changed_s == 9.0


def test_a_report_is_read_when_a_pass_asks_and_once_per_text() -> None:
    view = lease_view(row(lease()))
    assert view.report is not None
    assert (view.report.state, view.problem, view.holder, view.duration_s, view.uid) == (
        "Serving", None, "u-1", 30, "l-1",
    )  # fmt: skip
    assert lease_view(row(lease())).report is view.report


def test_a_lease_that_nobody_took_has_neither_report_nor_problem() -> None:
    body = lease()
    del body["metadata"]["annotations"]
    body["spec"] = {}
    view = lease_view(row(body))
    assert (view.holder, view.renew_time, view.duration_s, view.report, view.problem) == ("", "", 0, None, None)


@pytest.mark.parametrize("text", ["{", "[]", '{"formatVersion": 99}', "x" * (MAX_REPORT_BYTES + 1), "\ud800"])
def test_a_report_that_cannot_be_read_is_a_problem_with_a_sentence(text: str) -> None:
    body = lease()
    body["metadata"]["annotations"][names.ANNOTATION_REPORT] = text
    kept = row(body)
    assert len(kept.report_json) <= MAX_REPORT_BYTES
    view = lease_view(kept)
    assert view.report is None
    assert view.problem


def test_the_cache_of_reports_is_bounded() -> None:
    maxsize = read_report.cache_info().maxsize
    assert maxsize is not None
    assert maxsize < 10_000


def test_a_node_has_readiness_and_region() -> None:
    assert node_view(node()) == NodeView("node-1", True, "eu-west")
    assert node_view(node(ready="Unknown")) == NodeView("node-1", False, "eu-west")
    assert node_view({"metadata": {"name": "n"}}) == NodeView("n", False, None)


def test_a_child_is_its_body_without_managed_fields() -> None:
    body = config_map()
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    view = child_view(body)
    assert view is not None
    assert (view.key, view.uid, view.resource_version) == (ObjectKey("ConfigMap", "team", "plan"), "c-1", "7")
    assert json.loads(view.body) == config_map()
    assert child_view({"kind": "Deployment", "metadata": {"name": "d"}}) is None


keys = st.sampled_from(
    ["metadata", "spec", "status", "labels", "annotations", "name", "namespace", "uid", "conditions", "kind",
     "holderIdentity", "renewTime", "leaseDurationSeconds", "managedFields", "nodeName", *labels(),
     names.ANNOTATION_REPORT]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["0", "eu-west", "ConfigMap"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=30,
)


@given(body=st.dictionaries(keys, anything, max_size=6))
def test_no_body_is_an_error(body: dict[str, Any]) -> None:
    pod_view(body, CLUSTER, 1.0)
    found = lease_row(body, CLUSTER, 1.0)
    if found is not None:
        lease_view(found)
    node_view(body)
    child_view(body)
    group_uid_of(body)
    pod_view({**pod(), "status": body, "spec": body}, CLUSTER, 1.0)
