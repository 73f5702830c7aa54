"""Sidecars as they run in pods, against a real API server: they start with nothing, get plan and certificate, sync over
mutual TLS, renew, and go on when the API server is away. A test plays the operator with the operator's own code."""

from __future__ import annotations

import dataclasses
import datetime
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SidecarLostError, SyncError
from tests.support.deaths import VARIABLE
from tests.support.following import follow
from tests.support.groups import wait_for
from tests.support.models import nudge, same_bits, small_model
from tests.support.pod_group import REQUESTS, TRAINER, WORKER, PodGroup, Seat
from tools.devcluster.api import ApiClient
from tools.devcluster.client import Cluster, RegionHandle
from tools.devcluster.kubeconfig import with_token

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
START_S = 30.0


def _group(region: RegionHandle, namespace: str, folder: Path) -> PodGroup:
    return PodGroup(region, namespace, folder, str(uuid.uuid4()))


@pytest.fixture
def group(region: RegionHandle, namespace: str, tmp_path: Path) -> Iterator[PodGroup]:
    with _group(region, namespace, tmp_path) as made:
        yield made


def waits_for(group: PodGroup, seat: Seat) -> str:
    """What keeps a sidecar from being ready."""
    return "; ".join(group.ask(seat, "/readyz")["reasons"])


def wait_whole(group: PodGroup, *seats: Seat) -> None:
    """Until sidecars have plan and certificate: then they serve a library."""
    for seat in seats:
        wait_for(lambda seat=seat: "open" in waits_for(group, seat) or not waits_for(group, seat), START_S,
                 what=f"a whole sidecar of {seat.name}")  # fmt: skip


def report(group: PodGroup, seat: Seat) -> dict[str, Any]:
    return dict(group.ask(seat, "/v1/status")["report"])


def test_members_start_with_nothing_and_become_whole(group: PodGroup) -> None:
    group.policy = dataclasses.replace(group.policy, member_lifetime=datetime.timedelta(seconds=30))
    trainer, worker = group.seat(TRAINER, term=3), group.seat(WORKER)
    for seat in (trainer, worker):
        group.start(seat)
        assert group.ask(seat, "/livez") == {"ok": True, "reasons": []}
        wait_for(lambda seat=seat: "does not exist yet" in waits_for(group, seat), what="the wait for a plan")
        assert "certificate" in waits_for(group, seat)
    seen = wait_for(lambda: group.lease(worker), what="a first report")
    assert seen.holder == worker.pod.uid
    assert (seen.report.state, seen.report.trouble.reason) == ("Starting", "NoPlan")
    group.write_plan(term=3, revision=1)
    wait_for(lambda: "plan" not in waits_for(group, worker), what="the plan")
    assert "certificate" in waits_for(group, worker)
    group.start_signing()
    wait_whole(group, trainer, worker)
    assert report(group, trainer)["term"] == 3

    trained, member = small_model(), small_model()
    with Publisher(trained, socket=group.socket(trainer)) as publisher:
        with Subscriber(member, socket=group.socket(worker)) as subscriber:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
            assert same_bits(trained, member)
            assert waits_for(group, worker) == ""
            _renewed(group, trainer, worker)
            nudge(trained, 1)
            follow(subscriber, publisher.publish().seq)
            assert same_bits(trained, member)
            group.write_plan(term=3, revision=2)
            for seat in (trainer, worker):
                wait_for(lambda seat=seat: report(group, seat)["planRevision"] == 2, what="the new plan")
            labels = group.labels(worker)
            assert labels["syncgroup.dev/index"] == "0", "the operator finds a lease by its labels"
    assert "Traceback" not in group.log(trainer) + group.log(worker)


def _renewed(group: PodGroup, *seats: Seat) -> None:
    ends = {seat.name: report(group, seat)["certificateExpiryTime"] for seat in seats}
    for seat in seats:
        wait_for(lambda seat=seat: report(group, seat)["certificateExpiryTime"] > ends[seat.name], 40,
                 what=f"a new certificate of {seat.name}")  # fmt: skip


def test_a_denied_request_is_told_and_asked_again(group: PodGroup) -> None:
    trainer, worker = group.seat(TRAINER, term=1), group.seat(WORKER)
    assert trainer.term == 1
    group.write_plan(term=1, revision=1)
    group.lying = True
    group.start_signing()
    group.start(worker)
    wait_for(lambda: "WrongIdentity" in waits_for(group, worker), START_S, what="the denial")
    denied = wait_for(lambda: _trouble(group, worker) == "CertificateDenied", START_S, what="the denial in the report")
    assert denied
    assert group.end(worker.name) == 0, "a sidecar that waits ends politely"
    group.start(worker)
    wait_for(lambda: len(group.requests()) >= 2, START_S, what="a second request")
    group.lying = False
    wait_whole(group, worker)
    wait_for(lambda: _trouble(group, worker) is None, START_S, what="a report without trouble")
    assert len({one["metadata"]["name"] for one in group.requests()}) >= 2
    assert group.end(worker.name) == 0


def _trouble(group: PodGroup, seat: Seat) -> str | None:
    seen = group.lease(seat)
    return None if seen is None or seen.report.trouble is None else seen.report.trouble.reason


def test_a_trainers_term_is_its_pods(group: PodGroup) -> None:
    trainer = group.seat(TRAINER, term=5)
    group.write_plan(term=5, revision=1)
    group.start_signing()
    group.start(trainer)
    wait_whole(group, trainer)
    before = group.ask(trainer, "/v1/status")
    assert before["report"]["term"] == 5
    group.end(trainer.name, signal.SIGKILL)
    group.start(trainer)
    wait_whole(group, trainer)
    after = group.ask(trainer, "/v1/status")
    assert (after["report"]["term"], after["incarnation"]) == (5, before["incarnation"])
    group.write_plan(term=6, revision=2)
    for _ in range(2):  # also after a restart: it must not take the other trainer's term
        wait_for(lambda: "another trainer" in waits_for(group, trainer), START_S, what="the other trainer")
        status = group.ask(trainer, "/v1/status")
        assert (status["report"]["term"], status["incarnation"]) == (6, before["incarnation"])
        with Publisher(small_model(), socket=group.socket(trainer)) as publisher:
            with pytest.raises(SyncError, match="another trainer leads the group"):
                publisher.publish()
        group.end(trainer.name, signal.SIGKILL)
        group.start(trainer)
        wait_for(lambda: "report" in group.ask(trainer, "/v1/status"), what="an answer")


@pytest.mark.parametrize("stage", ["ObjectWriter._keep_one:after:1", "ObjectWriter.commit:before:1"])
def test_a_trainers_sidecar_that_dies_in_a_version_goes_on_under_its_term(group: PodGroup, stage: str) -> None:
    """Members may hold buckets of the version that never came to be; the next one has the same key."""
    trainer, worker = group.seat(TRAINER, term=2), group.seat(WORKER)
    group.write_plan(term=2, revision=1)
    group.start_signing()
    group.start(trainer, **{VARIABLE: f"sync_runtime.bucket.writer:{stage}"})
    group.start(worker)
    wait_whole(group, trainer, worker)
    trained, member = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket(trainer), patience=30)
    with Subscriber(member, socket=group.socket(worker)) as subscriber:
        nudge(trained, 0)
        with pytest.raises(SidecarLostError):
            publisher.publish()
        assert group.wait(trainer) == -signal.SIGKILL
        group.start(trainer)
        nudge(trained, 1)
        follow(subscriber, publisher.publish().seq)
        assert same_bits(trained, member)
        assert report(group, worker)["term"] == 2
    publisher.close()


def test_nothing_stops_while_the_api_server_is_away(planes: Cluster, tmp_path: Path) -> None:
    region = planes.regions["eu-west"]
    namespace = "test-away"
    region.kubectl("create", "namespace", namespace)
    with _group(region, namespace, tmp_path) as group:
        trainer, worker = group.seat(TRAINER, term=1), group.seat(WORKER)
        group.write_plan(term=1, revision=1)
        group.start_signing()
        group.start(trainer)
        group.start(worker)
        wait_whole(group, trainer, worker)
        trained, member = small_model(), small_model()
        with Publisher(trained, socket=group.socket(trainer)) as publisher:
            with Subscriber(member, socket=group.socket(worker)) as subscriber:
                nudge(trained, 0)
                follow(subscriber, publisher.publish().seq)
                planes.kill(region.name, "apiserver")
                nudge(trained, 1)
                follow(subscriber, publisher.publish().seq)
                group.end(worker.name, signal.SIGKILL)
                group.start(worker)  # what it had is enough: plan and certificate lie in its folders
                nudge(trained, 2)
                follow(subscriber, publisher.publish().seq, 60)
                assert same_bits(trained, member)
                planes.restart(region.name, "apiserver")
                wait_for(lambda: _writes(group), 60, what="an API server that takes a plan")
                for seat in (trainer, worker):
                    wait_for(lambda seat=seat: report(group, seat)["planRevision"] == 2, 90, what="the new plan")
                    assert group.ask(seat, "/v1/status")["lease"]["renewals"] > 0
                nudge(trained, 3)
                follow(subscriber, publisher.publish().seq)
    region.kubectl("delete", "namespace", namespace, "--wait=false")


def _writes(group: PodGroup) -> bool:
    try:
        group.write_plan(term=1, revision=2)
    except (OSError, AssertionError):
        return False
    return True


def test_a_members_token_opens_nothing_else(group: PodGroup, tmp_path: Path) -> None:
    trainer, worker = group.seat(TRAINER, term=1), group.seat(WORKER)
    group.write_plan(term=1, revision=1)
    server = f"https://{group.environment(worker)['KUBERNETES_SERVICE_HOST']}:" + str(
        group.environment(worker)["KUBERNETES_SERVICE_PORT"]
    )
    pki = group.region.kubeconfig.parent / "pki"
    path = tmp_path / "kubeconfig"
    path.write_text(with_token(pki, name="member", server=server, token=group.token(worker)))
    client = ApiClient(path)
    space = f"/api/v1/namespaces/{group.namespace}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{group.namespace}/leases"
    named = f"{space}/configmaps?fieldSelector=metadata.name={group.plan_name}"
    wait_for(lambda: client.request("GET", named)[0] == 200, what="the role")
    assert client.request("GET", f"{leases}/{trainer.name}")[0] == 200
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}}
    forbidden = [
        ("GET", f"{leases}/another", None),
        ("GET", leases, None),
        ("POST", leases, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "another"}}),
        ("DELETE", f"{leases}/{worker.name}", None),
        ("GET", f"{space}/configmaps", None),
        ("GET", f"{space}/configmaps/another", None),
        ("PUT", f"{space}/configmaps/{group.plan_name}", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("GET", f"{space}/secrets", None),
        ("GET", f"{space}/pods", None),
        ("GET", f"{space}/pods/{worker.name}", None),
        ("POST", f"{space}/pods", pod),
        ("POST", f"{space}/serviceaccounts/member/token", {"apiVersion": "authentication.k8s.io/v1"}),
        ("GET", REQUESTS, None),
        ("GET", "/api/v1/nodes", None),
    ]
    allowed = [(method, what) for method, what, body in forbidden if client.request(method, what, body)[0] != 403]
    client.close()
    assert allowed == []
