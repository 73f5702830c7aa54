"""A member's lease on a real API server, with no more rights than a member needs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.api import ClusterApi
from sync_runtime.membership.documents import LeaseName, LeaseTimes, SeenLease, pod_owner, read_lease
from sync_runtime.membership.errors import MembershipError
from sync_runtime.membership.keeper import LeaseKeeper
from sync_runtime.membership.lease import KubernetesLease
from tests.unit.membership.reports import report
from tools.devcluster.api import ApiClient, wait_until
from tools.devcluster.client import Cluster, RegionHandle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
NOW = datetime.datetime(2027, 1, 31, 12, 0, 0, tzinfo=datetime.UTC)  # a round second: the server wants all six digits
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "worker-0"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


@dataclasses.dataclass
class Place:
    """A namespace in which a member may renew its lease."""

    region: RegionHandle
    namespace: str
    kubeconfig: Path

    @property
    def path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    def lease(self, holder: str, **further: Any) -> KubernetesLease:
        name = LeaseName("worker-0", holder, self.namespace, **further)
        return KubernetesLease(name, ClusterApi(kubeconfig=self.kubeconfig))

    def document(self) -> dict[str, Any]:
        status, document = self.region.api("GET", f"{self.path}/worker-0")
        assert status == 200, document
        return document

    def seen(self) -> SeenLease:
        return read_lease(json.dumps(self.document()))


@pytest.fixture
def place(region: RegionHandle, namespace: str) -> Iterator[Place]:
    region.kubectl("create", "serviceaccount", "member", "-n", namespace)
    verbs = "--verb=get,create,update,patch"
    region.kubectl("create", "role", "member", verbs, "--resource=leases", "-n", namespace)
    account = f"--serviceaccount={namespace}:member"
    region.kubectl("create", "rolebinding", "member", "--role=member", account, "-n", namespace)
    path = region.kubeconfig.parent / f"{namespace}-member"
    path.write_text(region.service_account_kubeconfig(namespace, "member"))
    made = Place(region, namespace, path)
    client = ApiClient(path)
    wait_until(lambda: client.request("GET", f"{made.path}/worker-0")[0] == 404, "the role", 30)
    client.close()
    yield made
    path.unlink()


async def renewed(lease: KubernetesLease, *reports: MemberReport, seconds: int = 0) -> None:
    """Renew once per report, five seconds apart."""
    for at, one in enumerate(reports):
        await lease.renew(one, 15, NOW + datetime.timedelta(seconds=seconds + 5 * at))


async def once(lease: KubernetesLease, *reports: MemberReport) -> None:
    try:
        await renewed(lease, *reports)
    finally:
        await lease.close()


def test_a_lease_is_created_and_renewed_with_its_report(place: Place) -> None:
    labels = {"syncgroup.dev/group": "demo"}
    asyncio.run(once(place.lease("pod-1", labels=labels), report()))
    assert place.document()["metadata"]["labels"] == labels
    assert place.seen().renew_time == "2027-01-31T12:00:00.000000Z"
    lease = place.lease("pod-1", labels=labels)
    asyncio.run(once(lease, report(), report(state="Draining")))
    seen = place.seen()
    assert (seen.holder, seen.renew_time) == ("pod-1", "2027-01-31T12:00:05.000000Z")
    assert (seen.report.state, seen.duration_s, seen.transitions) == ("Draining", 15, 0)


def test_a_deleted_lease_is_made_again(place: Place) -> None:
    async def scenario() -> None:
        lease = place.lease("pod-1")
        await renewed(lease, report())
        place.region.kubectl("delete", "lease", "worker-0", "-n", place.namespace)
        await once(lease, report())

    asyncio.run(scenario())
    assert place.seen().holder == "pod-1"


def test_a_lease_that_others_annotate_is_still_renewed(place: Place) -> None:
    async def scenario() -> None:
        lease = place.lease("pod-1")
        await renewed(lease, report())
        place.region.kubectl("label", "lease", "worker-0", "seen=yes", "-n", place.namespace)
        await renewed(lease, report(state="Draining"), seconds=5)
        await lease.close()

    asyncio.run(scenario())
    assert place.seen().report.state == "Draining"


def test_a_successor_takes_over_and_keeps_it(place: Place) -> None:
    async def scenario() -> None:
        old, new = place.lease("pod-1"), place.lease("pod-2")
        await renewed(old, report(), report())
        await renewed(new, report())
        for _ in range(2):
            with pytest.raises(MembershipError, match="successor"):
                await renewed(old, report(state="Draining"), seconds=10)
        await renewed(new, report(), seconds=15)
        await old.close()
        await new.close()

    asyncio.run(scenario())
    seen = place.seen()
    assert (seen.holder, seen.transitions, seen.report.state) == ("pod-2", 1, "Serving")


def test_the_lease_goes_with_its_pod(place: Place) -> None:
    status, pod = place.region.api("POST", f"/api/v1/namespaces/{place.namespace}/pods", POD)
    assert status == 201, pod
    owner = pod_owner("worker-0", pod["metadata"]["uid"])
    asyncio.run(once(place.lease(pod["metadata"]["uid"], owner=owner), report()))
    place.document()
    place.region.kubectl("delete", "pod", "worker-0", "-n", place.namespace, "--grace-period=0", "--force")
    wait_until(lambda: place.region.api("GET", f"{place.path}/worker-0")[0] == 404, "the lease's removal", 60)


def test_without_rights_the_answer_is_a_sentence(place: Place) -> None:
    place.region.kubectl("delete", "rolebinding", "member", "-n", place.namespace)

    def answer() -> str:
        try:
            asyncio.run(once(place.lease("pod-1"), report()))
        except MembershipError as error:
            return str(error)
        return ""

    # The authoriser learns of it a moment later.
    wait_until(lambda: "refused the lease (403)" in answer(), "the role's end", 10)


def test_a_pod_finds_its_api_server_by_itself(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = json.loads(place.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    (tmp_path / "ca.crt").write_bytes(authority)
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    lease = KubernetesLease(LeaseName("worker-0", "pod-1", place.namespace), ClusterApi(token_dir=tmp_path))
    asyncio.run(once(lease, report(), report()))
    assert place.seen().holder == "pod-1"


def test_outside_a_pod_the_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(MembershipError, match="cannot be used"):
        asyncio.run(once(KubernetesLease(LeaseName("worker-0", "pod-1", "default"), ClusterApi()), report()))


def test_an_api_server_that_is_away_stops_nothing_and_is_renewed_when_it_is_back(planes: Cluster) -> None:
    region = planes.regions["eu-west"]
    lease = KubernetesLease(LeaseName("worker-0", "pod-1", "default"), ClusterApi(kubeconfig=region.kubeconfig))
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.01)

    async def scenario() -> None:
        keeper = LeaseKeeper(lease, report, lambda: LeaseTimes(5, 1), timeout_s=2)
        tasks = [asyncio.create_task(keeper.run()), asyncio.create_task(heart())]
        await _until(lambda: keeper.renewals >= 2)
        await asyncio.to_thread(planes.kill, region.name, "apiserver")
        await _until(lambda: keeper.failures >= 2)
        assert "away" in str(keeper.problem)
        before = beats
        await asyncio.sleep(0.5)
        assert beats - before > 10
        renewals = keeper.renewals
        await asyncio.to_thread(planes.restart, region.name, "apiserver")
        await _until(lambda: keeper.renewals > renewals)
        assert not tasks[0].done()
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(scenario())


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 what is waited for is a figure, not an event
            await asyncio.sleep(0.05)
