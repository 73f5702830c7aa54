"""The lease of a member in a pod: one `coordination.k8s.io/v1` Lease in its own cluster, owned by its pod.

The only module of the runtime that talks to Kubernetes. The first renewal reads the lease and takes it over or creates
it; every other one is a single merge patch, bound to the lease as we left it. Documents go over the wire as they are:
the client's models drop the microseconds of a round second, and the API server demands them.

Needs the verbs get, create, update and patch on leases in the pod's namespace.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from sync_runtime.contract.names import RUNTIME_CONTAINER
from sync_runtime.contract.reports import MemberReport
from sync_runtime.membership.documents import API_VERSION, LeaseName, new_lease, renewal_of, transitions_after
from sync_runtime.membership.errors import MembershipError

REQUEST_TIMEOUT_S: Final = 4.0
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_ATTEMPTS: Final = 3
"""Of taking the lease over, when somebody else changes it at the same moment."""


class KubernetesLease:
    """A lease on an API server: the pod's own, or the one of a kubeconfig."""

    def __init__(self, name: LeaseName, kubeconfig: Path | None = None) -> None:
        self._name = name
        self._kubeconfig = kubeconfig
        self._client: ApiClient | None = None
        self._version: str | None = None
        """The lease as we left it; None until it is ours."""
        self._had = False

    async def renew(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        """Renew it, or take it over; raises MembershipError."""
        try:
            if self._version is not None and await self._patch(renewal_of(report, duration_s, now)):
                return
            await self._take(report, duration_s, now)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise MembershipError(f"the API server is away: {str(error) or type(error).__name__}") from error
        except (ApiException, ConfigException, ValueError, KeyError) as error:
            raise MembershipError(f"the API server cannot be used: {error}") from error

    async def close(self) -> None:
        """Close the connection; the lease runs out by itself, or goes with the pod."""
        if self._client is not None:
            await self._client.close()  # type: ignore[no-untyped-call]
            self._client = None

    async def _patch(self, change: dict[str, Any]) -> bool:
        """One request; False where the lease is not as we left it."""
        change["metadata"]["resourceVersion"] = self._version
        status, answer = await self._request("PATCH", self._name.name, change, _MERGE_PATCH)
        self._version = answer["metadata"]["resourceVersion"] if status == 200 else None
        if status not in (200, 404, 409):
            raise _refused(status, answer)
        return status == 200

    async def _take(self, report: MemberReport, duration_s: int, now: datetime.datetime) -> None:
        for _ in range(_ATTEMPTS):
            status, found = await self._request("GET", self._name.name)
            if status == 404:
                status, answer = await self._request("POST", "", new_lease(self._name, report, duration_s, now))
            elif status == 200:
                self._check_holder(found)
                mine = new_lease(self._name, report, duration_s, now, transitions_after(found, self._name.holder))
                # Not a patch: what a predecessor left in it goes.
                mine["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                status, answer = await self._request("PUT", self._name.name, mine)
            else:
                raise _refused(status, found)
            if status in (200, 201):
                self._version, self._had = answer["metadata"]["resourceVersion"], True
                return
            if status not in (404, 409):  # these: deleted, created or changed by somebody in between
                raise _refused(status, answer)
        raise MembershipError("the lease is being changed by somebody else")

    def _check_holder(self, found: Mapping[str, Any]) -> None:
        """At the start a predecessor's lease is ours; later, whoever took it from us is our successor.

        Two pods of one member exist while the older is being deleted. If that one took its lease back, the operator
        would see the wrong one alive.
        """
        if self._had and found["spec"].get("holderIdentity") != self._name.holder:
            raise MembershipError("a successor of this member holds the lease")

    async def _request(
        self, method: str, name: str, body: Mapping[str, Any] | None = None, content_type: str = _JSON
    ) -> tuple[int, dict[str, Any]]:
        client = self._client = self._client or await self._connect()
        path = f"/apis/{API_VERSION}/namespaces/{self._name.namespace}/leases" + (f"/{name}" if name else "")
        request = await client.param_serialize(
            method,
            path,
            query_params=[] if body is None else [("fieldManager", RUNTIME_CONTAINER)],
            header_params={"Accept": _JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await client.call_api(*request, _request_timeout=REQUEST_TIMEOUT_S)
        answer = json.loads(await response.read())  # type: ignore[no-untyped-call]
        return int(response.status), answer if isinstance(answer, dict) else {}

    async def _connect(self) -> ApiClient:
        configuration = Configuration()
        if self._kubeconfig is None:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            path = str(self._kubeconfig)
            await load_kube_config(path, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        return ApiClient(configuration)


def _refused(status: int, answer: Mapping[str, Any]) -> MembershipError:
    return MembershipError(f"the API server refused the lease ({status}): {answer.get('message', 'no reason given')}")
