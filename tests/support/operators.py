"""The operator as a process beside a dev cluster, with the rights of its own service account and no more.

    hub = OperatorHub(region)        CRDs, roles, service account, once per region
    with hub.operator() as operator: one replica; `kill`, `stop`, its log

kwok runs the pods of these tests, so that nobody renews their leases: `MemberDriver` does, as a sidecar would.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sync_runtime.contract import names
from syncgroup_operator.manifests import roles
from tests.cluster import crd_fixtures
from tools.devcluster.api import APPLY, MERGE, ApiClient, wait_until
from tools.devcluster.client import RegionHandle

NAMESPACE = "syncgroup-system"
ACCOUNT = "syncgroup-operator"
GROUPS = "/apis/syncgroup.dev/v1alpha1"


class OperatorHub:
    """A region prepared for the operator: what the chart will do."""

    def __init__(self, region: RegionHandle, folder: Path, *, store_secrets: bool = False) -> None:
        """`store_secrets`: the operator may keep Secrets of object stores, as the chart's `rbac.storeSecrets` says."""
        self.region = region
        self.folder = folder
        crd_fixtures.apply_crds(region)
        region.kubectl("create", "namespace", NAMESPACE, check=False)
        region.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE, check=False)
        documents = [one for file in ("hub.yaml", "member.yaml") for one in roles.role_documents()[file]]
        for document in documents:
            if document["kind"] == "Role":
                document["metadata"]["namespace"] = NAMESPACE
            apply(region, document)
        further = (roles.STORE_SECRETS_ROLE,) if store_secrets else ()
        if store_secrets:
            apply(region, roles.store_secrets_role())
        for role in (roles.OPERATOR_ROLE, roles.GROUPS_ROLE, *further):
            apply(region, roles.cluster_role_binding(role, ACCOUNT, NAMESPACE))
        apply(region, roles.role_binding(roles.OPERATOR_ROLE, ACCOUNT, NAMESPACE, NAMESPACE, kind="Role"))
        self.kubeconfig = folder / f"operator-{region.name}.kubeconfig"
        self.kubeconfig.write_text(region.service_account_kubeconfig(NAMESPACE, ACCOUNT))

    @contextlib.contextmanager
    def operator(self, name: str = "operator-0", **settings: str) -> Iterator[OperatorProcess]:
        """One replica, until the block ends."""
        process = OperatorProcess(self, name, settings)
        try:
            yield process
        except BaseException:
            sys.stderr.write(f"--- the end of {process.log}:\n{process.log.read_text()[-5000:]}\n")
            raise
        finally:
            process.stop()


class OperatorProcess:
    """One replica."""

    def __init__(self, hub: OperatorHub, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.health_port, self.metrics_port = free_port(), free_port()
        self.log = hub.folder / f"{name}-{time.monotonic_ns()}.log"
        prefix = "SYNCGROUP_OPERATOR_"
        own = {
            "KUBECONFIG": str(hub.kubeconfig),
            f"{prefix}NAMESPACE": NAMESPACE,
            f"{prefix}IDENTITY": name,
            f"{prefix}HEALTH_HOST": "127.0.0.1",
            f"{prefix}HEALTH_PORT": str(self.health_port),
            f"{prefix}METRICS_PORT": str(self.metrics_port),
        }
        environment = os.environ | own | {f"{prefix}{key.upper()}": value for key, value in settings.items()}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "syncgroup_operator"], env=environment, stdout=log, stderr=log
            )

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, as a kubelet does it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self) -> None:
        """SIGKILL: nothing is given back."""
        self.process.kill()
        self.process.wait(10)

    def metrics(self) -> dict[str, float]:
        """What Prometheus would scrape."""
        text = _http(self.metrics_port, "/metrics")
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def health(self) -> dict[str, Any]:
        """What the liveness probe answers."""
        found: dict[str, Any] = json.loads(_http(self.health_port, "/healthz"))
        return found


class MemberDriver:
    """Renews leases as sidecars would, with reports that a test can change."""

    def __init__(self, region: RegionHandle, namespace: str) -> None:
        self.region = region
        self.namespace = namespace
        self.silent: set[str] = set()
        self.report: dict[str, Any] = {}
        """What reports say besides, from the next renewal on."""
        self.duration_s = 5
        self.clock_ahead_s = 0.0
        """How wrong the clock of these members is."""
        self._api: ApiClient | None = None

    def own_connection(self) -> None:
        """For a thread of its own: connections are not shared between threads."""
        self._api = ApiClient(self.region.kubeconfig)

    def close(self) -> None:
        """Drop that connection."""
        if self._api is not None:
            self._api.close()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """One request; reads, or merge patches."""
        send = self.region.api if self._api is None else self._api.request
        return send(method, path, body, content_type=MERGE) if body is not None else send(method, path)

    def beat(self, **report: Any) -> int:
        """Renew the lease of every running pod of every group once; how many."""
        status, answer = self.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        pods = answer["items"] if status == 200 else []
        return sum(self._renew(pod, report) for pod in pods if pod["metadata"]["name"] not in self.silent)

    def _renew(self, pod: Mapping[str, Any], further: Mapping[str, Any]) -> int:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        if names.LABEL_ROLE not in labels or pod["status"].get("phase") != "Running" or "deletionTimestamp" in metadata:
            return 0
        name = metadata["name"]
        is_trainer = labels[names.LABEL_ROLE] == names.TRAINER_ROLE
        report = {
            "formatVersion": 1,
            "groupUid": labels[names.LABEL_GROUP_UID],
            "member": name,
            "role": "Trainer" if is_trainer else "Rollout",
            "cluster": labels[names.LABEL_CLUSTER],
            "region": labels[names.LABEL_REGION],
            "runtimeVersion": "test",
            "maxPlanFormat": 1,
            "state": "Serving",
            "term": 0,
            "planRevision": 0,
            **further,
        }
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.clock_ahead_s)
        lease = {
            "metadata": {"annotations": {names.ANNOTATION_REPORT: json.dumps(report, sort_keys=True)}},
            "spec": {
                "holderIdentity": metadata["uid"],
                "leaseDurationSeconds": self.duration_s,
                "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%f}Z",
            },
        }
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"
        status, _ = self.request("PATCH", path, lease)
        return int(status == 200)


def apply(region: RegionHandle, document: Mapping[str, Any], manager: str = "test") -> dict[str, Any]:
    """Server-side apply as admin."""
    metadata = document["metadata"]
    group = document["apiVersion"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    place = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    plural = _PLURALS.get(document["kind"], document["kind"].lower() + "s")
    path = f"{root}{place}/{plural}/{metadata['name']}?fieldManager={manager}&force=true"
    status, answer = region.api("PATCH", path, document, content_type=APPLY)
    assert status in (200, 201), answer
    return answer


def items(region: RegionHandle, path: str) -> list[dict[str, Any]]:
    """A list."""
    status, answer = region.api("GET", path)
    assert status == 200, answer
    return list(answer["items"])


def group_of(region: RegionHandle, namespace: str, name: str) -> dict[str, Any]:
    """A SyncGroup; empty where it is gone."""
    status, answer = region.api("GET", f"{GROUPS}/namespaces/{namespace}/syncgroups/{name}")
    return answer if status == 200 else {}


def condition(group: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a group; empty where it has none."""
    conditions = (group.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


def wait_condition(
    region: RegionHandle, namespace: str, name: str, kind: str, status: str, *, timeout_s: float = 30.0
) -> dict[str, Any]:
    """The group, once a condition has a status."""

    def holds() -> bool:
        return condition(group_of(region, namespace, name), kind).get("status") == status

    try:
        wait_until(holds, f"{kind}={status} of {namespace}/{name}", timeout_s)
    except Exception as error:
        found = group_of(region, namespace, name).get("status")
        raise AssertionError(f"{error} Its status: {json.dumps(found, indent=1)}") from error
    return group_of(region, namespace, name)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _http(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


_PLURALS = {"NetworkPolicy": "networkpolicies"}
