"""Which groups a change matters to."""

from __future__ import annotations

from typing import Any

from sync_runtime.contract import names
from syncgroup_operator.kube.store import Store, Why
from syncgroup_operator.planning.observation import ObjectKey
from tests.unit.operator_kube.bodies import CLUSTER, UID, config_map, lease, node, pod

PLAN = ObjectKey("ConfigMap", "team", "plan")


def relabelled(body: dict[str, Any], uid: str) -> dict[str, Any]:
    body["metadata"]["labels"] = body["metadata"]["labels"] | {names.LABEL_GROUP_UID: uid}
    return body


def test_a_pod_wakes_its_group_when_something_that_is_looked_at_changed() -> None:
    store = Store(CLUSTER)
    assert list(store.put_pod(pod(), 1.0)) == [(UID, Why.POD)]
    assert list(store.put_pod(pod(), 2.0)) == []
    heartbeat = pod()
    heartbeat["status"]["conditions"][0]["lastProbeTime"] = "now"
    assert list(store.put_pod(heartbeat, 3.0)) == []
    assert list(store.put_pod(pod(status={"phase": "Failed"}), 4.0)) == [(UID, Why.POD)]
    assert list(store.drop_pod(pod())) == [(UID, Why.POD)]
    assert list(store.drop_pod(pod())) == []
    assert store.groups == {}


def test_a_pod_that_loses_its_seat_is_forgotten() -> None:
    store = Store(CLUSTER)
    store.put_pod(pod(), 1.0)
    body = pod()
    body["metadata"]["labels"] = {names.LABEL_GROUP_UID: UID}
    assert list(store.put_pod(body, 2.0)) == [(UID, Why.POD)]
    assert store.groups == {}
    assert list(store.put_pod(body, 3.0)) == []


def test_an_object_that_changes_groups_wakes_both() -> None:
    store = Store(CLUSTER)
    store.put_pod(pod(), 1.0)
    store.put_child(config_map())
    store.put_lease(lease(), 1.0)
    assert list(store.put_pod(relabelled(pod(), "other"), 2.0)) == [(UID, Why.POD), ("other", Why.POD)]
    assert list(store.put_child(relabelled(config_map(), "other"))) == [(UID, Why.CHILD), ("other", Why.CHILD)]
    assert list(store.put_lease(relabelled(lease(), "other"), 2.0)) == [(UID, Why.LEASE), ("other", Why.LEASE)]
    assert set(store.groups) == {"other"}
    group = store.groups["other"]
    assert (len(group.pods), len(group.children), len(group.leases)) == (1, 1, 1)


def test_a_renewal_with_the_same_report_wakes_nobody_and_moves_its_moment() -> None:
    store = Store(CLUSTER)
    assert list(store.put_lease(lease("a"), 1.0)) == [(UID, Why.LEASE)]
    assert list(store.put_lease(lease("b"), 11.0)) == []
    (row,) = store.groups[UID].leases.values()
    assert (row.renew_time, row.changed_s) == ("b", 11.0)


def test_a_changed_report_a_new_holder_and_a_late_renewal_wake() -> None:
    store = Store(CLUSTER)
    store.put_lease(lease("a"), 1.0)
    assert list(store.put_lease(lease("b", state="Draining"), 2.0)) == [(UID, Why.REPORT)]
    assert list(store.put_lease(lease("c", holder="u-2", state="Draining"), 3.0)) == [(UID, Why.LEASE)]
    assert list(store.put_lease(lease("d", holder="u-2", state="Draining"), 40.0)) == [(UID, Why.LEASE)]
    assert list(store.drop_lease(lease())) == [(UID, Why.LEASE)]
    assert store.groups == {}


def test_the_shortest_held_lease_is_known() -> None:
    store = Store(CLUSTER)
    assert store.shortest_lease_s is None
    store.put_lease(lease(), 1.0)
    other = lease()
    other["metadata"] |= {"name": "other", "uid": "l-2"}
    other["spec"]["leaseDurationSeconds"] = 5
    store.put_lease(other, 1.0)
    assert store.shortest_lease_s == 5
    other["spec"] = {}
    store.put_lease(other, 2.0)
    assert store.shortest_lease_s == 30
    store.put_lease(lease("b"), 3.0)
    store.drop_lease(lease())
    assert store.shortest_lease_s is None


def test_a_child_wakes_by_its_version() -> None:
    store = Store(CLUSTER)
    assert list(store.put_child(config_map("7"))) == [(UID, Why.CHILD)]
    assert list(store.put_child(config_map("7"))) == []
    assert list(store.put_child(config_map("8"))) == [(UID, Why.CHILD)]
    assert store.groups[UID].children[PLAN].resource_version == "8"
    bare = config_map("9")
    bare["metadata"]["labels"] = {}
    assert list(store.put_child(bare)) == [(UID, Why.CHILD)]
    assert list(store.drop_child(PLAN)) == []


def test_a_node_wakes_the_groups_with_pods_on_it_when_its_readiness_changes() -> None:
    store = Store(CLUSTER)
    assert list(store.put_node(node())) == []
    store.put_pod(pod(), 1.0)
    store.put_pod(relabelled(pod(index=1, spec={"nodeName": "node-2"}), "other"), 1.0)
    seen = store.nodes
    assert list(store.put_node(node())) == []
    assert list(store.put_node(node(ready="False"))) == [(UID, Why.NODE)]
    assert list(store.drop_node("node-1")) == [(UID, Why.NODE)]
    assert list(store.drop_node("node-1")) == []
    assert dict(store.nodes) == {}
    assert seen["node-1"].ready  # a pass keeps what it saw


def test_a_namespace_that_is_no_longer_watched_leaves_nothing() -> None:
    store = Store(CLUSTER)
    store.put_pod(pod(), 1.0)
    store.put_lease(lease(), 1.0)
    store.put_child(config_map())
    store.forget_namespace("elsewhere")
    assert set(store.groups) == {UID}
    store.forget_namespace("team")
    assert store.groups == {}


def test_the_holder_of_a_name_is_known_whichever_group_it_is_of() -> None:
    store = Store(CLUSTER)
    store.put_pod(pod(), 0.0)
    store.put_lease(relabelled(lease(), "other"), 0.0)
    store.put_child(config_map())
    for body, holder in ((pod(), UID), (lease(), "other"), (config_map(), UID)):
        key = ObjectKey(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
        assert store.holder_uid(key) == holder
        assert store.holder_uid(key._replace(name="no-such")) is None
    assert store.holder_uid(PLAN._replace(kind="Service")) is None
