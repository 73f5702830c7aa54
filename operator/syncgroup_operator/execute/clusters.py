"""Connections to all clusters: the hub, and every SyncCluster, each by itself.

One task per remote cluster reads its kubeconfig Secret, connects, watches, and writes whether that works into the
SyncCluster's status. A kubeconfig that became wrong and a network that went away are treated alike: the connection
ends, and the moment it was lost is kept in that status, so that a restart of the operator does not restart the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sync_runtime.contract.names import LOCAL_CLUSTER, SYNCCLUSTER_KIND
from sync_runtime.contract.synccluster import AllowedNamespace, SyncCluster
from syncgroup_operator import reasons
from syncgroup_operator.errors import AccessError, ApiError, NotFoundError
from syncgroup_operator.execute.kubeconfigs import kubeconfig_in
from syncgroup_operator.execute.remote import Remote
from syncgroup_operator.kube.cache import ClusterCache
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import SECRET
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.kube.store import Why
from syncgroup_operator.kube.watch import Change
from syncgroup_operator.planning.observation import ClusterProblem, ClusterView

_log = logging.getLogger(__name__)
WAITING_S: Final = 1.0
"""Between two looks at a cluster that may be lost."""
TOGETHER_S: Final = 0.2
"""All watches of a cluster break and open together: one look for all of them."""

OnRequest = Callable[[str, Change, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ClusterTimes:
    """When clusters are looked at (`OperatorSettings` says what each means)."""

    check_every_s: float = 30.0
    lost_after_s: float = 15.0


class Clusters:
    """The hub and all remote clusters."""

    def __init__(
        self,
        hub: Cluster,
        hub_cache: ClusterCache,
        *,
        namespace: str,
        limits: ClientLimits,
        wake: Callable[[str, Why], None],
        on_request: OnRequest,
        on_change: Callable[[str], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime.datetime],
        times: ClusterTimes | None = None,
    ) -> None:
        """`wake` is told of a group's uid, `on_change` of a cluster that was lost, came back or was changed."""
        self.hub = hub
        self.hub_cache = hub_cache
        self._namespace = namespace
        self._limits = limits
        self._wake = wake
        self._on_request = on_request
        self._on_change = on_change
        self._clock = clock
        self._wall_clock = wall_clock
        self._times = times or ClusterTimes()
        self._remotes: dict[str, Remote] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.hub_shares_devices = False
        self.acting = False
        """Whether this replica leads: only then is a status written."""

    # --- what the watch of SyncClusters shows -------------------------------------------------------------------------

    def put(self, resource: SyncCluster) -> None:
        """A SyncCluster is there, or changed."""
        name = str(resource.metadata.name)
        remote = self._remotes.get(name)
        if remote is None:
            remote = self._remotes[name] = Remote(name, resource)
            self._tasks[name] = asyncio.create_task(self._supervise(remote), name=f"cluster {name}")
            self._on_change(name)
            return
        changed = remote.resource.spec != resource.spec
        remote.resource = resource
        if changed:
            remote.check_due_s = None
            remote.nudge.set()
            self._on_change(name)

    async def drop(self, name: str) -> None:
        """A SyncCluster is gone."""
        self._remotes.pop(name, None)
        await self._end(self._tasks.pop(name, None))
        self._on_change(name)

    async def close(self) -> None:
        """End all connections, the hub's last."""
        for name in list(self._tasks):
            await self._end(self._tasks.pop(name))
        self._remotes.clear()
        await self.hub_cache.close()
        await self.hub.close()

    # --- what a pass needs --------------------------------------------------------------------------------------------

    def client(self, name: str) -> Cluster | None:
        """The client of a cluster; None while there is no connection."""
        if name == LOCAL_CLUSTER:
            return self.hub
        remote = self._remotes.get(name)
        return None if remote is None else remote.client

    def cache(self, name: str) -> ClusterCache | None:
        """What the watches of a cluster see."""
        if name == LOCAL_CLUSTER:
            return self.hub_cache
        remote = self._remotes.get(name)
        return None if remote is None else remote.cache

    def remotes(self) -> list[Remote]:
        """All SyncClusters."""
        return list(self._remotes.values())

    def view(self, name: str, group_namespace: str, group_uid: str) -> ClusterView:
        """One cluster as a group may use it."""
        if name == LOCAL_CLUSTER:
            seen = self.hub_cache.view(group_uid, group_namespace)
            return ClusterView(
                name, group_namespace, problem=seen.problem, connected_s=seen.connected_s, heard_s=seen.heard_s,
                service_accounts=None,
                shares_devices=self.hub_shares_devices, pods=seen.pods, leases=seen.leases, nodes=seen.nodes,
                children=seen.children,
            )  # fmt: skip
        remote = self._remotes.get(name)
        if remote is None:
            message = f"there is no SyncCluster {name}: create it with `syncgroup cluster register {name}`"
            return _unusable(name, "", reasons.CLUSTER_NOT_FOUND, message)
        allowed = _allowed(remote.resource, group_namespace)
        if allowed is None:
            message = (
                f"SyncCluster {name} does not allow namespace {group_namespace}: add it to spec.allowedNamespaces there"
            )
            return _unusable(name, remote.resource.spec.region, reasons.NAMESPACE_NOT_ALLOWED, message)
        return remote.view(allowed, group_uid)

    # --- one remote cluster -------------------------------------------------------------------------------------------

    async def _supervise(self, remote: Remote) -> None:
        try:
            while True:
                remote.nudge.clear()
                if remote.check_due_s is None or self._clock() >= remote.check_due_s:
                    await self._check(remote)
                    remote.check_due_s = self._clock() + self._times.check_every_s
                await self._look(remote)
                self._judge(remote)
                await self._tell(remote)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(remote.nudge.wait(), self._pause_s(remote))
                if remote.lost_s is not None:
                    await asyncio.sleep(TOGETHER_S)
        finally:
            await remote.disconnect()

    def _pause_s(self, remote: Remote) -> float:
        if remote.client is not None and remote.lost_s is not None and remote.problem is None:
            return WAITING_S
        return max((remote.check_due_s or 0.0) - self._clock(), 0.0)

    async def _check(self, remote: Remote) -> None:
        """Read the Secret; a changed one is a new connection."""
        try:
            data = await self._kubeconfig(remote)
            digest = hashlib.sha256(data).hexdigest()
            if digest != remote.digest or remote.client is None:
                await remote.disconnect()
                remote.connect(data, digest, self._limits, self._wake, self._on_request, clock=self._clock)
        except AccessError as error:
            await remote.disconnect()
            remote.problem = ClusterProblem(reasons.KUBECONFIG_REFUSED, str(error), permanent=True)
        except NotFoundError:
            await remote.disconnect()
            ref = remote.resource.spec.kubeconfig_secret_ref
            message = f"there is no Secret {ref.name} in namespace {self._namespace}: it must hold the kubeconfig"
            remote.problem = ClusterProblem(reasons.KUBECONFIG_MISSING, message, permanent=True)
        except ApiError as error:
            _log.warning("the Secret of SyncCluster %s was not read: %s", remote.name, error)

    async def _look(self, remote: Remote) -> None:
        try:
            await remote.look()
        except ApiError as error:  # the watches go on trying by themselves, and say why in the status
            _log.debug("cluster %s: %s", remote.name, error)

    async def _kubeconfig(self, remote: Remote) -> bytes:
        ref = remote.resource.spec.kubeconfig_secret_ref
        return kubeconfig_in(await self.hub.get(SECRET, self._namespace, ref.name), ref.key)

    def _judge(self, remote: Remote) -> None:
        """Whether it is lost or back; groups are told of either."""
        if remote.judge(self._clock(), self._wall_clock(), self._times.lost_after_s):
            if remote.problem is None:
                _log.info("cluster %s is connected", remote.name)
            else:
                _log.warning("cluster %s cannot be used: %s", remote.name, remote.problem.message)
            self._on_change(remote.name)

    async def _tell(self, remote: Remote) -> None:
        """Write the SyncCluster's status where it changed."""
        if not self.acting:
            return
        status = remote.status(self._wall_clock())
        if status == remote.resource.status:
            return
        document: Mapping[str, Any] = {
            "apiVersion": remote.resource.api_version,
            "kind": SYNCCLUSTER_KIND,
            "metadata": {"name": remote.name},
            "status": status.to_document(),
        }
        try:
            await self.hub.patch_status(document)
        except ApiError as error:
            _log.warning("the status of SyncCluster %s was not written: %s", remote.name, error)

    @staticmethod
    async def _end(task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _unusable(name: str, region: str, reason: str, message: str) -> ClusterView:
    """A cluster that this group may not use at all; nothing else is said about it, service accounts included."""
    problem = ClusterProblem(reason, message, permanent=True)
    return ClusterView(name, "", region=region, problem=problem, service_accounts=None)


def _allowed(resource: SyncCluster, group_namespace: str) -> AllowedNamespace | None:
    found = (one for one in resource.spec.allowed_namespaces if one.local == group_namespace)
    return next(found, None)
