"""Which replica acts: one `coordination.k8s.io/v1` Lease, held by compare-and-swap.

The others judge a holder by their own clock since its `renewTime` last changed, never by comparing wall clocks. A
holder that cannot renew stops acting before the others may take over. A holder that leaves gives the lease back, so
that its successor need not wait. Correctness does not rest on this: two leaders for a moment write the same objects
under the same names, and term and revision go through compare-and-swap.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sync_runtime.contract.names import LEADER_LEASE
from syncgroup_operator.errors import ApiError, ConflictError, NotFoundError
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import LEASE
from syncgroup_operator.planning.clock import micro_written
from syncgroup_operator.settings import ElectionSettings

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Sight:
    """A holder as this replica sees it."""

    mark: tuple[str, str] = ("", "")
    since_s: float = 0.0


class Election:
    """One replica's part in the election."""

    def __init__(
        self,
        api: Cluster,
        namespace: str,
        identity: str,
        settings: ElectionSettings,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime.datetime],
    ) -> None:
        self._api = api
        self._namespace = namespace
        # A restarted container has the name of its predecessor and must not inherit its seat unseen.
        self._identity = f"{identity}_{random.getrandbits(64):016x}"
        self._settings = settings
        self._clock = clock
        self._wall_clock = wall_clock
        self._sight = _Sight()
        self._held: dict[str, Any] | None = None
        self._renewed_s = 0.0

    @property
    def leading(self) -> bool:
        """Whether this replica may act at this moment."""
        return self._held is not None and self._clock() - self._renewed_s < self._settings.renew_s

    async def lead(self, started: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, call `started`, renew; returns when leadership is lost for good."""
        while not await self._try():  # noqa: ASYNC110 another process's lease has no event here
            await asyncio.sleep(self._settings.poll_s)
        _log.info("this replica leads: %s", self._identity)
        await started()
        while self.leading:
            await asyncio.sleep(self._settings.retry_s)
            await self._try()
        _log.error("leadership is lost: the lease could not be renewed for %.0f s", self._settings.renew_s)

    async def release(self) -> None:
        """Give the lease back, so that the next replica may take it at once."""
        held, self._held = self._held, None
        if held is None:
            return
        held["spec"] |= {"holderIdentity": "", "renewTime": self._now()}
        try:
            await self._api.replace(held)
        except ApiError as error:
            _log.warning("the leader lease was not given back and runs out by itself: %s", error)

    async def _try(self) -> bool:
        """Renew what is held, or take what is free; whether this replica holds it afterwards."""
        try:
            return await self._take()
        except ConflictError:
            return False  # somebody was faster
        except ApiError as error:
            _log.warning("the leader lease cannot be reached: %s", error)
            return self.leading

    async def _take(self) -> bool:
        asked_s = self._clock()
        try:
            found = await self._api.get(LEASE, self._namespace, LEADER_LEASE)
        except NotFoundError:
            return self._keep(await self._api.create(self._document(0)), asked_s)
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._seems_dead(holder, str(spec.get("renewTime"))):
            self._held = None
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        document = self._document(transitions)
        if holder == self._identity and spec.get("acquireTime"):
            document["spec"]["acquireTime"] = spec["acquireTime"]
        document["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        return self._keep(await self._api.replace(document), asked_s)

    def _seems_dead(self, holder: str, renew_time: str) -> bool:
        mark, now_s = (holder, renew_time), self._clock()
        if mark != self._sight.mark:
            self._sight = _Sight(mark, now_s)
        return now_s - self._sight.since_s > self._settings.lease_s

    def _keep(self, document: dict[str, Any], asked_s: float) -> bool:
        # From the moment of asking: the others count from when the server took it, which is later.
        self._held, self._renewed_s = document, asked_s
        return True

    def _document(self, transitions: int) -> dict[str, Any]:
        now = self._now()
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": LEADER_LEASE, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": max(int(self._settings.lease_s), 1),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _now(self) -> str:
        return micro_written(self._wall_clock())
