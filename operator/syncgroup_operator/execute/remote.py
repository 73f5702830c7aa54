"""One remote cluster: its connection, and whether it is there."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

from sync_runtime.contract.status import SyncClusterStatus
from sync_runtime.contract.synccluster import AllowedNamespace, SyncCluster
from syncgroup_operator import reasons
from syncgroup_operator.errors import DeniedError
from syncgroup_operator.kube.access import from_kubeconfig
from syncgroup_operator.kube.cache import ClusterCache
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.kube.store import Why
from syncgroup_operator.kube.watch import Change
from syncgroup_operator.planning.clock import read
from syncgroup_operator.planning.observation import ClusterProblem, ClusterView
from syncgroup_operator.planning.status import synccluster_status


class Remote:
    """A SyncCluster and the connection to it. Whoever supervises it calls everything here from one task."""

    def __init__(self, name: str, resource: SyncCluster) -> None:
        self.name = name
        self.resource = resource
        self.client: Cluster | None = None
        self.cache: ClusterCache | None = None
        self.digest = ""
        """Of the kubeconfig that the connection was made with."""
        self.problem: ClusterProblem | None = None
        self.version: str | None = None
        self.shares_devices = False
        self.lost_s: float | None = None
        """Since when, by our own clock, it is not connected."""
        lost = None if resource.status is None else resource.status.lost_time
        self.lost_time = None if lost is None else read(lost)
        self.nudge = asyncio.Event()
        self.check_due_s: float | None = None
        """When its Secret is to be read; None: now."""
        self._known = False
        """Whether it was asked, since it was connected, what it is and what it can do."""

    def connect(
        self,
        kubeconfig: bytes,
        digest: str,
        limits: ClientLimits,
        wake: Callable[[str, Why], None],
        on_request: Callable[[str, Change, dict[str, Any]], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        """Open client and watches; raises AccessError."""
        self.client = Cluster(self.name, from_kubeconfig(kubeconfig), limits)
        self.digest = digest
        self._known = False
        self.cache = ClusterCache(
            self.client,
            wake,
            namespaces=self._namespaces(),
            on_connection=self.nudge.set,
            on_certificate_request=lambda change, body: on_request(self.name, change, body),
            clock_s=clock,
        )
        self.cache.start()

    async def disconnect(self) -> None:
        """End the connection; what was seen of the cluster is no longer the present."""
        client, cache = self.client, self.cache
        self.client = self.cache = None
        self.digest = ""
        if cache is not None:
            await cache.close()
        if client is not None:
            await client.close()

    async def look(self) -> None:
        """Follow the spec's namespaces, and ask once for the version and what the cluster can do."""
        if self.cache is None or self.client is None:
            return
        await self.cache.set_namespaces(self._namespaces())
        if self._known:
            return
        try:
            found = await self.client.version()
            self.version = str(found.get("gitVersion", ""))[:64] or None
            self.shares_devices = await self.client.has_api("resource.k8s.io/v1")
        except DeniedError:  # some clusters hide this from service accounts; then it is not known
            self.shares_devices = False
        self._known = True

    def judge(self, now_s: float, now: datetime.datetime, lost_after_s: float) -> bool:
        """Decide whether it is there; whether that changed."""
        before = self.problem
        if self.is_connected():
            # Passes of the last moments saw nothing of it, even where it was away too shortly to count as lost.
            came_back = self.lost_s is not None
            self.lost_s, self.problem, self.lost_time = None, None, None
            return came_back or before is not None
        if self.lost_s is None:
            self.lost_s = now_s
        since = now - datetime.timedelta(seconds=now_s - self.lost_s)
        if self.cache is not None or self.problem is None:  # else whoever ended the connection said why
            if now_s - self.lost_s < lost_after_s:
                return self.problem != before
            self.problem = self._why()
        self.lost_time = self.lost_time or since
        self._known = False  # it may come back as another release
        return self.problem != before

    def is_connected(self) -> bool:
        """Whether every watch of every namespace is live, and it is known what the cluster can do."""
        if self.cache is None or not self._known:
            return False
        return all(self.cache.connected_s(namespace) is not None for namespace in self._namespaces() or ("",))

    def view(self, allowed: AllowedNamespace, group_uid: str) -> ClusterView:
        """It, as a group may use it."""
        accounts = frozenset(allowed.service_accounts)
        if self.cache is None:
            return ClusterView(
                self.name, allowed.remote, region=self.resource.spec.region, problem=self.problem,
                lost_time=self.lost_time, service_accounts=accounts,
            )  # fmt: skip
        seen = self.cache.view(group_uid, allowed.remote)
        return ClusterView(
            self.name, allowed.remote, region=self.resource.spec.region, problem=self.problem,
            connected_s=seen.connected_s if self._known else None, heard_s=seen.heard_s, lost_time=self.lost_time,
            service_accounts=accounts,
            shares_devices=self.shares_devices, pods=seen.pods, leases=seen.leases, nodes=seen.nodes,
            children=seen.children,
        )  # fmt: skip

    def status(self, now: datetime.datetime) -> SyncClusterStatus:
        """What its status should say."""
        return synccluster_status(
            self.resource.status,
            generation=self.resource.metadata.generation or 0,
            now=now,
            connected=self.is_connected(),
            problem=self.problem,
            kubernetes_version=self.version,
            lost_time=self.lost_time,
        )

    def _namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({allowed.remote for allowed in self.resource.spec.allowed_namespaces}))

    def _why(self) -> ClusterProblem:
        for namespace in self._namespaces() or ("",):
            found = self.cache.problem(namespace) if self.cache is not None else None
            if found is not None:
                return found
        return ClusterProblem(reasons.UNREACHABLE, f"the API server of {self.name} does not answer", permanent=False)
