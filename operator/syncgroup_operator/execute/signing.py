"""Members' certificates: every CertificateSigningRequest for our signer is judged, answered, and later removed.

Which requests deserve a certificate is decided in `identity.approval`; here they are fetched, written and retried. The
leader alone does this, one request at a time per cluster: a burst of a thousand members is a queue, not a flood.
"""

from __future__ import annotations

import base64
import datetime
import logging
from collections.abc import Callable
from typing import Any, Final

from syncgroup_operator.errors import ApiError, ConflictError, NotFoundError
from syncgroup_operator.execute.authorities import Authorities
from syncgroup_operator.execute.clusters import Clusters
from syncgroup_operator.execute.groups import Groups
from syncgroup_operator.execute.queue import WorkQueue
from syncgroup_operator.identity.approval import (
    Approve,
    Deny,
    Ignore,
    Verdict,
    Wait,
    asked_group,
    conditions_after,
    judge,
    judge_nobodys,
    to_delete,
)
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.kinds import CERTIFICATE_REQUEST
from syncgroup_operator.kube.watch import Change

_log = logging.getLogger(__name__)
WAIT_S: Final = 1.0
WORKERS: Final = 4

RequestKey = tuple[str, str]
"""Cluster and name."""


class Signing:
    """All pending requests of all clusters."""

    def __init__(
        self,
        groups: Groups,
        clusters: Clusters,
        authorities: Authorities,
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime.datetime],
    ) -> None:
        self._groups = groups
        self._clusters = clusters
        self._authorities = authorities
        self._wall_clock = wall_clock
        self._bodies: dict[RequestKey, dict[str, Any]] = {}
        self.queue: WorkQueue[RequestKey] = WorkQueue(clock)
        self.issued = 0
        self.denied = 0

    def seen(self, cluster: str, change: Change, body: dict[str, Any]) -> None:
        """The watch of a cluster showed a request."""
        if change is Change.SYNCED:
            return
        key = (cluster, str((body.get("metadata") or {}).get("name", "")))
        if change is Change.DELETED:
            self._bodies.pop(key, None)
            self.queue.forget(key)
            return
        self._bodies[key] = body
        self.queue.wake(key)

    async def work(self) -> None:
        """Answer requests until the queue is closed."""
        while (key := await self.queue.take()) is not None:
            try:
                again_after_s = await self._answer(key)
            except ConflictError:
                self.queue.done(key, again_after_s=WAIT_S)
            except ApiError as error:
                _log.warning("certificate request %s in cluster %s: %s", key[1], key[0], error)
                self.queue.failed(key)
            else:
                self.queue.done(key, again_after_s=again_after_s)

    async def sweep(self) -> None:
        """Remove requests that nobody will read any more."""
        now = self._wall_clock()
        for seen in self._groups:
            for name in {cluster for cluster, _ in self._bodies}:
                cache, client = self._clusters.cache(name), self._clusters.client(name)
                if cache is None or client is None:
                    continue
                bodies = [body for (cluster, _), body in self._bodies.items() if cluster == name]
                view = self._clusters.view(name, seen.key.namespace, seen.uid)
                pod_uids = {pod.uid for pod in view.pods}
                for request, uid in to_delete(bodies, uid=seen.uid, pod_uids=pod_uids, now=now):
                    await _delete(client, request, uid)

    async def _answer(self, key: RequestKey) -> float | None:
        body, client = self._bodies.get(key), self._clusters.client(key[0])
        if body is None or client is None:
            return None
        verdict = self._judge(key[0], body)
        if isinstance(verdict, Ignore):
            return None
        if isinstance(verdict, Wait):
            return WAIT_S
        await self._write(client, body, verdict)
        return None

    def _judge(self, cluster: str, body: dict[str, Any]) -> Verdict:
        uid = asked_group(body)
        key = None if uid is None else self._groups.key_of(uid)
        if uid is None or key is None:
            return judge_nobodys(body)
        authority = self._authorities.known(uid)
        if authority is None:
            return Wait("the group's authority is not read yet")
        view = self._clusters.view(cluster, key.namespace, uid)
        return judge(
            body, key=key, uid=uid, pods=view.pods, authority=authority, now=self._wall_clock(),
            policy=self._authorities.policy,
        )  # fmt: skip

    async def _write(self, client: Cluster, body: dict[str, Any], verdict: Approve | Deny) -> None:
        """The approval first, then the certificate; each write carries the version that was judged."""
        name = body["metadata"]["name"]
        conditions = conditions_after(body, verdict, self._wall_clock())
        document = {**body, "status": {**(body.get("status") or {}), "conditions": conditions}}
        if isinstance(verdict, Deny):
            await client.replace(document, subresource="status" if verdict.as_failed else "approval")
            self.denied += 1
            _log.warning("certificate request %s was denied: %s: %s", name, verdict.reason, verdict.message)
            return
        if not verdict.is_approved:
            document = await client.replace(document, subresource="approval")
        encoded = base64.b64encode(verdict.certificate_pem).decode()
        await client.replace(
            {**document, "status": {**document["status"], "certificate": encoded}}, subresource="status"
        )
        self.issued += 1
        _log.info("certificate issued for %s", verdict.member)


async def _delete(client: Cluster, name: str, uid: str) -> None:
    try:
        await client.delete(CERTIFICATE_REQUEST, "", name, uid=uid)
    except (NotFoundError, ConflictError):
        return
    except ApiError as error:
        _log.warning("certificate request %s was not removed: %s", name, error)
