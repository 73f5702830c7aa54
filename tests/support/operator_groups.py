"""A SyncGroup of the operator's tests: in a namespace of its own, with members that renew their leases.

with beating_group(region, "name") as group:
    group.write(replicas=2)
    group.ready()
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sync_runtime.contract import names
from sync_runtime.contract.names import GroupKey
from tests.support.operators import MemberDriver, apply, condition, group_of, items
from tools.devcluster.api import wait_until
from tools.devcluster.client import RegionHandle

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example/main:1"}], "terminationGracePeriodSeconds": 1}}
LEASE = {"durationSeconds": 5, "renewIntervalSeconds": 1, "lostGraceSeconds": 5}


class Group:
    """A SyncGroup in a namespace of its own, whose members renew their leases."""

    def __init__(self, region: RegionHandle, namespace: str, driver: MemberDriver) -> None:
        self.region = region
        self.namespace = namespace
        self.driver = driver
        self.key = GroupKey(namespace, "demo")

    def write(self, replicas: int = 2, template: dict[str, Any] | None = None, **spec: Any) -> None:
        rollout = {"name": "near", "region": "us-east", "replicas": replicas, "template": template or TEMPLATE}
        document = {
            "apiVersion": names.GROUP_VERSION,
            "kind": names.SYNCGROUP_KIND,
            "metadata": {"name": "demo", "namespace": self.namespace},
            "spec": {
                "trainer": {"region": "us-east", "template": TEMPLATE},
                "rollouts": [{**rollout, **spec.pop("rollout", {})}],
                "lease": {**LEASE, **spec.pop("lease", {})},
                **spec,
            },
        }
        apply(self.region, document)

    def ready(self, timeout_s: float = 40.0, term: int = 0) -> dict[str, Any]:
        """The group, once its status is about the present spec, of this term at least, and Ready."""
        generation = group_of(self.region, self.namespace, "demo")["metadata"]["generation"]
        found: dict[str, Any] = {}

        def current() -> bool:
            nonlocal found
            found = group_of(self.region, self.namespace, "demo")
            status = found.get("status") or {}
            known = status.get("observedGeneration") == generation and status.get("term", 0) >= term
            return bool(known and condition(found, "Ready").get("status") == "True")

        self.wait(current, "Ready", timeout_s)
        return found

    def status(self) -> dict[str, Any]:
        """The group's, as it is now."""
        return dict(group_of(self.region, self.namespace, "demo").get("status") or {})

    def alive(self) -> None:
        """Wait until every member has renewed its lease: one that never did has minutes for its start."""

        def renewed() -> bool:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
            holders = {
                lease["metadata"]["name"]: lease["spec"].get("holderIdentity") for lease in items(self.region, path)
            }
            return all(holders.get(name) == uid for name, uid in self.uids().items())

        self.wait(renewed, "the first renewal of every lease")

    def pods(self) -> dict[str, dict[str, Any]]:
        found = items(self.region, f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def name_of(self, role: str, index: int) -> str:
        return names.member_name(self.key, role, index)

    def object(self, path: str) -> dict[str, Any]:
        status, found = self.region.api("GET", path)
        return found if status == 200 else {}

    def plan(self) -> dict[str, Any]:
        name = names.plan_name(self.key, "local", "us-east")
        found = self.object(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")
        return dict(json.loads(found["data"]["plan.json"])) if found else {}

    def wait(self, check: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
        try:
            wait_until(check, what, timeout_s)
        except Exception as error:
            status = group_of(self.region, self.namespace, "demo").get("status")
            raise AssertionError(f"{error} {json.dumps(status, indent=1)}") from error


@contextlib.contextmanager
def beating_group(region: RegionHandle, namespace: str, *, every_s: float = 0.7) -> Iterator[Group]:
    """A namespace for one group; its members live, and renew their leases so often, until the block ends."""
    region.kubectl("create", "namespace", namespace)
    driver = MemberDriver(region, namespace)
    stop = threading.Event()
    arguments = (MemberDriver(region, namespace), driver, stop, every_s)
    beating = threading.Thread(target=_beat, args=arguments, daemon=True)
    beating.start()
    try:
        yield Group(region, namespace, driver)
    finally:
        stop.set()
        beating.join(10)
        region.kubectl("delete", "syncgroup", "--all", "-n", namespace, "--wait=false", check=False)
        region.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=false", "--force", check=False)


def _beat(worker: MemberDriver, told: MemberDriver, stop: threading.Event, every_s: float) -> None:
    """Renew again and again; a thread has a connection of its own."""
    worker.own_connection()
    try:
        while not stop.wait(every_s):
            worker.silent = told.silent
            worker.beat(**told.report)
    finally:
        worker.close()
