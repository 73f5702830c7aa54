"""The cache over all watches of a cluster: what a group's pass sees, who is woken, and when it can be trusted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from syncgroup_operator import reasons
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.cache import CacheView, ClusterCache
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.kube.store import Why
from syncgroup_operator.kube.watch import Change, WatchTimes
from syncgroup_operator.planning.observation import ObjectKey, Place, Slot
from tests.support.apiproxy import ApiProxy
from tests.unit.membership.reports import report
from tools.devcluster.client import RegionHandle

pytestmark = pytest.mark.cluster
GROUP = GroupKey("team", "demo")
FAST = ClientLimits(requests_per_s=10_000, burst=10_000)
TIMES = WatchTimes(answer_timeout_s=3.0, first_pause_s=0.1, longest_pause_s=0.5, denied_pause_s=0.5)
RENEWED = "2027-01-31T12:00:{:02}.000000Z"


@dataclass
class Seen:
    """A cache, its client and whom it woke."""

    cluster: Cluster
    namespace: str
    uid: str
    wakes: list[tuple[str, Why]] = field(default_factory=list)
    cache: ClusterCache = field(init=False)

    @property
    def view(self) -> CacheView:
        return self.cache.view(self.uid, self.namespace)

    def labels(self, index: int = 0) -> dict[str, str]:
        return names.member_labels(GROUP, self.uid, role="west", index=index, cluster="eu", region="eu-west")

    def metadata(self, name: str, **more: Any) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": name, "labels": self.labels()} | more

    def pod(self) -> dict[str, Any]:
        annotations = {names.ANNOTATION_TEMPLATE_HASH: "abc"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.metadata(names.member_name(GROUP, "west", 0), annotations=annotations),
            # A node that is not there: no kubelet reports on the pod, so its status stays as it is.
            "spec": {"containers": [{"name": "c", "image": "x"}], "nodeName": "nowhere"},
        }

    def lease(self, second: int = 0, **changes: Any) -> dict[str, Any]:
        annotations = {names.ANNOTATION_REPORT: report(**changes).to_json()}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self.metadata(names.lease_name(GROUP, "west", 0), annotations=annotations),
            "spec": {"holderIdentity": "p", "renewTime": RENEWED.format(second), "leaseDurationSeconds": 30},
        }

    def woken(self) -> set[Why]:
        """Since the last call."""
        found = {why for uid, why in self.wakes if uid == self.uid}
        self.wakes.clear()
        return found


@contextlib.asynccontextmanager
async def seeing(kubeconfig: str, namespace: str, **options: Any) -> AsyncIterator[Seen]:
    seen = Seen(Cluster("eu", from_kubeconfig(kubeconfig), FAST), namespace, f"uid-{namespace}")
    seen.cache = ClusterCache(
        seen.cluster, lambda uid, why: seen.wakes.append((uid, why)), **({"times": TIMES} | options)
    )
    seen.cache.start()
    try:
        yield seen
    finally:
        await seen.cache.close()
        await seen.cluster.close()


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 what is waited for is a figure, not an event
            await asyncio.sleep(0.02)


@pytest.fixture
def proxy(region: RegionHandle) -> Iterator[ApiProxy]:
    with ApiProxy(region.kubeconfig) as started:
        yield started


def streams(proxy: ApiProxy, namespace: str = "") -> int:
    """How often a watch of leases was opened."""
    where = f"namespaces/{namespace}/leases" if namespace else "leases"
    return sum(where in path and "watch=" in path for _, path in proxy.requests)


def test_a_group_is_seen_whole_and_woken_for_what_matters(region: RegionHandle, namespace: str) -> None:
    async def scenario() -> None:
        async with seeing(region.kubeconfig.read_text(), namespace) as seen:
            await until(lambda: seen.view.connected_s is not None)
            assert seen.view.nodes
            assert seen.view.problem is None
            await seen.cluster.apply(seen.pod())
            await until(lambda: seen.view.pods)
            await until(lambda: Why.POD in seen.woken())
            (pod,) = seen.view.pods
            assert (pod.slot, pod.place, pod.template_hash) == (Slot("west", 0), Place("eu", "eu-west"), "abc")
            assert pod.labels_ours
            plan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": seen.metadata("plan"), "data": {"a": "1"}}
            await seen.cluster.apply(plan)
            key = ObjectKey("ConfigMap", namespace, "plan")
            await until(lambda: key in seen.view.children)
            assert b"managedFields" not in seen.view.children[key].body
            assert seen.woken() == {Why.CHILD}
            assert seen.cache.group_uids() >= {seen.uid}
            assert seen.cache.view(seen.uid, "elsewhere").pods == ()
            # Somebody edits a label that is not in the name: the server knows who wrote it.
            region.kubectl("label", "pod", pod.name, "-n", namespace, "--overwrite", f"{names.LABEL_REGION}=mars")
            await until(lambda: not seen.view.pods[0].labels_ours)
            await seen.cluster.apply(seen.pod())
            await until(lambda: seen.view.pods[0].labels_ours)
            await seen.cluster.delete(kinds.POD, namespace, pod.name, uid=pod.uid, grace_s=0)
            await until(lambda: not seen.view.pods)

    asyncio.run(scenario())


def test_a_renewal_with_the_same_report_wakes_nobody(region: RegionHandle, namespace: str) -> None:
    async def scenario() -> None:
        async with seeing(region.kubeconfig.read_text(), namespace) as seen:
            await until(lambda: seen.view.connected_s is not None)
            made = await seen.cluster.create(seen.lease())
            await until(lambda: seen.view.leases)
            assert seen.woken() == {Why.LEASE}
            first = seen.view.leases[0]
            assert first.report is not None
            assert (first.report.state, first.uid) == ("Serving", made["metadata"]["uid"])
            await seen.cluster.apply(seen.lease(5))
            await until(lambda: seen.view.leases[0].renew_time == RENEWED.format(5))
            assert seen.view.leases[0].changed_s > first.changed_s
            assert seen.view.leases[0].report is first.report
            assert seen.woken() == set()
            await seen.cluster.apply(seen.lease(10, state="Draining"))
            await until(lambda: seen.view.leases[0].renew_time == RENEWED.format(10))
            assert seen.woken() == {Why.REPORT}

    asyncio.run(scenario())


def test_a_cut_link_is_noticed_long_before_a_lease_runs_out(proxy: ApiProxy, namespace: str) -> None:
    async def scenario() -> None:
        async with seeing(proxy.kubeconfig(), namespace, doubt_after_s=1.5, namespaces=[namespace, "default"]) as seen:
            await seen.cluster.create(seen.lease())
            await until(lambda: seen.view.leases and seen.view.connected_s is not None)
            before = seen.view
            await asyncio.sleep(4.0)  # nothing happens, and that is no cause for alarm
            assert seen.view.connected_s == before.connected_s
            assert streams(proxy, namespace) >= 2
            assert streams(proxy, "default") == 1  # where nobody has a lease, silence is no news
            proxy.freeze()
            cut_s = time.monotonic()
            await until(lambda: seen.view.connected_s is None)
            assert time.monotonic() - cut_s < 20.0
            assert seen.view.heard_s is not None
            assert seen.view.heard_s < cut_s + 1.0  # nothing was proven since
            await until(lambda: seen.view.problem is not None)
            problem = seen.view.problem
            assert problem is not None
            assert (problem.reason, problem.permanent) == (reasons.UNREACHABLE, False)
            proxy.thaw()
            await until(lambda: seen.view.connected_s is not None)
            after = seen.view
            assert after.problem is None
            assert (after.connected_s or 0) > (before.connected_s or 0)
            assert after.leases[0].changed_s == before.leases[0].changed_s  # it was not renewed, and nobody says so

    asyncio.run(scenario())


def test_a_lease_that_runs_out_in_silence_is_proven_at_once(proxy: ApiProxy, namespace: str) -> None:
    async def scenario() -> None:
        async with seeing(proxy.kubeconfig(), namespace, doubt_after_s=60.0) as seen:
            lease = seen.lease()
            lease["spec"]["leaseDurationSeconds"] = 2
            await until(lambda: seen.view.connected_s is not None)
            await seen.cluster.create(lease)
            await until(lambda: seen.view.leases)
            since_s = seen.view.connected_s
            changed_s = seen.view.leases[0].changed_s
            await asyncio.sleep(2.1)
            assert (seen.view.heard_s or 0) < changed_s + 2  # this look asked for proof
            await until(lambda: (seen.view.heard_s or 0) > changed_s + 2)
            assert seen.view.connected_s == since_s
            opened = streams(proxy)
            for _ in range(100):
                assert seen.view.leases
                await asyncio.sleep(0.005)
            assert streams(proxy) == opened

    asyncio.run(scenario())


RULES = [
    "--resource=pods,services,configmaps,persistentvolumeclaims",
    "--resource=leases.coordination.k8s.io",
    "--resource=roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io",
]


def allow(region: RegionHandle, namespace: str, name: str, resources: str, verbs: str = "list,watch") -> None:
    region.kubectl("create", "role", name, f"--verb={verbs}", resources, "-n", namespace)
    account = f"--serviceaccount={namespace}:operator"
    region.kubectl("create", "rolebinding", name, f"--role={name}", account, "-n", namespace)


def test_nodes_are_wished_for_and_everything_else_is_needed(region: RegionHandle, namespace: str) -> None:
    region.kubectl("create", "serviceaccount", "operator", "-n", namespace)
    allow(region, namespace, "pods", RULES[0])
    allow(region, namespace, "rest", RULES[2])
    allow(region, namespace, "leases-listed", RULES[1], "list")

    async def scenario() -> None:
        kubeconfig = region.service_account_kubeconfig(namespace, "operator")
        async with seeing(kubeconfig, namespace, namespaces=[namespace]) as seen:
            await until(lambda: seen.view.problem is not None and "may not watch" in seen.view.problem.message)
            problem = seen.view.problem
            assert problem is not None
            assert (problem.reason, problem.permanent) == (reasons.DENIED, False)
            assert "may not watch leases.coordination.k8s.io in namespace" in problem.message
            assert seen.view.connected_s is None
            await asyncio.to_thread(allow, region, namespace, "leases-watched", RULES[1], "watch")
            await until(lambda: seen.view.connected_s is not None)
            assert seen.view.problem is None
            assert dict(seen.view.nodes) == {}

    asyncio.run(scenario())


def test_namespaces_come_and_go(region: RegionHandle, namespace: str) -> None:
    async def scenario() -> None:
        async with seeing(region.kubeconfig.read_text(), namespace, namespaces=["default"]) as seen:
            await until(lambda: seen.cache.connected_s("default") is not None)
            since_s = seen.cache.connected_s("default")
            await seen.cluster.create(seen.lease())
            await seen.cache.set_namespaces(["default", namespace])
            await until(lambda: seen.view.leases and seen.view.connected_s is not None)
            assert seen.cache.connected_s("default") == since_s  # another namespace is no break here
            await seen.cache.set_namespaces(["default"])
            assert seen.view.leases == ()
            assert seen.uid not in seen.cache.group_uids()
            assert {watch.scope.namespace for watch in seen.cache.watches} == {"", "default"}

    asyncio.run(scenario())


def test_a_wrong_token_needs_another_secret(region: RegionHandle, namespace: str) -> None:
    kubeconfig = region.service_account_kubeconfig("default", "default")
    token = kubeconfig.split('"token": "')[1].split('"')[0]

    async def scenario() -> None:
        async with seeing(kubeconfig.replace(token, "wrong"), namespace) as seen:
            await until(lambda: seen.view.problem is not None)
            problem = seen.view.problem
            assert problem is not None
            assert (problem.reason, problem.permanent) == (reasons.UNAUTHORIZED, True)

    asyncio.run(scenario())


def test_certificate_requests_of_our_signer_are_handed_on(region: RegionHandle, namespace: str) -> None:
    heard: list[tuple[Change, dict[str, Any]]] = []

    async def scenario() -> None:
        async with seeing(
            region.kubeconfig.read_text(), namespace, on_certificate_request=lambda *event: heard.append(event)
        ) as seen:
            await until(lambda: seen.view.connected_s is not None)
            made = await seen.cluster.create(certificate_request(f"csr-{namespace}"))
            await until(lambda: any(body == {} or "spec" in body for _, body in heard))
            await until(lambda: made["metadata"]["uid"] in {body.get("metadata", {}).get("uid") for _, body in heard})
            made["status"]["conditions"] = [
                {"type": "Approved", "status": "True", "reason": "Test", "message": "for a test"}
            ]
            approved = await seen.cluster.replace(made, subresource="approval")
            assert approved["status"]["conditions"][0]["type"] == "Approved"
            await seen.cluster.delete(
                kinds.CERTIFICATE_REQUEST, "", made["metadata"]["name"], uid=made["metadata"]["uid"]
            )

    asyncio.run(scenario())


def certificate_request(name: str) -> dict[str, Any]:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "member")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = request.sign(ed25519.Ed25519PrivateKey.generate(), None).public_bytes(Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": names.SIGNER_NAME,
            "usages": ["digital signature", "client auth"],
        },
    }
