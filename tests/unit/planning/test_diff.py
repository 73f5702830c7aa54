from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.contract import names
from syncgroup_operator import reasons
from syncgroup_operator.planning.covering import covers, quantity
from syncgroup_operator.planning.decision import Decision, Removal
from syncgroup_operator.planning.diff import Action, Apply, Delete, Relabel, Wanted, diff
from syncgroup_operator.planning.observation import ChildView, ObjectKey, Observation
from syncgroup_operator.planning.state import GroupState
from tests.support.examples import examples
from tests.unit.planning.world import UID, World, fill, group

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "svc", "namespace": "ml", "labels": {"a": "b"}, "annotations": {}},
    "spec": {"selector": {"x": "y"}, "ports": [{"name": "data", "port": 7443, "targetPort": "sync-data"}]},
}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "role", "namespace": "ml"},
    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch"]}],
}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "claim", "namespace": "ml"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 25769803776}}},
}


def child(document: dict[str, Any], **fields: Any) -> ChildView:
    metadata = document["metadata"]
    key = ObjectKey(document["kind"], metadata["namespace"], metadata["name"])
    return ChildView(key, f"uid-{key.name}", "1", json.dumps(document).encode(), **fields)


def served(document: dict[str, Any]) -> dict[str, Any]:
    """As an API server would give it back."""
    seen = copy.deepcopy(document)
    seen["metadata"] |= {"uid": "1", "resourceVersion": "7", "creationTimestamp": "2027-01-31T12:00:00Z"}
    if seen["kind"] == "Service":
        seen["spec"] |= {"clusterIP": "10.0.0.7", "type": "ClusterIP", "sessionAffinity": "None"}
        seen["spec"]["ports"][0] |= {"protocol": "TCP", "nodePort": 30001}
        del seen["metadata"]["annotations"]
    if seen["kind"] == "PersistentVolumeClaim":
        seen["spec"] |= {"storageClassName": "fast", "volumeMode": "Filesystem"}
        seen["spec"]["resources"]["requests"]["storage"] = "24Gi"
    return seen


@pytest.mark.parametrize("document", [SERVICE, ROLE, CLAIM], ids=lambda document: document["kind"])
def test_what_the_server_adds_is_no_difference(document: dict[str, Any]) -> None:
    assert covers(document, served(document))


@pytest.mark.parametrize(
    ("document", "change"),
    [
        (SERVICE, lambda seen: seen["spec"]["selector"].update(x="z")),
        (SERVICE, lambda seen: seen["spec"]["selector"].clear()),
        (SERVICE, lambda seen: seen["metadata"]["labels"].pop("a")),
        (SERVICE, lambda seen: seen["spec"]["ports"][0].update(targetPort=1)),
        (SERVICE, lambda seen: seen["spec"].update(ports=[{"port": 1}])),
        (ROLE, lambda seen: seen["rules"].append({"apiGroups": ["*"]})),
        (ROLE, lambda seen: seen["rules"][0]["verbs"].append("delete")),
        (ROLE, lambda seen: seen["rules"][0]["verbs"].reverse()),
        (ROLE, lambda seen: seen.pop("rules")),
        (CLAIM, lambda seen: seen["spec"]["resources"]["requests"].update(storage="1Gi")),
    ],
)
def test_a_foreign_edit_is_a_difference(document: dict[str, Any], change: Any) -> None:
    seen = served(document)
    change(seen)
    assert not covers(document, seen)


@pytest.mark.parametrize(
    ("document", "change"),
    [
        (SERVICE, lambda seen: seen["spec"]["ports"].insert(0, {"port": 1, "protocol": "TCP"})),
        (SERVICE, lambda seen: seen["metadata"]["labels"].update(theirs="c")),
        (CLAIM, lambda seen: seen["spec"]["resources"]["requests"].update(storage="1Ti")),
        (CLAIM, lambda seen: seen["spec"].update(accessModes=["ReadWriteMany"])),
    ],
)
def test_what_applying_could_not_undo_is_no_difference(document: dict[str, Any], change: Any) -> None:
    seen = served(document)
    change(seen)
    assert covers(document, seen)


@pytest.mark.parametrize(
    ("one", "other"), [("1Gi", 2**30), ("500m", "0.5"), ("1e3", "1k"), ("0.5Ki", 512), ("1E", 10**18), (".5", "500m")]
)
def test_quantities_are_compared_as_numbers(one: int | str, other: int | str) -> None:
    assert quantity(one) == quantity(other) is not None


def test_what_is_no_quantity_is_none() -> None:
    assert [quantity(value) for value in ("", "abc", "1 Gi", True, None, 1.5, "--1")] == [None] * 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_any_document_covers_itself_and_additions_do_not_matter(wanted: dict[str, Any], more: dict[str, Any]) -> None:
    assert covers(wanted, wanted)
    assert covers(wanted, {**more, **wanted})


# ---------------------------------------------------------------------------------------------------------- the diff


def world() -> World:
    found = World(group({"name": "eu", "replicas": 1}, {"name": "asia", "cluster": "far", "region": "asia"}))
    fill(found)
    found.children.clear()
    return found


def planned(
    observation: Observation, *wanted: dict[str, Any], cluster: str = "local", decision: Decision | None = None
) -> tuple[Action, ...]:
    quiet = decision or Decision(state=GroupState(group_uid=UID))
    return diff([Wanted(cluster, document) for document in wanted], observation, quiet)


def member(found: World, role: str, kind: str) -> dict[str, Any]:
    name = names.member_name(found.group.key, role, 0)
    annotations = {names.ANNOTATION_TEMPLATE_HASH: "v9", names.ANNOTATION_HUB: "hub"}
    metadata = {"name": name, "namespace": "ml", "labels": {"a": "b"}, "annotations": annotations}
    return {"kind": kind, "metadata": metadata}


def test_what_is_missing_is_applied_in_the_order_given_and_what_is_there_is_left_alone() -> None:
    found = world()
    leases = [member(found, role, "Lease") for role in ("trainer", "eu")]
    assert planned(found.observe(), SERVICE, ROLE, *leases) == (Apply("local", SERVICE), Apply("local", ROLE))
    found.children["local"] = {one.key: one for one in (child(served(SERVICE)), child(served(ROLE)))}
    assert planned(found.observe(), SERVICE, ROLE, *leases) == ()


def test_a_foreign_edit_is_applied_over_and_a_deleted_child_made_again() -> None:
    found = world()
    edited = served(ROLE)
    edited["rules"] = []
    found.children["local"] = {one.key: one for one in (child(served(SERVICE)), child(edited))}
    leases = [member(found, role, "Lease") for role in ("trainer", "eu")]
    assert planned(found.observe(), SERVICE, ROLE, *leases) == (Apply("local", ROLE),)


def test_pods_are_made_if_missing_and_never_changed_but_for_their_labels() -> None:
    found = world()
    observation = found.observe()
    pod, absent = member(found, "eu", "Pod"), member(found, "asia", "Pod")
    actions = [one for one in planned(observation, pod, absent) if not isinstance(one, Delete)]
    assert actions == [Apply("local", absent)]
    local = observation.clusters["local"]
    pods = tuple(replace(one, labels_ours=one.slot.role != "eu") for one in local.pods)
    edited = replace(observation, clusters={**observation.clusters, "local": replace(local, pods=pods)})
    (relabel,) = [one for one in planned(edited, pod) if not isinstance(one, Delete)]
    uid = found.pod("eu", 0).uid
    assert relabel == Relabel("local", Wanted("local", pod).key, uid, {"a": "b"}, {names.ANNOTATION_HUB: "hub"})


def test_nothing_is_planned_for_a_cluster_that_cannot_be_reached() -> None:
    found = world()
    pods = found.clusters["far"].pods
    found.cut("far")
    decision = found.decide()
    stale = Removal(found._pod_view(next(iter(pods.values()))), reasons.SLOT_TAKEN, "", force=True)
    observation = found.observe()
    actions = planned(observation, SERVICE, cluster="far", decision=replace(decision, removals=(stale,)))
    assert all(action.cluster == "local" for action in actions)


def test_removed_pods_are_deleted_last_by_uid_at_once_or_politely() -> None:
    found = world()
    observation = found.observe()
    polite, forced = observation.clusters["local"].pods
    removals = (Removal(polite, reasons.SCALED_DOWN, ""), Removal(forced, reasons.LEASE_EXPIRED, "", force=True))
    decision = Decision(state=GroupState(group_uid=UID), removals=removals)
    actions = planned(observation, SERVICE, decision=decision)
    assert actions[0] == Apply("local", SERVICE)
    assert [(one.uid, one.grace_s) for one in actions[1:3] if isinstance(one, Delete)] == [
        (polite.uid, None),
        (forced.uid, 0),
    ]


def test_a_successor_takes_the_place_of_a_pod_that_is_given_up_in_one_action() -> None:
    found = world()
    observation = found.observe()
    lost = next(pod for pod in observation.clusters["local"].pods if pod.slot.role == "eu")
    removal = Removal(lost, reasons.LEASE_EXPIRED, "", force=True)
    decision = Decision(state=GroupState(group_uid=UID), removals=(removal,))
    document = member(found, "eu", "Pod")
    pods = [action for action in planned(observation, document, decision=decision) if action.key.kind == "Pod"]
    assert pods == [Apply("local", document, instead_of=lost.uid)]


def test_what_nobody_wants_is_deleted_but_for_claims_and_the_hubs_own_record() -> None:
    found = world()
    key = found.group.key
    record = {"kind": "ConfigMap", "metadata": {"name": names.state_name(key), "namespace": "ml"}}
    authority = {"kind": "Secret", "metadata": {"name": names.ca_secret_name(key), "namespace": "ml"}}
    children = [child(one) for one in (served(SERVICE), served(CLAIM), record, authority)]
    found.children["local"] = {one.key: one for one in children}
    leases = [member(found, role, "Lease") for role in ("trainer", "eu")]
    assert planned(found.observe(), *leases) == (Delete("local", children[0].key, "uid-svc"),)
    found.children["local"] = {one.key: replace(one, deleting=True) for one in children}
    assert planned(found.observe(), *leases) == ()


def test_a_lease_without_a_seat_goes_once_its_pod_is_gone() -> None:
    found = world()
    wanted = member(found, "trainer", "Lease")
    assert planned(found.observe(), wanted) == ()
    observation = found.observe()
    local = observation.clusters["local"]
    without = replace(local, pods=tuple(pod for pod in local.pods if pod.slot.role == "trainer"))
    (delete,) = planned(replace(observation, clusters={**observation.clusters, "local": without}), wanted)
    assert isinstance(delete, Delete)
    assert (delete.key.kind, delete.uid) == ("Lease", f"lease-{found.pod('eu', 0).uid}")


def test_a_group_that_goes_takes_everything_with_it_and_says_where_something_is_left() -> None:
    found = world()
    found.children["far"] = {child(served(CLAIM)).key: child(served(CLAIM))}
    found.deleting = True
    decision = found.step()
    assert (decision.seats, decision.plans, decision.state.clusters) == ((), {}, ["far", "local"])
    actions = planned(found.observe(), decision=decision)
    assert sorted((one.cluster, one.key.kind) for one in actions) == [
        ("far", "Lease"),
        ("far", "PersistentVolumeClaim"),
        ("far", "Pod"),
        ("local", "Lease"),
        ("local", "Lease"),
        ("local", "Pod"),
        ("local", "Pod"),
    ]
    found.clusters["local"].pods.clear()
    record = {"kind": "ConfigMap", "metadata": {"name": names.state_name(found.group.key), "namespace": "ml"}}
    found.children["local"] = {child(record).key: child(record)}
    found.cut("far")
    assert found.step().state.clusters == ["far"]  # away: it may hold something
    assert planned(found.observe()) == ()
    found.mend("far")
    found.clusters["far"].pods.clear()
    found.children["far"] = {}
    assert found.step().state.clusters == []
