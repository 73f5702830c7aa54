"""The API server of the member's own cluster: single requests and watches, in plain JSON.

The only module of the runtime that knows the Kubernetes client. It logs in as the pod (a token that the kubelet
refreshes) or as a kubeconfig says, and turns whatever goes wrong into a sentence; what is asked and what answers mean
is the callers' business. Documents go over the wire as they are: the client's models drop the microseconds of a round
second, and the API server demands them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from sync_runtime.contract.names import RUNTIME_CONTAINER, TOKEN_DIR
from sync_runtime.membership.errors import MembershipError

REQUEST_TIMEOUT_S: Final = 4.0
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

Document = dict[str, Any]
Query = Sequence[tuple[str, str]]


class ClusterApi:
    """A connection to an API server; opened by the first request, and again by the first one after `close`."""

    def __init__(self, *, token_dir: Path = Path(TOKEN_DIR), kubeconfig: Path | None = None) -> None:
        """As the pod whose token and `ca.crt` lie in `token_dir`, or as the user of a kubeconfig."""
        self._token_dir = token_dir
        self._kubeconfig = kubeconfig
        self._client: ApiClient | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Query = (),
        content_type: str = JSON,
    ) -> tuple[int, Document]:
        """The status and the document of the answer; raises MembershipError where there is none."""
        further = () if body is None else (("fieldManager", RUNTIME_CONTAINER),)
        with _translated():
            response = await self._send(method, path, [*query, *further], body, content_type, limit=REQUEST_TIMEOUT_S)
            answer = json.loads(await response.read())
        return int(response.status), answer if isinstance(answer, dict) else {}

    async def watch(self, path: str, query: Query, *, silence_s: float) -> AsyncGenerator[Document, None]:
        """The events of a watch until the server ends it; raises MembershipError, also after `silence_s` of silence."""
        with _translated():
            limit = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S, sock_read=silence_s)
            response = await self._send("GET", path, [*query, ("watch", "true")], None, JSON, limit=limit)
            stream: aiohttp.ClientResponse = response.response
            try:
                if stream.status != 200:
                    raise refused("the watch", stream.status, json.loads(await stream.read()))
                while line := await stream.content.readline():
                    event = json.loads(line)
                    yield event if isinstance(event, dict) else {}
            finally:
                stream.close()

    async def close(self) -> None:
        """Lets the connection go."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Mapping[str, Any] | None,
        content_type: str,
        *,
        limit: float | aiohttp.ClientTimeout,
    ) -> Any:
        client = self._client = self._client or await self._connect()
        request = await client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            return await client.call_api(*request, _request_timeout=limit)
        except aiohttp.ClientSSLError:
            await self.close()  # the server's own CA may have been replaced: the next request reads it anew
            raise

    async def _connect(self) -> ApiClient:
        configuration = Configuration()
        if self._kubeconfig is None:
            loader = InClusterConfigLoader(str(self._token_dir / "token"), str(self._token_dir / "ca.crt"))  # type: ignore[no-untyped-call]
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        else:
            path = str(self._kubeconfig)
            await load_kube_config(path, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        return ApiClient(configuration)


def refused(what: str, status: int, answer: object) -> MembershipError:
    """An answer that says no, as an error."""
    message = answer.get("message") if isinstance(answer, dict) else None
    return MembershipError(f"the API server refused {what} ({status}): {message or 'no reason given'}")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise MembershipError(f"the API server is away: {str(error) or type(error).__name__}") from error
    except (ApiException, ConfigException, ValueError, KeyError) as error:
        raise MembershipError(f"the API server cannot be used: {error}") from error
