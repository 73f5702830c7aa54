"""The operator on a real API server, with its own service account: groups are made, mended, changed and removed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from sync_runtime.contract import names
from sync_runtime.contract.figures import series_of
from sync_runtime.contract.figures.operator import FIGURES
from tests.support.operator_groups import TEMPLATE, Group, beating_group
from tests.support.operators import OperatorHub, OperatorProcess, condition, items, wait_condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def operator(hub: OperatorHub) -> Iterator[OperatorProcess]:
    """One replica for all tests that do not end it."""
    with hub.operator("shared") as process:
        yield process


@pytest.fixture
def group(hub: OperatorHub, request: pytest.FixtureRequest) -> Iterator[Group]:
    with beating_group(hub.region, f"op-{zlib.crc32(request.node.name.encode())}") as found:
        yield found


def test_a_group_becomes_ready_with_a_plan_that_its_members_can_follow(operator: OperatorProcess, group: Group) -> None:
    group.write(replicas=3)
    found = group.ready()
    status = found["status"]
    assert status["rolloutsReady"] == "3/3"
    assert (status["term"], status["planRevision"]) == (1, 1)
    assert condition(found, "Stalled")["status"] == "False"
    plan = group.plan()
    trainer = group.name_of("trainer", 0)
    assert {member["name"] for member in plan["members"]} == {trainer, *(group.name_of("near", i) for i in range(3))}
    assert all(member["parents"] for member in plan["members"] if member["role"] == "Rollout")
    assert plan["trainer"]["member"] == trainer
    here = f'group="demo",group_namespace="{group.namespace}"'
    # Of the status as the operator's own watch brings it back.
    group.wait(lambda: operator.metrics().get(f"syncgroup_group_ready{{{here}}}") == 1, "the group in the figures")
    figures = operator.metrics()
    assert figures[f"syncgroup_group_term{{{here}}}"] == 1
    assert {name.partition("{")[0] for name in figures if not name.endswith("_created")} <= _scraped_names()


def _scraped_names() -> set[str]:
    """What the list says, and when a process' counters began, which the library adds."""
    families = {figure.family for figure in FIGURES}
    return {*series_of(FIGURES), *(f"{name}_created" for name in families)}


def test_a_lost_pod_a_deleted_plan_and_a_foreign_edit_end_in_the_same_state(
    operator: OperatorProcess, group: Group
) -> None:
    group.write()
    group.ready()
    victim = group.name_of("near", 1)
    before = group.uids()
    plan_name = names.plan_name(group.key, "local", "us-east")
    service = names.members_service_name(group.key)
    group.region.kubectl("delete", "pod", victim, "-n", group.namespace, "--wait=false")
    group.region.kubectl("delete", "configmap", plan_name, "-n", group.namespace)
    patch = json.dumps({"spec": {"publishNotReadyAddresses": False}})
    group.region.kubectl("patch", "service", service, "-n", group.namespace, "--type=merge", "-p", patch)
    group.wait(lambda: group.uids().get(victim, before[victim]) != before[victim], "the pod's successor")
    group.wait(lambda: bool(group.plan()), "the plan's return")
    path = f"/api/v1/namespaces/{group.namespace}/services/{service}"
    group.wait(lambda: group.object(path)["spec"].get("publishNotReadyAddresses") is True, "the Service's repair")
    group.ready()
    after = group.uids()
    assert {name for name in before if before[name] != after[name]} == {victim}
    assert operator.process.poll() is None


def test_a_label_that_somebody_removed_is_set_again_and_the_pod_lives_on(
    operator: OperatorProcess, group: Group
) -> None:
    group.write()
    group.ready()
    victim = group.name_of("near", 0)
    before = group.uids()
    group.region.kubectl("label", "pod", victim, f"{names.LABEL_GROUP_UID}-", "-n", group.namespace)
    group.wait(lambda: names.LABEL_GROUP_UID in group.pods()[victim]["metadata"]["labels"], "the label's return")
    group.ready()
    assert group.uids() == before
    assert operator.process.poll() is None


def test_scaling_keeps_the_pods_that_stay(operator: OperatorProcess, group: Group) -> None:
    group.write(replicas=3)
    group.ready()
    before = group.uids()
    group.write(replicas=1)
    group.wait(lambda: len(group.uids()) == 2, "the end of two members")
    assert group.uids().items() <= before.items()
    group.write(replicas=2)
    found = group.ready()
    assert found["status"]["rolloutsReady"] == "2/2"
    assert operator.process.poll() is None


def test_a_changed_template_rolls_through_without_more_pods_down_than_allowed(
    operator: OperatorProcess, group: Group
) -> None:
    group.write(replicas=3)
    group.ready()
    before = group.uids()
    new = {"spec": {**TEMPLATE["spec"], "containers": [{"name": "main", "image": "example/main:2"}]}}
    group.write(replicas=3, template=new)
    least = 3
    rollouts = [group.name_of("near", i) for i in range(3)]

    def rolled() -> bool:
        nonlocal least
        pods = group.pods()
        living = [name for name in rollouts if name in pods and "deletionTimestamp" not in pods[name]["metadata"]]
        least = min(least, len(living))
        return all(name in pods and _image(pods[name]) == "example/main:2" for name in rollouts)

    group.wait(rolled, "the roll-out", 60)
    assert least >= 2
    found = group.ready()
    after = group.uids()
    assert all(after[name] != before[name] for name in rollouts)
    assert after[group.name_of("trainer", 0)] == before[group.name_of("trainer", 0)]
    assert found["status"]["term"] == 1
    assert operator.process.poll() is None


def test_suspend_stops_pods_and_keeps_state_and_its_end_goes_on_with_a_new_term(
    operator: OperatorProcess, group: Group
) -> None:
    group.write()
    before = group.ready()["status"]
    group.write(suspend=True)
    group.wait(lambda: not group.pods(), "the end of all pods")
    assert group.plan()
    found = wait_condition(group.region, group.namespace, "demo", "Suspended", "True")
    assert condition(found, "Ready")["status"] == "False"
    group.write(suspend=False)
    after = group.ready(term=before["term"] + 1)["status"]
    assert after["term"] == before["term"] + 1
    assert after["planRevision"] > before["planRevision"]
    assert operator.process.poll() is None


def test_a_rollout_whose_lease_expired_is_replaced_and_status_says_who_and_why(
    operator: OperatorProcess, group: Group
) -> None:
    group.write()
    group.ready()
    group.alive()
    victim = group.name_of("near", 1)
    before = group.uids()
    group.driver.silent = {victim}
    group.wait(lambda: group.uids().get(victim, before[victim]) != before[victim], "the replacement")
    group.driver.silent = set()
    # The successor is made before the status says so, and until then the group is as Ready as it was.
    group.wait(lambda: group.status().get("replacementsTotal", 0) > 0, "the status that tells of it")
    status = group.ready()["status"]
    assert status["replacementsTotal"] == 1
    replacement = status["replacements"][0]
    assert (replacement["member"], replacement["reason"]) == (victim, "LeaseExpired")
    after = group.uids()
    assert {name for name in before if before[name] != after[name]} == {victim}
    figures = operator.metrics()
    assert figures['syncgroup_replacements_total{reason="LeaseExpired"}'] >= 1
    assert figures["syncgroup_lease_expiries_total"] >= 1

    def told() -> bool:
        events = items(group.region, f"/apis/events.k8s.io/v1/namespaces/{group.namespace}/events")
        return any(event["reason"] == "LeaseExpired" and victim in event["note"] for event in events)

    group.wait(told, "the event")
    assert operator.process.poll() is None


def test_deletion_leaves_nothing_behind(operator: OperatorProcess, group: Group) -> None:
    group.write()
    group.ready()
    secret = names.ca_secret_name(group.key)
    path = f"/api/v1/namespaces/syncgroup-system/secrets/{secret}"
    assert group.object(path)
    group.region.kubectl("delete", "syncgroup", "demo", "-n", group.namespace)
    group.wait(lambda: not group.object(path), "the end of the authority")

    def empty() -> bool:
        kinds = ("api/v1", "pods"), ("api/v1", "configmaps"), ("api/v1", "services")
        further = ("apis/coordination.k8s.io/v1", "leases"), ("apis/rbac.authorization.k8s.io/v1", "roles")
        left = [
            item
            for api, plural in (*kinds, *further)
            for item in items(group.region, f"/{api}/namespaces/{group.namespace}/{plural}")
            if names.LABEL_GROUP in (item["metadata"].get("labels") or {})
        ]
        return not left

    group.wait(empty, "the end of everything", 90)
    assert operator.process.poll() is None


def _image(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])
