"""The operator without kopf: everything is put together, started and ended here.

Every replica watches, so that one that takes over has everything at hand; only the leader acts. Whoever watches
SyncGroups and SyncClusters calls `put_*` and `drop_*`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from sync_runtime.contract.documents import load_stored
from sync_runtime.contract.errors import ContractError
from sync_runtime.contract.names import LOCAL_CLUSTER, GroupKey
from sync_runtime.contract.synccluster import SyncCluster
from syncgroup_operator.errors import ConflictError, OperatorError
from syncgroup_operator.execute.authorities import Authorities
from syncgroup_operator.execute.clusters import Clusters, ClusterTimes
from syncgroup_operator.execute.collector import Collector, hub_id_of
from syncgroup_operator.execute.groups import Groups
from syncgroup_operator.execute.leader import Election
from syncgroup_operator.execute.news import News
from syncgroup_operator.execute.queue import WorkQueue
from syncgroup_operator.execute.reactions import CLUSTER, SPEC, Reactions
from syncgroup_operator.execute.reconcile import Reconciler, Surroundings
from syncgroup_operator.execute.record import Records
from syncgroup_operator.execute.signing import WORKERS as SIGNERS
from syncgroup_operator.execute.signing import Signing
from syncgroup_operator.execute.store_secrets import StoreSecrets
from syncgroup_operator.execute.timings import Result, Timings
from syncgroup_operator.execute.tracing import PassSink
from syncgroup_operator.execute.turns import Turns
from syncgroup_operator.identity.authority import AuthorityPolicy
from syncgroup_operator.kube.access import InCluster, KubeconfigFile
from syncgroup_operator.kube.cache import ClusterCache
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.events import EventRecorder
from syncgroup_operator.kube.kinds import SYNC_CLUSTER
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.kube.store import Why
from syncgroup_operator.kube.watch import Change
from syncgroup_operator.manifests.inputs import LibraryFacts
from syncgroup_operator.settings import OperatorSettings

_log = logging.getLogger(__name__)
REPORT_PAUSE_S: Final = 1.0
"""Reports of a group's members come within moments of each other: one pass for all of them."""
BURST_PAUSE_S: Final = 0.02
LAST_WORDS_S: Final = 1.0
"""For events that still wait when the process ends; the next leader acts meanwhile."""
CONTROLLER: Final = "syncgroup.dev/operator"


class Engine:
    """One replica of the operator."""

    def __init__(
        self, settings: OperatorSettings, policy: AuthorityPolicy | None = None, passes: PassSink | None = None
    ) -> None:
        self.settings, self._passes = settings, passes
        self.queue: WorkQueue[GroupKey] = WorkQueue(time.monotonic)
        self.groups = Groups()
        self.timings = Timings()
        self._reactions = Reactions(self.timings, time.monotonic)
        self._turns = Turns()
        self.leading = False
        self.lost = asyncio.Event()
        """Leadership is gone for good: this process must end, its successor may act already."""
        limits = ClientLimits(requests_per_s=settings.requests_per_s, burst=settings.burst)
        access = InCluster() if settings.kubeconfig is None else KubeconfigFile(settings.kubeconfig)
        self._hub = Cluster(LOCAL_CLUSTER, access, limits)
        cache = ClusterCache(
            self._hub,
            self._wake_uid,
            namespaces=settings.watch_namespaces or None,
            on_connection=self._hub_connection,
            on_certificate_request=lambda change, body: self._request_seen(LOCAL_CLUSTER, change, body),
        )
        self.clusters = Clusters(
            self._hub, cache, namespace=settings.namespace, limits=limits, wake=self._wake_uid,
            on_request=self._request_seen,
            on_change=self._cluster_changed, clock=time.monotonic, wall_clock=_now,
            times=ClusterTimes(settings.check_clusters_s, settings.cluster_lost_s),
        )  # fmt: skip
        self.authorities = Authorities(self._hub, settings.namespace, policy or AuthorityPolicy(), time.monotonic, _now)
        self.signing = Signing(self.groups, self.clusters, self.authorities, time.monotonic, _now)
        # A client of its own: in a burst of passes the other's requests wait their turn for longer than a lease lasts.
        self._electing = Cluster(
            LOCAL_CLUSTER, access, ClientLimits(in_flight=2, request_timeout_s=settings.election.renew_s / 2)
        )
        self.election = Election(
            self._electing,
            settings.namespace,
            settings.identity,
            settings.election,
            clock=time.monotonic,
            wall_clock=_now,
        )
        self.news = News(EventRecorder(self._hub, CONTROLLER, settings.identity))
        self.reconciler: Reconciler | None = None
        self.collector: Collector | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def dropped_spans(self) -> int:
        """Spans of passes that no backend took."""
        return 0 if self._passes is None else self._passes.dropped

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the hub's watches and stand for election; raises OperatorError where the hub cannot be used."""
        hub_id = await hub_id_of(self._hub)
        self.clusters.hub_shares_devices = await self._hub.has_api("resource.k8s.io/v1")
        # Listed before the first pass: a SyncCluster that no watch has shown yet must not look like a missing one.
        for body in await self._hub.list_all(SYNC_CLUSTER):
            self.put_cluster(body)
        self.clusters.hub_cache.start()
        self.reconciler = Reconciler(
            Surroundings(
                groups=self.groups, clusters=self.clusters, records=Records(self._hub), authorities=self.authorities,
                news=self.news, hub_id=hub_id,
                image=self.settings.runtime_image, library=LibraryFacts(self.settings.library_hash),
                clock=time.monotonic, wall_clock=_now, reactions=self._reactions, passes=self._passes,
                store_secrets=StoreSecrets(self.clusters, time.monotonic),
            )
        )  # fmt: skip
        self.collector = Collector(self.clusters, hub_id, self.settings.namespace, self.settings.watch_namespaces)
        self._spawn(self._run(), "leader")

    async def stop(self) -> None:
        """End everything; the lease is given back first, so that another replica may go on meanwhile."""
        self.leading = False
        self.queue.close()
        self.signing.queue.close()
        if self.settings.leader_election:
            await self.election.release()
        await self.news.end(LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._electing.close()
        await self.clusters.close()

    # --- what the watches of SyncGroups and SyncClusters show ---------------------------------------------------------

    def put_group(self, body: Mapping[str, Any]) -> None:
        """A SyncGroup is there, or changed."""
        if self.groups.put(body):
            metadata = body["metadata"]
            self._woken(GroupKey(metadata["namespace"], metadata["name"]), SPEC)

    def drop_group(self, body: Mapping[str, Any]) -> None:
        """A SyncGroup is gone; what it owned on the hub goes with it, its authority does not."""
        metadata = body["metadata"]
        key = GroupKey(metadata["namespace"], metadata["name"])
        if self.groups.drop(key, metadata["uid"]) is not None:
            self._woken(key, SPEC)
            if self.leading:
                self._spawn(self._remove_authority(key, metadata["uid"]), f"authority {key}")

    def put_cluster(self, body: Mapping[str, Any]) -> None:
        """A SyncCluster is there, or changed."""
        try:
            resource = load_stored(body).resource
        except ContractError as error:
            _log.error("SyncCluster %s cannot be read by this release: %s", body["metadata"].get("name"), error)
            return
        if isinstance(resource, SyncCluster):
            self.clusters.put(resource)

    async def drop_cluster(self, body: Mapping[str, Any]) -> None:
        """A SyncCluster is gone."""
        await self.clusters.drop(str(body["metadata"]["name"]))

    # --- work ---------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        if self.settings.leader_election:
            await self.election.lead(self._lead)
        else:
            await self._lead()
            return
        self.leading = self.clusters.acting = False
        self.lost.set()

    async def _lead(self) -> None:
        """From now on this replica acts: every group is looked at once."""
        self.leading = self.clusters.acting = True
        self._spawn(self.authorities.read_all(), "authorities")
        for seen in self.groups:
            self.queue.wake(seen.key)
        for remote in self.clusters.remotes():
            remote.nudge.set()
        for number in range(self.settings.workers):
            self._spawn(self._work(), f"worker {number}")
        for number in range(SIGNERS):
            self._spawn(self.signing.work(), f"signer {number}")
        self._spawn(self._collect(), "collector")
        self._spawn(self.news.run(), "news")

    async def _work(self) -> None:
        while (key := await self.queue.take()) is not None:
            # A pass with nothing to do waits for nothing: without this, many of them in a row would keep the watches
            # from being read, and the silence of an unread watch proves nothing about anybody's lease.
            await asyncio.sleep(0)
            await self._one(key)

    async def _one(self, key: GroupKey) -> None:
        reconciler = self.reconciler
        if reconciler is None or not self._may_act():
            self.queue.failed(key)
            return
        rest_s = None if self._reactions.is_woken(key) else reconciler.resting.goes_on_s(key)
        if rest_s is not None:
            self.queue.done(key, again_after_s=rest_s)
            return
        result = Result.ERROR
        async with self._turns.taken(urgent=self._reactions.is_urgent(key)) as end_turn:
            if not self._may_act():  # it may have been lost while others had their turn
                self.queue.failed(key)
                return
            started_s = time.monotonic()
            with self._reactions.timed(key, lambda: result is not Result.SUCCESS or reconciler.waits(key)):
                result, again_after_s = await self._reconcile(reconciler, key, end_turn)
        self.timings.passed(result, time.monotonic() - started_s)
        if result is Result.SUCCESS:
            self._again(key, again_after_s)

    async def _reconcile(
        self, reconciler: Reconciler, key: GroupKey, acted: Callable[[], None]
    ) -> tuple[Result, float | None]:
        try:
            return Result.SUCCESS, await reconciler.reconcile(key, acted)
        except ConflictError as error:
            _log.info("%s/%s: %s", *key, error)
            self.queue.failed(key)
            return Result.REQUEUE, None
        except OperatorError as error:
            pause_s = self.queue.failed(key)
            _log.warning("%s/%s: %s; again in %.1f s", *key, error, pause_s)
        except Exception:  # noqa: BLE001 a fault in one group must not end the worker that all groups share
            pause_s = self.queue.failed(key, at_least_s=1.0)
            _log.exception("%s/%s: the pass died; again in %.1f s", *key, pause_s)
        return Result.ERROR, None

    def _again(self, key: GroupKey, again_after_s: float | None) -> None:
        if self.groups.get(key) is None:
            self.queue.done(key)
            return
        resync_s = self.settings.resync_s * random.uniform(0.8, 1.2)  # noqa: S311 spreads load, no secret
        if self.reconciler is not None:
            self.reconciler.resting.limit(key, resync_s)
        self.queue.done(key, again_after_s=resync_s if again_after_s is None else min(again_after_s, resync_s))

    def _may_act(self) -> bool:
        return self.leading and (not self.settings.leader_election or self.election.leading)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self.settings.collect_every_s)
            if self.collector is not None and self._may_act():
                await self.collector.round()
                await self.signing.sweep()

    async def _remove_authority(self, key: GroupKey, uid: str) -> None:
        try:
            await self.authorities.remove(key, uid)
        except OperatorError as error:
            _log.info("the authority of %s/%s is left to the collector: %s", *key, error)

    # --- wake-ups -----------------------------------------------------------------------------------------------------

    def _request_seen(self, cluster: str, change: Change, body: dict[str, Any]) -> None:
        self.signing.seen(cluster, change, body)

    def _wake_uid(self, uid: str, why: Why) -> None:
        key = self.groups.key_of(uid)
        if key is not None:
            self._woken(key, why.value, REPORT_PAUSE_S if why is Why.REPORT else BURST_PAUSE_S)

    def _hub_connection(self) -> None:
        """A watch of the hub became live, or ceased to be."""
        postponed = self.reconciler.postponed if self.reconciler is not None else set()
        for key in tuple(postponed):
            if self.clusters.hub_cache.connected_s(key.namespace) is not None:
                postponed.discard(key)
                self.queue.wake(key)

    def _cluster_changed(self, name: str) -> None:
        users = self.reconciler.uses.get(name, set()) if self.reconciler is not None else set()
        for key in tuple(users):
            self._woken(key, CLUSTER)

    def _woken(self, key: GroupKey, why: str, after_s: float = 0.0) -> None:
        self._reactions.woken(key, why)
        self.queue.wake(key, after_s, urgent=self._reactions.is_urgent(key))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s died", task.get_name(), exc_info=task.exception())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
