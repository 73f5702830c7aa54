"""The operator's passes and caches in this process, against real API servers, under clocks that a test moves.

    async with VirtualOperator(kubeconfig, key, namespace) as operator:
        await operator.settle()
        operator.clock.pass_s(3600)

There is no queue and no kopf: the test says when a pass is due, so that an hour takes as long as its passes do. What
real time drives, the watches and their patience, goes on meanwhile. Its rights are those of the kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sync_runtime.contract.documents import load_stored
from sync_runtime.contract.names import LOCAL_CLUSTER, GroupKey
from sync_runtime.contract.synccluster import SyncCluster
from syncgroup_operator.errors import ApiError, ConflictError
from syncgroup_operator.execute.authorities import Authorities
from syncgroup_operator.execute.clusters import Clusters, ClusterTimes
from syncgroup_operator.execute.collector import hub_id_of
from syncgroup_operator.execute.groups import Groups
from syncgroup_operator.execute.news import News
from syncgroup_operator.execute.reactions import Reactions
from syncgroup_operator.execute.reconcile import Reconciler, Surroundings
from syncgroup_operator.execute.record import Records
from syncgroup_operator.execute.store_secrets import StoreSecrets
from syncgroup_operator.execute.timings import Timings
from syncgroup_operator.identity.authority import AuthorityPolicy
from syncgroup_operator.kube.access import KubeconfigFile
from syncgroup_operator.kube.cache import ClusterCache
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.events import EventRecorder
from syncgroup_operator.kube.kinds import SYNC_CLUSTER, SYNC_GROUP
from syncgroup_operator.kube.limits import ClientLimits
from syncgroup_operator.manifests.inputs import LibraryFacts

SOON_S = 0.5
"""A pass that asks to be called again so soon is called again."""
QUIET_S = 0.25
"""Nothing woke the group for so long: it is at rest."""


class VirtualClock:
    """Real time and whatever the test let pass besides."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def pass_s(self, seconds: float) -> None:
        """So much time is over at once, for the monotonic clock and for the one on the wall."""
        self._ahead_s += seconds

    def monotonic_s(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic() + self._ahead_s

    def now(self) -> datetime.datetime:
        """As the wall shows it."""
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self._ahead_s)


class VirtualOperator:
    """One replica that looks at one group, and acts, whenever it is told to."""

    def __init__(self, kubeconfig: Path, key: GroupKey, namespace: str, clock: VirtualClock | None = None) -> None:
        self.key = key
        self.clock = clock or VirtualClock()
        self._woken = asyncio.Event()
        self._groups = Groups()
        limits = ClientLimits()
        hub = self._hub = Cluster(LOCAL_CLUSTER, KubeconfigFile(kubeconfig), limits)
        monotonic_s, now = self.clock.monotonic_s, self.clock.now
        cache = ClusterCache(hub, lambda _uid, _why: self._woken.set(), clock_s=monotonic_s)
        self._clusters = Clusters(
            hub, cache, namespace=namespace, limits=limits, wake=lambda _uid, _why: self._woken.set(),
            on_request=lambda _cluster, _change, _body: None, on_change=lambda _name: self._woken.set(),
            clock=monotonic_s, wall_clock=now, times=ClusterTimes(),
        )  # fmt: skip
        self._clusters.acting = True
        self._authorities = Authorities(hub, namespace, AuthorityPolicy(), monotonic_s, now)
        self._news = News(EventRecorder(hub, "test", "virtual", now, monotonic_s))
        self._telling: asyncio.Task[None] | None = None
        self._reconciler: Reconciler | None = None

    async def __aenter__(self) -> Self:
        hub, clock = self._hub, self.clock
        self._reconciler = Reconciler(
            Surroundings(
                groups=self._groups, clusters=self._clusters, records=Records(hub), authorities=self._authorities,
                news=self._news, hub_id=await hub_id_of(hub),
                image="example/runtime:1", library=LibraryFacts("test"), clock=clock.monotonic_s,
                wall_clock=clock.now, reactions=Reactions(Timings(), clock.monotonic_s),
                store_secrets=StoreSecrets(self._clusters, clock.monotonic_s),
            )
        )  # fmt: skip
        await self.refresh()
        self._clusters.hub_cache.start()
        self._telling = asyncio.create_task(self._news.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._telling is not None:
            self._telling.cancel()
        await self._clusters.close()

    async def refresh(self) -> dict[str, Any]:
        """Read the group and all SyncClusters, as their watch would show them; the group's body."""
        for body in await self._hub.list_all(SYNC_CLUSTER):
            resource = load_stored(body).resource
            if isinstance(resource, SyncCluster):
                self._clusters.put(resource)
        group = await self._hub.get(SYNC_GROUP, *self.key)
        self._groups.put(group)
        return group

    async def look(self) -> float | None:
        """One pass over the group; after how long it wants to be called again."""
        assert self._reconciler is not None, "it is entered first"
        for remote in self._clusters.remotes():
            remote.nudge.set()
        await self.refresh()
        with contextlib.suppress(ConflictError):
            return await self._reconciler.reconcile(self.key)
        return 0.0

    async def settle(self, passes: int = 60) -> dict[str, Any]:
        """Pass after pass until nothing wakes the group any more; the group's body."""
        for _ in range(passes):
            self._woken.clear()
            again_after_s = await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), QUIET_S)
                continue
            if again_after_s is None or again_after_s > SOON_S:
                break
        return await self.refresh()

    async def until(
        self, holds: Callable[[dict[str, Any]], bool], what: str, timeout_s: float = 90.0
    ) -> dict[str, Any]:
        """Passes until something is so of the group; the group's body."""
        deadline_s = time.monotonic() + timeout_s
        found: dict[str, Any] = {}
        while True:
            with contextlib.suppress(ApiError):
                found = await self.settle(passes=4)
                if holds(found):
                    return found
            assert time.monotonic() < deadline_s, f"{what} did not happen: {found.get('status')}"

    def lease_seen(self, cluster: str, namespace: str, name: str) -> float | None:
        """When, by this operator's clock, it saw a lease change."""
        cache = self._clusters.cache(cluster)
        return None if cache is None else cache.lease_changed_s(namespace, name)
