"""What all watches of one cluster see, ready for a pass over any group: no API reads in the steady state.

One watch per kind and namespace, or per kind where the operator may see everything. The cache tells a group's loop
that something changed; it decides nothing. It also says how much it can be trusted: `connected_s` is since when every
watch of a namespace has missed nothing, `problem` is why one cannot be opened.

Nodes are wished for, not needed: without them a death's cause is less precise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sync_runtime.contract import names
from syncgroup_operator import reasons
from syncgroup_operator.errors import AccessError, DeniedError, NotFoundError
from syncgroup_operator.kube import kinds
from syncgroup_operator.kube.client import Cluster, Document
from syncgroup_operator.kube.kinds import Kind
from syncgroup_operator.kube.store import Group, Store, Wakes, Why
from syncgroup_operator.kube.views import LeaseRow, child_key, lease_view
from syncgroup_operator.kube.watch import Change, OnEvent, Scope, Watch, WatchTimes
from syncgroup_operator.planning.observation import (
    ChildView,
    ClusterProblem,
    LeaseView,
    NodeView,
    ObjectKey,
    PodView,
)

CHILD_KINDS: Final = (
    kinds.CONFIG_MAP, kinds.SERVICE, kinds.VOLUME_CLAIM, kinds.ROLE, kinds.ROLE_BINDING,
)  # fmt: skip
DOUBT_SHARE: Final = 1 / 3
"""Of the shortest lease: a lease watch that is silent for so long is opened anew. Members renew more often."""
LEAST_DOUBT_S: Final = 1.5
WISHED_PAUSE_S: Final = 300.0

_NODES: Final = Scope(kinds.NODE)
OnWake = Callable[[str, Why], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheView:
    """One group in one cluster, as far as it is seen."""

    pods: tuple[PodView, ...]
    leases: tuple[LeaseView, ...]
    nodes: Mapping[str, NodeView]
    """Every node of the cluster; empty also where nodes may not be seen."""
    children: Mapping[ObjectKey, ChildView]
    connected_s: float | None
    heard_s: float | None
    """When something was last heard of leases here: what ran out since then is not proven to have."""
    problem: ClusterProblem | None


@dataclass(slots=True)
class _Running:
    watch: Watch
    task: asyncio.Task[None]
    needed: bool = True


class ClusterCache:
    """The watches of one cluster and what they see. `start` needs a running loop; `close` ends them."""

    def __init__(
        self,
        cluster: Cluster,
        wake: OnWake,
        *,
        namespaces: Iterable[str] | None = None,
        on_connection: Callable[[], None] = lambda: None,
        on_certificate_request: OnEvent | None = None,
        further_kinds: tuple[Kind, ...] = (),
        times: WatchTimes | None = None,
        doubt_after_s: float | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Further kinds may be missing on a cluster. `doubt_after_s` None: as the leases ask for.

        `namespaces` None: everywhere. `on_connection` is called when a watch became live or ceased to be.
        """
        self.cluster = cluster
        self._wake = wake
        self._namespaces = None if namespaces is None else frozenset(namespaces)
        self._on_connection = on_connection
        self._on_certificate_request = on_certificate_request
        self._further_kinds = further_kinds
        self._times = times or WatchTimes()
        self._doubt_after_s = doubt_after_s
        self._clock_s = clock_s
        self._store = Store(cluster.name)
        self._running: dict[Scope, _Running] = {}

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open all watches."""
        self._open(_NODES, self._on_node, needed=False)
        if self._on_certificate_request is not None:
            selector = f"spec.signerName={names.SIGNER_NAME}"
            self._open(Scope(kinds.CERTIFICATE_REQUEST, field_selector=selector), self._on_certificate_request)
        for namespace in ("",) if self._namespaces is None else sorted(self._namespaces):
            self._open_namespace(namespace)

    async def set_namespaces(self, namespaces: Iterable[str]) -> None:
        """Watch these and no others; for a cache that does not watch everywhere."""
        wanted, before = frozenset(namespaces), self._namespaces
        if before is None:
            return
        self._namespaces = wanted
        for namespace in sorted(wanted - before):
            self._open_namespace(namespace)
        gone = [scope for scope in self._running if scope.namespace in before - wanted and scope.namespace]
        await self._end([self._running.pop(scope) for scope in gone])
        for namespace in before - wanted:
            self._store.forget_namespace(namespace)

    async def close(self) -> None:
        """End all watches; the cluster's client stays open."""
        running = list(self._running.values())
        self._running.clear()
        await self._end(running)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def view(self, group_uid: str, namespace: str) -> CacheView:
        """One group's objects in the namespace that it is mapped to."""
        group = self._store.groups.get(group_uid) or Group(group_uid)
        leases = [row for row in group.leases.values() if row.namespace == namespace]
        return CacheView(
            pods=tuple(pod for pod in group.pods.values() if pod.namespace == namespace),
            leases=tuple(lease_view(row) for row in leases),
            nodes=self._nodes(),
            children={key: child for key, child in group.children.items() if key.namespace == namespace},
            connected_s=self.connected_s(namespace),
            heard_s=self._heard_s(namespace, leases),
            problem=self.problem(namespace),
        )

    def lease_changed_s(self, namespace: str, name: str) -> float | None:
        """When a lease was last seen to change; None where there is none."""
        return self._store.lease_changed_s(namespace, name)

    def group_uids(self) -> frozenset[str]:
        """Every group that something is seen of: for the collector of what an origin left."""
        return frozenset(self._store.groups)

    def holder_uid(self, key: ObjectKey) -> str | None:
        """Which group an object belongs to, whichever hub made it; None where no group's object has the name."""
        return self._store.holder_uid(key)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """For health and metrics."""
        return tuple(running.watch for running in self._running.values())

    def connected_s(self, namespace: str) -> float | None:
        """Since when every watch that shows this namespace has missed nothing; None while one is not live."""
        lives = [running.watch.live_since_s for running in self._covering(namespace) if not _spared(running)]
        known = [live for live in lives if live is not None]
        return max(known) if known and len(known) == len(lives) else None

    def problem(self, namespace: str) -> ClusterProblem | None:
        """Why the cluster cannot be used for this namespace; None while all is well, or still being opened."""
        for running in self._covering(namespace):
            if running.watch.problem is not None and not _spared(running):
                return _problem(self.cluster.name, running.watch)
        return None

    def _heard_s(self, namespace: str, leases: Iterable[LeaseRow]) -> float | None:
        """When a watch of leases last proved that it lives; where one of these ran out since, proof is asked for."""
        covering = (one.watch for one in self._covering(namespace) if one.watch.scope.kind is kinds.LEASE)
        watch = next(covering, None)
        if watch is None or watch.last_heard_s is None:
            return None
        heard_s, now_s = watch.last_heard_s, self._clock_s()
        if any(heard_s - row.changed_s <= row.duration_s < now_s - row.changed_s for row in leases):
            watch.doubt()
        return heard_s

    def child(self, group_uid: str, key: ObjectKey) -> ChildView | None:
        """One child, without the rest of a view."""
        group = self._store.groups.get(group_uid)
        return group.children.get(key) if group is not None else None

    @property
    def dead(self) -> int:
        """Watches that ended by a fault of ours: only a restart of the operator helps."""
        return sum(running.task.done() for running in self._running.values())

    def _nodes(self) -> Mapping[str, NodeView]:
        """Only while they are watched: what was seen before is not the present."""
        running = self._running.get(_NODES)
        return self._store.nodes if running is not None and running.watch.live_since_s is not None else {}

    def _covering(self, namespace: str) -> list[_Running]:
        return [running for scope, running in self._running.items() if scope.namespace in ("", namespace)]

    # --- watches ------------------------------------------------------------------------------------------------------

    def _open_namespace(self, namespace: str) -> None:
        selector = names.LABEL_GROUP_UID
        self._open(Scope(kinds.POD, namespace, selector), self._on_pod)
        self._open(Scope(kinds.LEASE, namespace, selector), self._on_lease)
        for kind in CHILD_KINDS:
            self._open(Scope(kind, namespace, selector), self._on_child)
        for kind in self._further_kinds:
            self._open(Scope(kind, namespace, selector), self._on_child, needed=False)

    def _open(self, scope: Scope, on_event: OnEvent, *, needed: bool = True) -> None:
        times = self._times
        if not needed:
            times = WatchTimes(
                inactivity_s=times.inactivity_s,
                server_timeout_s=times.server_timeout_s,
                answer_timeout_s=times.answer_timeout_s,
                denied_pause_s=WISHED_PAUSE_S,
            )
        watch = Watch(
            self.cluster,
            scope,
            on_event,
            times=times,
            silence_s=(lambda: self._silence_s(scope)) if scope.kind is kinds.LEASE else None,
            keep_managed_fields=scope.kind is kinds.POD,  # they say whether a label is still ours
            on_state=self._on_connection,
            clock_s=self._clock_s,
        )
        task = asyncio.create_task(watch.run(), name=f"watch {self.cluster.name} {scope.kind.plural}")
        task.add_done_callback(_log_death)
        self._running[scope] = _Running(watch, task, needed)

    def _silence_s(self, scope: Scope) -> float:
        """How long a watch of leases may be silent before it is doubted; one that has none has nothing to say."""
        shortest_s, running = self._store.shortest_lease_s, self._running.get(scope)
        if shortest_s is None or running is None or not running.watch.count:
            return self._times.inactivity_s
        return max(self._doubt_after_s or shortest_s * DOUBT_SHARE, LEAST_DOUBT_S)

    async def _end(self, running: list[_Running]) -> None:
        for one in running:
            one.task.cancel()
        for one in running:
            with contextlib.suppress(asyncio.CancelledError):
                await one.task

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change, body: Document) -> None:
        if change is Change.DELETED:
            self._tell(self._store.drop_pod(body))
        elif change is not Change.SYNCED:
            self._tell(self._store.put_pod(body, self._clock_s()))

    def _on_lease(self, change: Change, body: Document) -> None:
        if change is Change.DELETED:
            self._tell(self._store.drop_lease(body))
        elif change is not Change.SYNCED:
            self._tell(self._store.put_lease(body, self._clock_s()))

    def _on_child(self, change: Change, body: Document) -> None:
        if change is Change.DELETED:
            key = child_key(body)
            self._tell(self._store.drop_child(key) if key is not None else ())
        elif change is not Change.SYNCED:
            self._tell(self._store.put_child(body))

    def _on_node(self, change: Change, body: Document) -> None:
        if change is Change.DELETED:
            self._tell(self._store.drop_node(str((body.get("metadata") or {}).get("name", ""))))
        elif change is not Change.SYNCED:
            self._tell(self._store.put_node(body))

    def _tell(self, wakes: Wakes) -> None:
        for group_uid, why in wakes:
            self._wake(group_uid, why)


def _spared(running: _Running) -> bool:
    """What the role does not show or the cluster does not have, and we can do without."""
    return not running.needed and isinstance(running.watch.problem, DeniedError | NotFoundError)


def _problem(cluster: str, watch: Watch) -> ClusterProblem:
    error, kind = watch.problem, watch.scope.kind
    if isinstance(error, AccessError):
        return ClusterProblem(reasons.KUBECONFIG_REFUSED, str(error), permanent=True)
    if isinstance(error, DeniedError) and error.status == 401:
        message = f"cluster {cluster} does not know the operator's token or certificate: renew the kubeconfig's Secret"
        return ClusterProblem(reasons.UNAUTHORIZED, message, permanent=True)
    if isinstance(error, DeniedError):
        where = f"in namespace {watch.scope.namespace}" if watch.scope.namespace else "in all namespaces"
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        message = f"the operator may not {watch.verb} {resource} {where} of cluster {cluster}: grant list and watch"
        return ClusterProblem(reasons.DENIED, message, permanent=False)
    return ClusterProblem(reasons.UNREACHABLE, str(error), permanent=False)


def _log_death(task: asyncio.Task[None]) -> None:
    """A watch never ends by itself: this is a fault of ours, and health shows it."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s died", task.get_name(), exc_info=task.exception())
