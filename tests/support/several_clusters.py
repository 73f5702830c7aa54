"""A hub and two remote clusters, registered by `syncgroup cluster register`, with kwok nodes and an operator's rights.

Every test has a number and with it its own namespaces: `team-N` on the hub, `guests-N` in the remote clusters. The two
are named apart so that an object in the wrong one shows.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sync_runtime.contract import names
from syncgroup.cli import main
from tests.support.operators import NAMESPACE, MemberDriver, OperatorHub, OperatorProcess, free_port, group_of, items
from tools.devcluster.api import MERGE, wait_until
from tools.devcluster.client import Cluster, RegionHandle

BEAT_S = 1.0
PATIENCE_S = 120.0
"""For whatever takes seconds: the machine may have other work."""
QUICK = {"check_clusters_s": "1", "cluster_lost_s": "5", "collect_every_s": "0.5", "leader_election": "false"}
"""Without an election: a replica that cannot renew in time ends, and no kubelet would start it again here."""
CHILD_PATHS = (
    "/api/v1/namespaces/{}/pods", "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/api/v1/namespaces/{}/configmaps", "/api/v1/namespaces/{}/services",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "/api/v1/namespaces/{}/persistentvolumeclaims",
)  # fmt: skip


class SeveralClusters:
    """The hub is the first region; the others are remote clusters under their region's name."""

    def __init__(self, cluster: Cluster, folder: Path, tests: int, *, store_secrets: bool = False) -> None:
        """`store_secrets`: the operator may keep Secrets of object stores, on the hub and in the remote clusters."""
        self.store_secrets = store_secrets
        self.hub, *remotes = cluster.regions.values()
        self.remotes = {region.name: region for region in remotes}
        self.operator_hub = OperatorHub(self.hub, folder, store_secrets=store_secrets)
        self.allowed = [f"team-{number}:guests-{number}:default,engine" for number in range(tests)]
        for number in range(tests):
            self.hub.kubectl("create", "namespace", f"team-{number}")
        for name in self.remotes:
            assert self.register(name) == 0
        self.operator: OperatorProcess | None = None

    def start_operator(self) -> OperatorProcess:
        """One replica that loses patience with clusters soon; `stop_operator` ends it."""
        self.operator = OperatorProcess(self.operator_hub, "operator-0", QUICK)
        return self.operator

    def stop_operator(self) -> None:
        """As a kubelet would."""
        if self.operator is not None:
            self.operator.stop(PATIENCE_S)
            self.operator = None

    def register(self, name: str, *further: str) -> int:
        """`syncgroup cluster register`, as a person would type it."""
        region = self.remotes[name]
        allow = [word for one in self.allowed for word in ("--allow", one)]
        allow += ["--store-secrets"] if self.store_secrets else []
        return main(
            ["cluster", "register", name, "--kubeconfig", str(region.kubeconfig), "--hub-kubeconfig",
             str(self.hub.kubeconfig), "--region", name, *allow, *further]
        )  # fmt: skip

    # --- clusters that are away ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def away(self, name: str) -> Iterator[None]:
        """The kubeconfig points at a port that nobody listens on, until the block ends."""
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}-kubeconfig"
        _, secret = self.hub.api("GET", path)
        before = secret["data"]["kubeconfig"]
        document = yaml.safe_load(base64.b64decode(before))
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
        self._write_kubeconfig(path, base64.b64encode(json.dumps(document).encode()).decode())
        try:
            yield
        finally:
            self._write_kubeconfig(path, before)

    def _write_kubeconfig(self, path: str, encoded: str) -> None:
        status, answer = self.hub.api("PATCH", path, {"data": {"kubeconfig": encoded}}, content_type=MERGE)
        assert status == 200, answer

    def sync_cluster(self, name: str) -> dict[str, Any]:
        """A SyncCluster as it is."""
        status, answer = self.hub.api("GET", f"/apis/{names.GROUP_VERSION}/syncclusters/{name}")
        assert status == 200, answer
        return answer

    def connected(self, name: str) -> dict[str, Any]:
        """Its condition; empty before the operator's first word."""
        conditions = (self.sync_cluster(name).get("status") or {}).get("conditions") or [{}]
        return dict(conditions[0])

    def wait_connected(self, name: str, status: str) -> None:
        """Until its condition has a status."""
        wait_until(lambda: self.connected(name).get("status") == status, f"{name} Connected={status}", PATIENCE_S)

    # --- members ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def members(self, number: int, report: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Somebody renews the leases of a test's pods in all clusters; what `report` holds just then is said too."""
        # Handles of its own: their connections are not for two threads.
        drivers = [MemberDriver(RegionHandle(one.cluster, one.region), space) for one, space in self.places(number)]
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT_S):
                for driver in drivers:
                    driver.beat(**(report or {}))

        thread = threading.Thread(target=beat, name="members")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(PATIENCE_S)
            for driver in drivers:
                driver.region.close()

    # --- what is there ------------------------------------------------------------------------------------------------

    def children(self, region: RegionHandle, namespace: str) -> dict[tuple[str, str], str]:
        """The uid of everything of any group in a namespace, by kind and name."""
        found = {}
        for path in CHILD_PATHS:
            kind = path.rpartition("/")[2]
            for body in items(region, path.format(namespace) + f"?labelSelector={names.LABEL_GROUP_UID}"):
                found[kind, body["metadata"]["name"]] = body["metadata"]["uid"]
        return found

    def pods(self, region: RegionHandle, namespace: str) -> dict[str, str]:
        """The uid of every pod of any group in a namespace."""
        return {name: uid for (kind, name), uid in self.children(region, namespace).items() if kind == "pods"}

    def wait_empty(self, number: int) -> None:
        """Until nothing of any group is left in a test's namespaces."""
        for region, space in self.places(number):
            wait_until(functools.partial(self._is_empty, region, space), f"{space} is empty", PATIENCE_S)

    def _is_empty(self, region: RegionHandle, namespace: str) -> bool:
        return not self.children(region, namespace)

    def places(self, number: int) -> list[tuple[RegionHandle, str]]:
        """The namespaces of a test, with their clusters."""
        return [(self.hub, f"team-{number}"), *((one, f"guests-{number}") for one in self.remotes.values())]

    def delete_group(self, number: int, name: str, timeout_s: float = PATIENCE_S) -> None:
        """Delete a group and wait until it is gone."""
        path = f"/apis/{names.GROUP_VERSION}/namespaces/team-{number}/syncgroups/{name}"
        self.hub.api("DELETE", path)
        wait_until(lambda: not group_of(self.hub, f"team-{number}", name), f"{name} is gone", timeout_s)


def group(number: int, name: str, rollouts: Sequence[tuple[str, int]], **spec: Any) -> dict[str, Any]:
    """A group with its trainer on the hub and rollouts in clusters, as (cluster, replicas)."""
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": "SyncGroup",
        "metadata": {"name": name, "namespace": f"team-{number}"},
        "spec": {
            "trainer": {
                "region": "us-east", "template": template("trainer"),
                "exposure": {"type": "External", "host": "trainer.example", "port": 7443},
            },
            "rollouts": [
                {"name": f"at-{place}", "cluster": place, "region": place if place != "local" else "us-east",
                 "replicas": count, "template": template("engine")}
                for place, count in rollouts
            ],
            **spec,
        },
    }  # fmt: skip


def template(container: str, **spec: Any) -> dict[str, Any]:
    """The least that a pod needs."""
    return {"spec": {"containers": [{"name": container, "image": f"registry.example/{container}:1"}], **spec}}
