"""The operator under faults: killed at any write, failing API servers, two leaders, an older hub."""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.contract import names
from tests.support.apiproxy import ApiProxy, Rule
from tests.support.operator_groups import Group, beating_group
from tests.support.operators import NAMESPACE, OperatorHub, OperatorProcess, group_of, items

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(170)]
WRITES = r"^(?!.*/leases/syncgroup-operator).*fieldManager="
"""Every write of a pass; renewals of the leader's lease are none."""
QUICK = {"lease_s": "3", "renew_s": "2", "retry_s": "0.5", "poll_s": "0.3"}


@pytest.fixture
def group(hub: OperatorHub, request: pytest.FixtureRequest) -> Iterator[Group]:
    with beating_group(hub.region, f"opf-{zlib.crc32(request.node.name.encode())}") as found:
        yield found


@pytest.fixture
def proxy(hub: OperatorHub) -> Iterator[ApiProxy]:
    with ApiProxy(hub.kubeconfig) as found:
        yield found


def proxied(hub: OperatorHub, proxy: ApiProxy, folder: Path) -> OperatorHub:
    """The same hub, reached through a proxy."""
    other = copy.copy(hub)
    other.folder, other.kubeconfig = folder, folder / "proxied.kubeconfig"
    other.kubeconfig.write_text(proxy.kubeconfig())
    return other


def versions(group: Group) -> dict[str, str]:
    """Every child's resource version; leases are renewed by others."""
    found = {}
    for api, plural in (
        ("api/v1", "pods"), ("api/v1", "configmaps"), ("api/v1", "services"),
        ("apis/rbac.authorization.k8s.io/v1", "roles"), ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ):  # fmt: skip
        for item in items(group.region, f"/{api}/namespaces/{group.namespace}/{plural}"):
            if names.LABEL_GROUP in (item["metadata"].get("labels") or {}):
                found[f"{plural}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
    return found


def passes(operator: OperatorProcess) -> float:
    name = 'controller_runtime_reconcile_total{controller="syncgroup",result="success"}'
    try:
        return operator.metrics().get(name, 0.0)
    except OSError:
        return 0.0


def test_a_restarted_operator_touches_nothing(hub: OperatorHub, group: Group) -> None:
    with hub.operator("first", **QUICK) as operator:
        group.write()
        group.ready()
        operator.kill()
    before, status = versions(group), group_of(group.region, group.namespace, "demo")["status"]
    with hub.operator("second", **QUICK) as operator:
        group.wait(lambda: passes(operator) >= 1, "a pass of the second operator")
        time.sleep(1.0)
        assert versions(group) == before
        assert group_of(group.region, group.namespace, "demo")["status"] == status


@pytest.mark.parametrize("fault", ["lose_answer", "drop"])
def test_killed_at_any_write_the_next_operator_ends_in_the_same_state(
    hub: OperatorHub, proxy: ApiProxy, group: Group, tmp_path: Path, fault: str
) -> None:
    through = proxied(hub, proxy, tmp_path)
    group.write(replicas=1)
    for number in range(0, 14, 3 if fault == "drop" else 2):
        proxy.clear()
        rule = proxy.add(Rule(path=WRITES, skip=number % 4, lose_answer=fault == "lose_answer", drop=fault == "drop"))
        with through.operator(f"crash-{number}", **QUICK) as operator:
            deadline = time.monotonic() + 8
            while rule.hits == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            operator.kill()
        if rule.hits == 0:
            break  # nothing was left to write: the group is whole
    proxy.clear()
    with hub.operator("last", **QUICK):
        status = group.ready()["status"]
    assert status["rolloutsReady"] == "1/1"
    assert len(group.pods()) == 2
    # A term is given out before its pod is made; a crash in between may cost one number, never use one twice.
    trainer = group.pods()[group.name_of("trainer", 0)]
    assert int(trainer["metadata"]["annotations"][names.ANNOTATION_TERM]) == status["term"]


def test_conflicts_refusals_and_lost_answers_delay_but_do_not_stop_a_group(
    hub: OperatorHub, proxy: ApiProxy, group: Group, tmp_path: Path
) -> None:
    rules = [
        proxy.add(Rule(path=WRITES, skip=2, times=3, status=409)),
        proxy.add(Rule(path=WRITES, skip=6, times=3, status=500)),
        proxy.add(Rule(path=WRITES, skip=9, times=2, status=429, retry_after="1")),
        proxy.add(Rule(path=r"/pods\?.*resourceVersion=", watch=True, times=2, status=410)),
        proxy.add(Rule(path="/configmaps", times=1, status=503)),
    ]
    with proxied(hub, proxy, tmp_path).operator("tried", **QUICK):
        group.write()
        status = group.ready(60.0)["status"]
    # A trainer whose making failed may get the next term: a number may be lost, never used twice.
    trainer = group.pods()[group.name_of("trainer", 0)]
    assert int(trainer["metadata"]["annotations"][names.ANNOTATION_TERM]) == status["term"]
    assert sum(rule.hits for rule in rules) >= 8


def test_a_cut_watch_misses_nothing(hub: OperatorHub, proxy: ApiProxy, group: Group, tmp_path: Path) -> None:
    with proxied(hub, proxy, tmp_path).operator("cut", **QUICK):
        group.write()
        group.ready()
        before = group.uids()
        victim = group.name_of("near", 0)
        proxy.cut_watches()
        group.region.kubectl("delete", "pod", victim, "-n", group.namespace, "--wait=false")
        group.wait(lambda: group.uids().get(victim, before[victim]) != before[victim], "the pod's successor")
        after = group.ready() and group.uids()
        assert {name for name in before if before[name] != after[name]} == {victim}


def test_an_api_server_that_is_away_for_a_while_costs_no_member_its_seat(
    hub: OperatorHub, proxy: ApiProxy, group: Group, tmp_path: Path
) -> None:
    # The leases last five seconds; the operator sees nothing for longer, while members go on renewing.
    with proxied(hub, proxy, tmp_path).operator("blind", **(QUICK | {"renew_s": "60", "lease_s": "90"})):
        group.write()
        group.ready()
        before = group.uids()
        proxy.freeze()
        time.sleep(9)
        proxy.thaw()
        time.sleep(4)
        assert group.uids() == before
        assert group.ready()["status"]["replacementsTotal"] == 0


def test_a_second_replica_takes_over_when_the_first_stops_or_dies(hub: OperatorHub, group: Group) -> None:
    with hub.operator("a", **QUICK) as first:
        group.write(replicas=1)
        group.ready()
        with hub.operator("b", **QUICK) as second:
            group.wait(lambda: _watches(second) > 0, "the second replica's watches")
            assert not second.health()["health"]["leading"]
            assert first.stop() == 0
            group.wait(lambda: _leads(second), "the hand-over")
            group.write(replicas=2)
            group.ready()
            with hub.operator("c", **QUICK) as third:
                group.wait(lambda: _watches(third) > 0, "the third replica's watches")
                second.kill()
                group.wait(lambda: _leads(third), "the take-over")
                group.write(replicas=3)
                assert group.ready()["status"]["rolloutsReady"] == "3/3"


def test_two_leaders_at_once_end_in_one_state(hub: OperatorHub, group: Group) -> None:
    with hub.operator("left", leader_election="false"), hub.operator("right", leader_election="false"):
        group.write(replicas=3)
        group.ready()
        time.sleep(2)
        before = group.uids()
        status = group.ready()["status"]
        time.sleep(3)
        again = group.ready()["status"]
        assert group.uids() == before
        assert (again["term"], again["planRevision"]) == (status["term"], status["planRevision"])
        assert status["term"] == 1
        assert again["replacementsTotal"] == 0


def test_a_hub_restored_from_an_older_backup_never_gives_a_number_twice(hub: OperatorHub, group: Group) -> None:
    path = f"/api/v1/namespaces/{group.namespace}/configmaps/{names.state_name(group.key)}"
    with hub.operator("before", **QUICK):
        group.write(replicas=1)
        group.ready()
        backup = group.object(path)["data"]
        group.region.kubectl("delete", "pod", group.name_of("trainer", 0), "-n", group.namespace, "--wait=false")
        status = group.ready(term=2)["status"]
    group.region.api("PATCH", path, {"data": backup}, content_type="application/merge-patch+json")
    with hub.operator("after", **QUICK):
        time.sleep(3)
        restored = group.ready()["status"]
        assert restored["term"] >= status["term"]
        group.region.kubectl("delete", "pod", group.name_of("trainer", 0), "-n", group.namespace, "--wait=false")
        found = group.ready(term=status["term"] + 1)["status"]
        assert found["planRevision"] > status["planRevision"]


def _watches(operator: OperatorProcess) -> int:
    return int(_health(operator).get("live_watches", 0))


def _leads(operator: OperatorProcess) -> bool:
    return bool(_health(operator).get("leading"))


def _health(operator: OperatorProcess) -> dict[str, Any]:
    """What it says of itself; nothing while it does not answer."""
    try:
        found: dict[str, Any] = operator.health()["health"]
    except OSError:
        return {}
    return found


def test_secrets_of_authorities_stay_in_the_operators_namespace(hub: OperatorHub, group: Group) -> None:
    with hub.operator("one", **QUICK):
        group.write(replicas=1)
        group.ready()
    own = items(group.region, f"/api/v1/namespaces/{NAMESPACE}/secrets")
    assert names.ca_secret_name(group.key) in {secret["metadata"]["name"] for secret in own}
    assert not items(group.region, f"/api/v1/namespaces/{group.namespace}/secrets")
