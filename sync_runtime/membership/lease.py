"""The lease of a member in a pod: one `coordination.k8s.io/v1` Lease in its own cluster, owned by its pod.

The first renewal reads the lease and takes it over or creates it; every other one is a single merge patch, bound to the
lease as we left it. Needs the verbs get, update and patch on this one lease, which the operator makes before the pod;
create only where nobody does.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.api import MERGE_PATCH, ClusterApi, refused
from sync_runtime.membership.documents import API_VERSION, LeaseName, new_lease, renewal_of, transitions_after
from sync_runtime.membership.errors import MembershipError

_ATTEMPTS: Final = 3
"""Of taking the lease over, when somebody else changes it at the same moment."""


class KubernetesLease:
    """A lease on an API server; the connection is its own."""

    def __init__(self, name: LeaseName, api: ClusterApi) -> None:
        self._name = name
        self._api = api
        self._folder = f"/apis/{API_VERSION}/namespaces/{name.namespace}/leases"
        self._path = f"{self._folder}/{name.name}"
        self._version: str | None = None
        """The lease as we left it; None until it is ours."""
        self._had = False

    async def renew(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        """Renew it, or take it over; raises MembershipError."""
        try:
            if self._version is not None and await self._patch(renewal_of(report, duration_s, now)):
                return
            await self._take(report, duration_s, now)
        except (KeyError, TypeError, AttributeError) as error:  # an answer that is no lease
            raise MembershipError("the API server cannot be used: it answers with something else") from error

    async def close(self) -> None:
        """Close the connection; the lease runs out by itself, or goes with the pod."""
        await self._api.close()

    async def _patch(self, change: dict[str, Any]) -> bool:
        """One request; False where the lease is not as we left it."""
        change["metadata"]["resourceVersion"] = self._version
        status, answer = await self._api.request("PATCH", self._path, change, content_type=MERGE_PATCH)
        self._version = answer["metadata"]["resourceVersion"] if status == 200 else None
        if status not in (200, 404, 409):
            raise refused("the lease", status, answer)
        return status == 200

    async def _take(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        for _ in range(_ATTEMPTS):
            status, found = await self._api.request("GET", self._path)
            if status == 404:
                mine = new_lease(self._name, report, duration_s, now)
                status, answer = await self._api.request("POST", self._folder, mine)
            elif status == 200:
                self._check_holder(found)
                mine = new_lease(self._name, report, duration_s, now, transitions_after(found, self._name.holder))
                # Not a patch: what a predecessor reported goes. The operator finds the lease by its labels: they stay.
                mine["metadata"]["labels"] = {**found["metadata"].get("labels", {}), **mine["metadata"]["labels"]}
                mine["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                status, answer = await self._api.request("PUT", self._path, mine)
            else:
                raise refused("the lease", status, found)
            if status in (200, 201):
                self._version, self._had = answer["metadata"]["resourceVersion"], True
                return
            if status not in (404, 409):  # these: deleted, created or changed by somebody in between
                raise refused("the lease", status, answer)
        raise MembershipError("the lease is being changed by somebody else")

    def _check_holder(self, found: Mapping[str, Any]) -> None:
        """At the start a predecessor's lease is ours; later, whoever took it from us is our successor.

        Two pods of one member exist while the older is being deleted. If that one took its lease back, the operator
        would see the wrong one alive.
        """
        if self._had and (found.get("spec") or {}).get("holderIdentity") != self._name.holder:
            raise MembershipError("a successor of this member holds the lease")
