"""Several clusters: a hub and two remote API servers, the operator with the rights that registration gives it."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from tests.support import clusters
from tests.support.operators import apply, condition, group_of, items, wait_condition
from tests.support.several_clusters import PATIENCE_S, SeveralClusters, group, template
from tools.devcluster.api import wait_until
from tools.devcluster.client import RegionHandle
from tools.devcluster.config import Level

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TESTS = 8
EU, AP = "eu-west", "ap-south"
STORED = {
    "transport": "ObjectStore",
    "objectStore": {"url": "s3://weights", "secretRef": {"name": "credentials"}},
}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralClusters]:
    cluster = clusters.start(Level.PLANES, "3", kwok_nodes=2)
    found = SeveralClusters(cluster, tmp_path_factory.mktemp("several"), TESTS, store_secrets=True)
    found.start_operator()
    yield found
    found.stop_operator()
    cluster.down()


_numbers = itertools.count()


@pytest.fixture
def number() -> int:
    """Which namespaces are this test's own."""
    return next(_numbers)


def lost_times(group: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["lostTime"] for one in (group.get("status") or {}).get("lostClusters") or ()}


def test_a_group_over_three_clusters_is_ready_and_lands_in_the_mapped_namespaces_only(
    several: SeveralClusters, number: int
) -> None:
    guests = f"guests-{number}"
    with several.members(number):
        apply(several.hub, group(number, "wide", [(EU, 2), (AP, 1)]))
        seen = wait_condition(several.hub, f"team-{number}", "wide", "Ready", "True", timeout_s=PATIENCE_S)
        assert seen["status"]["rolloutsReady"] == "3/3"
        assert several.connected(EU)["status"] == several.connected(AP)["status"] == "True"
        assert several.sync_cluster(EU)["status"]["kubernetesVersion"].startswith("v1.")
        hub_id = several.hub.api("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"]
        for name, count in ((EU, 2), (AP, 1)):
            region = several.remotes[name]
            everywhere = items(region, f"/api/v1/pods?labelSelector={names.LABEL_GROUP}=wide")
            assert [pod["metadata"]["namespace"] for pod in everywhere] == [guests] * count
            kinds = {kind for kind, _ in several.children(region, guests)}
            assert kinds == {"pods", "leases", "configmaps", "services", "roles", "rolebindings"}
            assert {pod["metadata"]["annotations"][names.ANNOTATION_HUB] for pod in everywhere} == {hub_id}
        assert len(several.pods(several.hub, f"team-{number}")) == 1
        several.delete_group(number, "wide")
        several.wait_empty(number)
        authorities = f"/api/v1/namespaces/syncgroup-system/secrets?labelSelector={names.LABEL_GROUP}=wide"
        wait_until(lambda: not items(several.hub, authorities), "the authority goes", PATIENCE_S)


def test_a_namespace_that_a_cluster_does_not_allow_gets_nothing_there(several: SeveralClusters, number: int) -> None:
    stranger = f"stranger-{number}"
    several.hub.kubectl("create", "namespace", stranger)
    document = group(number, "stranger", [(EU, 1)])
    document["metadata"]["namespace"] = stranger
    apply(several.hub, document)
    seen = wait_condition(several.hub, stranger, "stranger", "Stalled", "True", timeout_s=PATIENCE_S)
    found = condition(seen, "Stalled")
    assert found["reason"] == "NamespaceNotAllowed"
    assert f"SyncCluster {EU} does not allow namespace {stranger}" in found["message"]
    assert "spec.allowedNamespaces" in found["message"]
    time.sleep(1.0)  # as long as a wrong pass would need
    query = f"labelSelector={names.LABEL_GROUP}=stranger"
    assert not items(several.remotes[EU], f"/api/v1/pods?{query}")
    assert not items(several.remotes[EU], f"/api/v1/configmaps?{query}")


def test_a_service_account_that_a_cluster_does_not_allow_stalls_the_group(
    several: SeveralClusters, number: int
) -> None:
    document = group(number, "account", [(EU, 1)])
    document["spec"]["rollouts"][0]["template"] = template("engine", serviceAccountName="cluster-admin")
    apply(several.hub, document)
    seen = wait_condition(several.hub, f"team-{number}", "account", "Stalled", "True", timeout_s=PATIENCE_S)
    found = condition(seen, "Stalled")
    assert found["reason"] == "ServiceAccountNotAllowed"
    assert f"spec.rollouts[at-{EU}].template.spec.serviceAccountName" in found["message"]
    assert not several.pods(several.remotes[EU], f"guests-{number}")
    document["spec"]["rollouts"][0]["template"] = template("engine", serviceAccountName="engine")
    several.remotes[EU].kubectl("create", "serviceaccount", "engine", "-n", f"guests-{number}")
    apply(several.hub, document)
    wait_condition(several.hub, f"team-{number}", "account", "Stalled", "False", timeout_s=PATIENCE_S)
    wait_until(lambda: bool(several.pods(several.remotes[EU], f"guests-{number}")), "the pod is made", PATIENCE_S)


def test_a_cluster_that_is_away_is_held_and_nothing_is_replaced_when_it_is_back(
    several: SeveralClusters, number: int
) -> None:
    team, guests = f"team-{number}", f"guests-{number}"
    with several.members(number):
        apply(several.hub, group(number, "held", [(EU, 2), (AP, 1)]))
        wait_condition(several.hub, team, "held", "Ready", "True", timeout_s=PATIENCE_S)
        before = several.pods(several.remotes[EU], guests)
        with several.away(EU):
            several.wait_connected(EU, "False")
            found = several.connected(EU)
            assert found["reason"] == "Unreachable"
            assert "no answer" in found["message"]
            assert "0x" not in found["message"], "a message must not change with every try"
            lost = several.sync_cluster(EU)["status"]["lostTime"]
            seen = wait_condition(several.hub, team, "held", "ClustersReachable", "False", timeout_s=PATIENCE_S)
            assert lost_times(seen) == {EU: lost}
            apply(several.hub, group(number, "held", [(EU, 2), (AP, 2)]))  # the others go on
            wait_until(lambda: len(several.pods(several.remotes[AP], guests)) == 2, "ap grows", PATIENCE_S)
            several.stop_operator()
            time.sleep(1.5)  # so that a clock that began anew would show
            several.start_operator()
            _wait_judged_anew(several, number, "held")
            assert several.sync_cluster(EU)["status"]["lostTime"] == lost
            assert lost_times(group_of(several.hub, team, "held")) == {EU: lost}
            assert several.pods(several.remotes[EU], guests) == before
        several.wait_connected(EU, "True")
        assert "lostTime" not in several.sync_cluster(EU)["status"]
        seen = wait_condition(several.hub, team, "held", "Ready", "True", timeout_s=PATIENCE_S)
        assert several.pods(several.remotes[EU], guests) == before
        assert not seen["status"].get("lostClusters")
        assert not seen["status"].get("replacementsTotal")
        several.delete_group(number, "held")


def _wait_judged_anew(several: SeveralClusters, number: int, name: str) -> None:
    """A restarted operator has found the cluster lost by itself: its first word about it was that it does not know."""
    apply(several.hub, group(number, name, [(EU, 2), (AP, 1)]))
    wait_until(lambda: len(several.pods(several.remotes[AP], f"guests-{number}")) == 1, "the operator acts", PATIENCE_S)
    several.wait_connected(EU, "False")
    wait_condition(several.hub, f"team-{number}", name, "ClustersReachable", "False", timeout_s=PATIENCE_S)


def test_a_group_that_is_deleted_while_a_cluster_is_away_is_collected_there_when_it_is_back(
    several: SeveralClusters, number: int
) -> None:
    team, guests = f"team-{number}", f"guests-{number}"
    eu, copy = several.remotes[EU], names.store_secret_name(names.GroupKey(team, "left"))
    write_secret(several, number, AWS_ACCESS_KEY_ID="who", AWS_SECRET_ACCESS_KEY="what")
    with several.members(number, {"store": {"objects": 1}}):
        apply(several.hub, group(number, "left", [(EU, 2)], sync=STORED))
        wait_condition(several.hub, team, "left", "Ready", "True", timeout_s=PATIENCE_S)
        assert secret_at(eu, guests, copy)
        foreign = _of_another_hub(several, guests)
        with several.away(EU):
            several.wait_connected(EU, "False")
            several.delete_group(number, "left")
            assert len(several.pods(eu, guests)) == 2 + 1, "out of reach, so that they run on"
        several.wait_connected(EU, "True")
        wait_until(lambda: set(several.children(eu, guests)) == set(foreign), "the leftovers go", PATIENCE_S)
        assert secret_at(eu, guests, copy) is None
        time.sleep(3.0)  # several more rounds
        assert several.children(eu, guests) == foreign


def test_what_another_hub_made_is_never_touched_though_its_group_has_the_same_name(
    several: SeveralClusters, number: int
) -> None:
    team, guests = f"team-{number}", f"guests-{number}"
    eu = several.remotes[EU]
    key = names.GroupKey(team, "twin")
    name = names.trust_bundle_name(key)
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": guests,
            "labels": names.group_labels(key, "00000000-0000-4000-8000-000000000002"),
            "annotations": {names.ANNOTATION_HUB: "another-hub"},
        },
        "data": {"ca.crt": "theirs"},
    }
    apply(eu, foreign, manager=names.FIELD_MANAGER)
    with several.members(number):
        apply(several.hub, group(number, "twin", [(EU, 1), (AP, 1)]))
        seen = wait_condition(several.hub, team, "twin", "Reconciling", "True", timeout_s=PATIENCE_S)
        wait_until(
            lambda: condition(group_of(several.hub, team, "twin"), "Reconciling").get("reason") == "NameTaken",
            "the name is found taken", PATIENCE_S,
        )  # fmt: skip
        seen = group_of(several.hub, team, "twin")
        assert "map the namespace elsewhere" in condition(seen, "Reconciling")["message"]
        assert list(several.children(eu, guests)) == [("configmaps", name)]
        wait_until(lambda: len(several.pods(several.remotes[AP], guests)) == 1, "the other cluster goes on", PATIENCE_S)
        assert eu.api("GET", f"/api/v1/namespaces/{guests}/configmaps/{name}")[1]["data"] == {"ca.crt": "theirs"}
        eu.kubectl("delete", "configmap", name, "-n", guests)
        wait_condition(several.hub, team, "twin", "Ready", "True", timeout_s=PATIENCE_S)
        several.delete_group(number, "twin")


def _of_another_hub(several: SeveralClusters, namespace: str) -> dict[tuple[str, str], str]:
    """A pod and a ConfigMap that another hub's operator left in the same namespace."""
    labels = names.group_labels(names.GroupKey("theirs", "theirs"), "00000000-0000-4000-8000-000000000001")
    metadata = {
        "name": "theirs",
        "namespace": namespace,
        "labels": labels,
        "annotations": {names.ANNOTATION_HUB: "another-hub"},
    }
    eu = several.remotes[EU]
    apply(eu, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template("engine")})
    apply(eu, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})
    return {key: uid for key, uid in several.children(eu, namespace).items() if key[1] == "theirs"}


def secret_at(region: RegionHandle, namespace: str, name: str) -> dict[str, str] | None:
    """What a Secret holds; None: there is none."""
    status, found = region.api("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
    data = found.get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()} if status == 200 else None


def write_secret(several: SeveralClusters, number: int, **data: str) -> None:
    metadata = {"name": "credentials", "namespace": f"team-{number}"}
    apply(several.hub, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})


def test_the_secret_of_an_object_store_follows_its_group_through_all_clusters(
    several: SeveralClusters, number: int
) -> None:
    """Missing, then there, rotated while the store refuses the old one, and gone with the group."""
    team, guests, report = f"team-{number}", f"guests-{number}", dict[str, Any]()
    copy = names.store_secret_name(names.GroupKey(team, "stored"))

    def copies() -> list[dict[str, str] | None]:
        return [secret_at(region, space, copy) for region, space in several.places(number)]

    def holds(**data: str) -> bool:
        hub, eu, ap = (secret_at(region, space, copy) for region, space in several.places(number))
        return hub == eu == data and ap is None  # nobody is there

    with several.members(number, report):
        apply(several.hub, group(number, "stored", [(EU, 1)], sync=STORED))
        wait_condition(several.hub, team, "stored", "Stalled", "True", timeout_s=PATIENCE_S)
        assert not several.pods(several.remotes[EU], guests)
        keys = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "old"}
        write_secret(several, number, **keys, AWS_SESSION_TOKEN="brief", unrelated="stays at home")
        wait_until(lambda: holds(**keys, AWS_SESSION_TOKEN="brief"), "the copies", PATIENCE_S)
        wait_until(lambda: bool(several.pods(several.remotes[EU], guests)), "the members' pods", PATIENCE_S)
        wait_until(lambda: _reason(several, team, "Ready") == "StoreUnproved", "nobody has opened it", PATIENCE_S)
        report["store"] = {"objects": 3, "seq": 3, "rateBitsPerSecond": 10**9}
        seen = wait_condition(several.hub, team, "stored", "Ready", "True", timeout_s=PATIENCE_S)
        assert seen["status"]["store"]["address"] == f"s3://weights/{team}/stored"
        assert seen["status"]["regions"][0]["link"]["store"] == f"s3://weights/{team}/stored"

        report["store"] = {"trouble": {"reason": "StoreDenied", "message": "the store does not let us at latest"}}
        wait_until(lambda: _reason(several, team, "LinksHealthy") == "StoreDenied", "it is told", PATIENCE_S)
        pods = several.pods(several.remotes[EU], guests)
        several.hub.api("DELETE", f"/api/v1/namespaces/{team}/secrets/credentials")
        write_secret(several, number, **{**keys, "AWS_SECRET_ACCESS_KEY": "new"})
        wait_until(lambda: holds(**{**keys, "AWS_SECRET_ACCESS_KEY": "new"}), "the rotation", PATIENCE_S)
        report["store"] = {"objects": 4, "seq": 4}
        wait_condition(several.hub, team, "stored", "Ready", "True", timeout_s=PATIENCE_S)
        assert several.pods(several.remotes[EU], guests) == pods  # nothing was restarted for it
        several.delete_group(number, "stored")
        several.wait_empty(number)
        wait_until(lambda: copies() == [None, None, None], "the copies go", PATIENCE_S)
        assert secret_at(several.hub, team, "credentials") is not None


def test_one_region_goes_through_a_store_of_its_own_and_the_others_stream(
    several: SeveralClusters, number: int
) -> None:
    """Its Secret goes to the trainer's cluster and its own, never to the third; no more when the region streams."""
    team, report = f"team-{number}", dict[str, Any]()
    key = names.GroupKey(team, "stored")
    store = {"url": "s3://weights", "secretRef": {"name": "credentials"}}
    regions = [{"cluster": AP, "region": AP, "transport": "ObjectStore", "objectStore": store}]
    spec = group(number, "stored", [(EU, 1), (AP, 2)], sync={"regions": regions})

    def copies() -> list[list[str] | None]:
        found = [secret_at(one, space, names.store_secret_name(key)) for one, space in several.places(number)]
        return [None if data is None else sorted(name.partition(".")[2] for name in data) for data in found]

    def plan(cluster: str, region: str) -> dict[str, Any]:
        place, space = next(
            one for one in several.places(number) if one[0] is (several.remotes.get(cluster) or several.hub)
        )
        _, found = place.api("GET", f"/api/v1/namespaces/{space}/configmaps/{names.plan_name(key, cluster, region)}")
        return dict(json.loads(found["data"][names.PLAN_KEY])) if "data" in found else {}

    with several.members(number, report):
        write_secret(several, number, AWS_ACCESS_KEY_ID="who", AWS_SECRET_ACCESS_KEY="what")
        apply(several.hub, spec)
        held = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        wait_until(lambda: copies() == [held, None, held], "copies where the store is opened", PATIENCE_S)
        wait_until(lambda: _reason(several, team, "Ready") == "StoreUnproved", "nobody has opened it", PATIENCE_S)
        report["store"] = {"objects": 3, "seq": 3}
        seen = wait_condition(several.hub, team, "stored", "Ready", "True", timeout_s=PATIENCE_S)
        stores = {one["cluster"]: (one.get("link") or {}).get("store") for one in seen["status"]["regions"]}
        assert stores == {AP: f"s3://weights/{team}/stored", EU: None}
        assert (plan(EU, EU)["transport"], plan(AP, AP)["transport"]) == ("Streams", "ObjectStore")
        assert "trainer" in plan(EU, EU)
        assert "trainer" not in plan(AP, AP)
        assert sorted(member.get("parents", []) for member in plan(AP, AP)["members"])[0] == []
        assert [fed["objectStore"]["url"] for fed in plan("local", "us-east")["feeds"]] == ["s3://weights"]
        streaming = group(number, "stored", [(EU, 1), (AP, 2)], sync={"regions": []})
        apply(several.hub, streaming)
        wait_until(lambda: copies() == [None, None, None], "the copies go", PATIENCE_S)
        wait_until(lambda: plan(AP, AP).get("transport") == "Streams", "the region streams", PATIENCE_S)
        wait_until(
            lambda: "store" not in group_of(several.hub, team, "stored")["status"], "nothing is told", PATIENCE_S
        )
        several.delete_group(number, "stored")
        several.wait_empty(number)


def _reason(several: SeveralClusters, namespace: str, kind: str) -> str:
    return str(condition(group_of(several.hub, namespace, "stored"), kind).get("reason"))
