"""The operator's client against a real API server, and against one that fails by rule."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.config import incluster_config

from sync_runtime.contract import names
from syncgroup_operator import errors
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import Access, InCluster, KubeconfigFile, from_kubeconfig
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.connection import RENEW_EVERY_S
from syncgroup_operator.kube.limits import ClientLimits
from tests.support.apiproxy import ApiProxy, Rule
from tools.devcluster.client import RegionHandle

pytestmark = pytest.mark.cluster
FAST = ClientLimits(requests_per_s=10_000, burst=10_000, in_flight=8)
Scenario = Callable[[Cluster], Awaitable[Any]]


def run(access: Access | str, scenario: Scenario, limits: ClientLimits = FAST) -> Any:
    """Give a scenario a client, and close it."""

    async def whole() -> Any:
        cluster = Cluster("eu", from_kubeconfig(access) if isinstance(access, str) else access, limits)
        try:
            return await scenario(cluster)
        finally:
            await cluster.close()
            await asyncio.sleep(0.1)  # a TLS connection says goodbye after its session is closed

    return asyncio.run(whole())


def config_map(namespace: str, name: str = "a", **data: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": {"app": "x"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def admin(region: RegionHandle) -> str:
    return region.kubeconfig.read_text()


@pytest.fixture
def proxy(region: RegionHandle) -> Iterator[ApiProxy]:
    with ApiProxy(region.kubeconfig) as started:
        yield started


# --- verbs ------------------------------------------------------------------------------------------------------------


def test_an_object_lives_through_every_verb(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(config_map(namespace, one="1"))
        assert (await cluster.get(kinds.CONFIG_MAP, namespace, "a"))["data"] == {"one": "1"}
        made["data"] = {"two": "2"}
        swapped = await cluster.replace(made)
        patched = await cluster.merge_patch(kinds.CONFIG_MAP, namespace, "a", {"data": {"three": "3"}})
        assert patched["data"] == {"two": "2", "three": "3"}
        assert patched["metadata"]["uid"] == swapped["metadata"]["uid"]
        await cluster.delete(kinds.CONFIG_MAP, namespace, "a", uid=made["metadata"]["uid"])
        with pytest.raises(errors.NotFoundError):
            await cluster.get(kinds.CONFIG_MAP, namespace, "a")
        assert (await cluster.version())["major"] == "1"
        await cluster.healthz()
        assert await cluster.has_api("coordination.k8s.io/v1")
        assert not await cluster.has_api("coordination.k8s.io/v7")
        assert cluster.requests["get", "ConfigMap", 200] == 1
        assert cluster.requests["get", "ConfigMap", 404] == 1

    run(admin, scenario)


def test_two_equal_applies_are_one(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.apply(config_map(namespace, one="1"))
        second = await cluster.apply(config_map(namespace, one="1"))
        assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        assert {entry["manager"] for entry in second["metadata"]["managedFields"]} == {names.FIELD_MANAGER}
        # What we no longer say goes, what others say stays.
        await cluster.merge_patch(kinds.CONFIG_MAP, namespace, "a", {"data": {"theirs": "x"}}, manager="user")
        assert (await cluster.apply(config_map(namespace, two="2")))["data"] == {"two": "2", "theirs": "x"}

    run(admin, scenario)


def test_a_field_of_somebody_else_is_taken_only_by_force(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(config_map(namespace, one="1"), manager="user")
        with pytest.raises(errors.ConflictError, match="conflict"):
            await cluster.apply(config_map(namespace, one="2"), force=False)
        assert (await cluster.apply(config_map(namespace, one="2")))["data"] == {"one": "2"}

    run(admin, scenario)


def test_the_slower_of_two_swaps_is_refused(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(config_map(namespace))
        outcomes = await asyncio.gather(
            *(cluster.replace(made | {"data": {"by": str(n)}}) for n in range(5)), return_exceptions=True
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ConflictError"] * 4 + ["dict"]
        del made["metadata"]["resourceVersion"]
        with pytest.raises(errors.RefusedError, match="resourceVersion"):
            await cluster.replace(made)

    run(admin, scenario)


def test_a_namesake_is_not_deleted(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(config_map(namespace))
        with pytest.raises(errors.ConflictError, match="UID"):
            await cluster.delete(kinds.CONFIG_MAP, namespace, "a", uid="0000")
        with pytest.raises(errors.ConflictError):
            await cluster.delete(kinds.CONFIG_MAP, namespace, "a", uid=made["metadata"]["uid"], resource_version="1")
        with pytest.raises(errors.RefusedError, match="needs its uid"):
            await cluster.delete(kinds.CONFIG_MAP, namespace, "a", uid="")
        await cluster.get(kinds.CONFIG_MAP, namespace, "a")

    run(admin, scenario)


def test_a_pod_is_deleted_without_grace(admin: str, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "p", "finalizers": []},
        "spec": {"containers": [{"name": "c", "image": "x"}], "nodeName": "away"},
    }

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(pod)
        await cluster.delete(kinds.POD, namespace, "p", uid=made["metadata"]["uid"], grace_s=0)
        with pytest.raises(errors.NotFoundError):
            await cluster.get(kinds.POD, namespace, "p")

    run(admin, scenario)


@pytest.mark.usefixtures("crds")
def test_status_is_written_by_its_own_manager(admin: str) -> None:
    document: dict[str, Any] = {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.SYNCCLUSTER_KIND,
        "metadata": {"name": "status-test"},
        "spec": {
            "kubeconfigSecretRef": {"name": "s"},
            "region": "eu",
            "allowedNamespaces": [{"local": "a", "remote": "b"}],
        },
    }

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.apply(document)
        answer = await cluster.patch_status(
            {key: document[key] for key in ("apiVersion", "kind", "metadata")} | {"status": {"observedGeneration": 1}}
        )
        assert answer["status"]["observedGeneration"] == 1
        managers = {entry["manager"]: entry.get("subresource") for entry in answer["metadata"]["managedFields"]}
        assert managers == {names.FIELD_MANAGER: None, names.STATUS_FIELD_MANAGER: "status"}
        await cluster.delete(kinds.SYNC_CLUSTER, "", "status-test", uid=made["metadata"]["uid"])

    run(admin, scenario)


def test_a_list_of_many_comes_in_pages_and_survives_a_410_in_between(proxy: ApiProxy, namespace: str) -> None:
    limits = ClientLimits(requests_per_s=10_000, burst=10_000, in_flight=16, page_size=250)
    gone = proxy.add(Rule(path="configmaps.*continue=", status=410, skip=2))

    async def scenario(cluster: Cluster) -> None:
        await asyncio.gather(*(cluster.create(config_map(namespace, f"m-{n:04}")) for n in range(1200)))
        listed = await cluster.list_all(kinds.CONFIG_MAP, namespace, label_selector="app=x")
        assert gone.hits == 1
        assert sorted(item["metadata"]["name"] for item in listed) == [f"m-{n:04}" for n in range(1200)]
        assert {(item["kind"], item["apiVersion"]) for item in listed} == {("ConfigMap", "v1")}
        firsts = [page.first async for page in cluster.pages(kinds.CONFIG_MAP, namespace, label_selector="app=x")]
        assert firsts == [True, False, False, False, False]
        # A server that forgets every list is an error, not a loop.
        proxy.add(Rule(path="configmaps.*continue=", status=410, times=None))
        with pytest.raises(errors.GoneError):
            await cluster.list_all(kinds.CONFIG_MAP, namespace, label_selector="app=x")

    run(proxy.kubeconfig(), scenario, limits)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_the_real_servers_refusals_have_their_errors(admin: str, namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(config_map(namespace))
        with pytest.raises(errors.ConflictError, match="already exists"):
            await cluster.create(config_map(namespace))
        with pytest.raises(errors.RefusedError, match="Invalid value") as refused:
            await cluster.create(config_map(namespace, "Not A Name"))
        assert (refused.value.status, refused.value.cluster, refused.value.retry) == (422, "eu", False)
        with pytest.raises(errors.RefusedError) as malformed:
            await cluster.create(config_map(namespace, "b") | {"data": 3})
        assert malformed.value.status == 400
        with pytest.raises(errors.NotFoundError):
            await cluster.create(config_map("no-such-namespace"))

    run(admin, scenario)


def test_a_role_that_does_not_allow_it_and_a_wrong_token_are_denials(
    region: RegionHandle, admin: str, namespace: str
) -> None:
    region.kubectl("create", "serviceaccount", "nobody", "-n", namespace)

    async def scenario(cluster: Cluster) -> int:
        with pytest.raises(errors.DeniedError) as denied:
            await cluster.list_all(kinds.SECRET, namespace)
        return denied.value.status

    assert run(region.service_account_kubeconfig(namespace, "nobody"), scenario) == 403
    document = json.loads(admin)
    document["users"][0]["user"] = {"token": "wrong"}
    assert run(json.dumps(document), scenario) == 401


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(status=409), errors.ConflictError),
        (Rule(status=410), errors.GoneError),
        (Rule(status=429, retry_after="2"), errors.ThrottledError),
        (Rule(status=500), errors.ApiError),
        (Rule(status=503), errors.ApiError),
        (Rule(status=302, location="https://127.0.0.1:1/"), errors.UnreachableError),
        (Rule(drop=True), errors.UnreachableError),
        (Rule(freeze=True), errors.UnreachableError),
        (Rule(delay_s=5.0), errors.UnreachableError),
    ],
    ids=["409", "410", "429", "500", "503", "redirect", "drop", "freeze", "late"],
)
def test_every_injected_fault_has_its_error(proxy: ApiProxy, rule: Rule, expected: type[errors.ApiError]) -> None:
    rule.times = None

    async def scenario(cluster: Cluster) -> errors.ApiError:
        with pytest.raises(errors.ApiError) as caught:
            await cluster.get(kinds.NAMESPACE, "", "default")
        return caught.value

    proxy.add(rule)
    error = run(proxy.kubeconfig(), scenario, ClientLimits(request_timeout_s=1.0))
    assert type(error) is expected
    assert error.retry
    assert error.retry_after_s == (2.0 if rule.status == 429 else None)
    rule.times = 0
    run(proxy.kubeconfig(), lambda cluster: cluster.get(kinds.NAMESPACE, "", "default"))


def test_a_server_that_is_away_is_unreachable(proxy: ApiProxy) -> None:
    proxy.refuse()

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(errors.UnreachableError, match="no answer"):
            await cluster.version()
        assert cluster.requests["get", "version", 0] == 1
        proxy.accept()
        await cluster.version()

    run(proxy.kubeconfig(), scenario)


def test_an_answer_without_end_is_cut(proxy: ApiProxy) -> None:
    proxy.add(Rule(status=200, body={"data": "x" * 200_000}))

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(errors.RefusedError, match="more than 100000 bytes"):
            await cluster.version()

    run(proxy.kubeconfig(), scenario, ClientLimits(max_answer_bytes=100_000))


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_rate_limit_holds(proxy: ApiProxy) -> None:
    async def scenario(cluster: Cluster) -> float:
        begun_s = time.monotonic()
        await asyncio.gather(*(cluster.version() for _ in range(25)))
        return time.monotonic() - begun_s

    took_s = run(proxy.kubeconfig(), scenario, ClientLimits(requests_per_s=20, burst=5))
    assert took_s >= 0.95
    assert len(proxy.requests) == 25


def test_no_more_than_the_limit_are_in_flight(proxy: ApiProxy) -> None:
    proxy.add(Rule(delay_s=0.3, times=None))

    async def scenario(cluster: Cluster) -> float:
        begun_s = time.monotonic()
        await asyncio.gather(*(cluster.version() for _ in range(6)))
        return time.monotonic() - begun_s

    assert run(proxy.kubeconfig(), scenario, ClientLimits(in_flight=2)) >= 0.9


def test_a_server_that_asks_for_a_pause_gets_it(proxy: ApiProxy) -> None:
    proxy.add(Rule(status=429, retry_after="1"))

    async def scenario(cluster: Cluster) -> float:
        with pytest.raises(errors.ThrottledError):
            await cluster.version()
        begun_s = time.monotonic()
        await cluster.version()
        return time.monotonic() - begun_s

    assert run(proxy.kubeconfig(), scenario) >= 0.9


# --- who we are -------------------------------------------------------------------------------------------------------


def test_a_kubeconfig_by_its_path_works(region: RegionHandle) -> None:
    assert run(KubeconfigFile(region.kubeconfig), lambda cluster: cluster.version())["major"] == "1"


def test_a_pods_renewed_token_is_used(
    region: RegionHandle, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region.kubectl("create", "serviceaccount", "operator", "-n", namespace)
    config = json.loads(region.service_account_kubeconfig(namespace, "operator"))
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    (tmp_path / "token").write_text("expired")
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))

    async def status(cluster: Cluster) -> int:
        with pytest.raises(errors.DeniedError) as denied:
            await cluster.list_all(kinds.SECRET, namespace)
        return denied.value.status

    async def scenario() -> list[int]:
        now_s = time.monotonic()
        cluster = Cluster("eu", InCluster(), FAST, clock_s=lambda: now_s)
        seen = [await status(cluster)]
        (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
        seen.append(await status(cluster))
        now_s += RENEW_EVERY_S  # not read again at each refusal
        seen += [await status(cluster), await status(cluster)]
        await cluster.close()
        return seen

    assert asyncio.run(scenario()) == [401, 401, 401, 403]
