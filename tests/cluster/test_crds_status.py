"""Status as the operator will write it: a subresource, checked by the schema, shown by kubectl's columns."""

from __future__ import annotations

import copy
import subprocess
from typing import Any, Protocol

import pytest

from sync_runtime.contract.documents import load_resource
from sync_runtime.contract.status import SyncClusterStatus, SyncGroupStatus
from tests.cluster.crd_fixtures import Api
from tests.unit.contract.samples import minimal_cluster, minimal_group
from tests.unit.contract.status_samples import cluster_status, group_status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.usefixtures("crds")]

API = "/apis/syncgroup.dev/v1alpha1"


class Kubectl(Api, Protocol):
    """A region that also runs kubectl."""

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]: ...


def create(region: Api, collection: str, document: dict[str, Any]) -> dict[str, Any]:
    status, answer = region.api("POST", collection, document)
    assert status == 201, answer.get("message")
    return answer


def put_status(region: Api, item: str, document: dict[str, Any], status: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return region.api("PUT", f"{item}/status?fieldValidation=Strict", {**document, "status": status})


def test_a_status_is_stored_as_the_contract_writes_it(region: Api, namespace: str) -> None:
    groups = f"{API}/namespaces/{namespace}/syncgroups"
    created = create(region, groups, minimal_group())
    written = SyncGroupStatus.parse(group_status()).to_document()
    status, answer = put_status(region, f"{groups}/grpo", created, written)
    assert status == 200, answer.get("message")
    assert answer["status"] == written
    assert load_resource(answer).to_document()["status"] == written


def test_a_write_to_the_object_itself_leaves_the_status_alone(region: Api, namespace: str) -> None:
    groups = f"{API}/namespaces/{namespace}/syncgroups"
    created = create(region, groups, {**minimal_group(), "status": group_status()})
    assert "status" not in created


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda status: status["conditions"][0].update(reason=""), "reason", id="empty reason"),
        pytest.param(lambda status: status.update(phase="Running"), 'unknown field "status.phase"', id="a phase"),
        pytest.param(
            lambda status: status["conditions"].append(status["conditions"][0]), "Duplicate value", id="twice"
        ),
        pytest.param(
            lambda status: status["regions"][0]["link"].update(utilisationPercent=101),
            "less than or equal to 100",
            id="%",
        ),
        pytest.param(
            lambda status: status["conditions"][0].update(lastTransitionTime="now"), "date-time", id="no time"
        ),
        pytest.param(
            lambda status: status.update(replacements=status["replacements"] * 33),
            "at most 32 items",
            id="uncapped list",
        ),
    ],
)
def test_a_status_outside_the_contract_is_refused(region: Api, namespace: str, change: Any, message: str) -> None:
    groups = f"{API}/namespaces/{namespace}/syncgroups"
    created = create(region, groups, minimal_group())
    broken = copy.deepcopy(group_status())
    change(broken)
    status, answer = put_status(region, f"{groups}/grpo", created, broken)
    assert status in (400, 422)
    assert message in answer["message"]


def test_kubectl_shows_whether_a_group_is_healthy_and_why(region: Kubectl, namespace: str) -> None:
    groups = f"{API}/namespaces/{namespace}/syncgroups"
    created = create(region, groups, minimal_group())
    put_status(region, f"{groups}/grpo", created, group_status())
    header, row = region.kubectl("get", "sg", "-n", namespace).stdout.splitlines()
    assert header.split() == ["NAME", "READY", "REASON", "ROLLOUTS", "VERSION", "LAG", "SYNC-MS", "AGE"]
    assert row.split()[:-1] == ["grpo", "False", "RolloutsNotReady", "3/4", "128", "2", "5600"]
    # A category of the same name as the kind must not get in the way of naming one object.
    wide = region.kubectl("get", "syncgroup", "grpo", "-n", namespace, "-o", "wide").stdout
    assert "TRAINER" in wide
    assert "member grpo-west-1" in wide


def test_kubectl_shows_whether_a_cluster_is_connected(region: Kubectl) -> None:
    created = create(region, f"{API}/syncclusters", minimal_cluster())
    try:
        written = SyncClusterStatus.parse(cluster_status()).to_document()
        status, answer = put_status(region, f"{API}/syncclusters/frankfurt", created, written)
        assert (status, answer.get("status")) == (200, written)
        header, row = region.kubectl("get", "sgc").stdout.splitlines()
        assert header.split() == ["NAME", "CONNECTED", "REASON", "REGION", "VERSION", "AGE"]
        assert row.split()[:-1] == ["frankfurt", "False", "Unreachable", "eu-central-1", "v1.37.1"]
    finally:
        region.api("DELETE", f"{API}/syncclusters/frankfurt")
