"""One request or one stream to one API server: limited, counted, and with every failure translated.

Bodies go over the wire as plain JSON: the client library's models lose the microseconds of times and cost memory. What
comes back is bounded, since a remote server may be broken or hostile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from syncgroup_operator.errors import AccessError, ApiError, RefusedError, UnreachableError
from syncgroup_operator.kube.access import Access
from syncgroup_operator.kube.failures import error_of, unreachable
from syncgroup_operator.kube.limits import ClientLimits, TokenBucket

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""JSON is YAML, so an applied document needs no other writer."""
RENEW_EVERY_S: Final = 10.0
_TURNS_TO_CLOSE: Final = 3
"""Of the loop, in which closed TLS transports let go of their sockets."""
_NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError, ConfigException)

Query = Mapping[str, str]
on_send: ContextVar[Callable[[str, str, str], Callable[[], None]] | None] = ContextVar("on_send", default=None)
"""Told of verb, kind and name when a request leaves, after every wait for a turn: for whoever times reactions.

What it returns is called when the answer is there, or is known not to come.
"""


class Connection:
    """The way to one cluster's API server. Opened by the first request, closed by `close`."""

    def __init__(
        self, name: str, access: Access, limits: ClientLimits, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.limits = limits
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """How many, by verb, kind and status code; 0 is no answer."""
        self._access = access
        self._clock_s = clock_s
        self._bucket = TokenBucket(limits.requests_per_s, limits.burst, clock_s)
        self._in_flight = asyncio.Semaphore(limits.in_flight)
        self._client: ApiClient | None = None
        self._opening = asyncio.Lock()
        self._renewed_s: float | None = None

    async def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]
            for _ in range(_TURNS_TO_CLOSE):
                await asyncio.sleep(0)

    async def request(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        news: bool = False,
    ) -> dict[str, Any]:
        """One request; its JSON answer, or one of the operator's errors. `news` waits behind everything else."""
        what = f"{verb} {path}"
        timeout = aiohttp.ClientTimeout(total=self.limits.request_timeout_s, sock_connect=self.limits.connect_timeout_s)
        await self._bucket.take(news=news)
        async with self._in_flight:
            answered = _tell(verb, kind, path, body)
            try:
                response = await self._send(method, path, query, timeout, body=body, content_type=content_type)
                try:
                    data = await self._read(response, what)
                finally:
                    response.release()
            except _NO_ANSWER as error:
                self.requests[verb, kind, 0] += 1
                await self._doubt_trust(error)
                raise unreachable(self.name, what, error) from error
            finally:
                answered()
        self.requests[verb, kind, response.status] += 1
        answer = _document(data)
        if not 200 <= response.status < 300:
            raise await self._failed(what, response, answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, kind: str, path: str, query: Query, *, answer_timeout_s: float) -> AsyncIterator[Stream]:
        """A watch: it is not among the requests in flight, for it lasts."""
        what = f"watch {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_timeout_s)
        await self._bucket.take()
        try:
            async with asyncio.timeout(answer_timeout_s):
                response = await self._send("GET", path, query, timeout)
        except _NO_ANSWER as error:
            self.requests["watch", kind, 0] += 1
            await self._doubt_trust(error)
            raise unreachable(self.name, what, error) from error
        self.requests["watch", kind, response.status] += 1
        try:
            if response.status != 200:
                raise await self._failed(what, response, _document(await self._bounded(response, what)))
            yield Stream(response, self.name, what)
        finally:
            # At once: a polite end of TLS waits for a server that may be gone.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def _bounded(self, response: aiohttp.ClientResponse, what: str) -> bytes:
        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                return await self._read(response, what)
        except _NO_ANSWER as error:
            raise unreachable(self.name, what, error) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 aiohttp's own kind, with several limits
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> aiohttp.ClientResponse:
        client = self._client or await self._open()
        _, url, headers, *_ = await client.param_serialize(
            method,
            f"{path}?{urlencode(query)}" if query else path,
            header_params={"Accept": JSON, "Content-Type": content_type},
            auth_settings=["BearerToken"],
        )
        # The body goes round `param_serialize`, which copies it value by value in search of models.
        answer = await client.call_api(method, url, headers, body, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _open(self) -> ApiClient:
        async with self._opening:
            if self._client is None:
                self._client = await self._access.open()
            return self._client

    async def _read(self, response: aiohttp.ClientResponse, what: str) -> bytes:
        parts, size_bytes = [], 0
        while part := await response.content.readany():
            parts.append(part)
            size_bytes += len(part)
            if size_bytes > self.limits.max_answer_bytes:
                response.close()
                raise RefusedError(
                    f"cluster {self.name}: {what}: the answer has more than {self.limits.max_answer_bytes} bytes",
                    cluster=self.name,
                )
        return b"".join(parts)

    async def _failed(self, what: str, response: aiohttp.ClientResponse, answer: Mapping[str, Any]) -> ApiError:
        error = error_of(self.name, what, response.status, answer, response.headers.get("Retry-After"))
        if response.status == 429:
            self._bucket.pause(error.retry_after_s if error.retry_after_s is not None else 1.0)
        if response.status == 401:
            await self._renew()
        return error

    async def _doubt_trust(self, error: BaseException) -> None:
        """A server that cannot be verified may have a new authority that we could know of."""
        if isinstance(error, aiohttp.ClientSSLError):
            await self._renew()

    async def _renew(self) -> None:
        """Who we are and whom we trust may have changed on disk; asked again only after a while."""
        now_s = self._clock_s()
        if self._client is None or (self._renewed_s is not None and now_s - self._renewed_s < RENEW_EVERY_S):
            return
        self._renewed_s = now_s
        with contextlib.suppress(AccessError, ConfigException, OSError):  # the refusal itself is what is reported
            client = self._client
            if await self._access.renew(client):
                await self._reopen(client)

    async def _reopen(self, old: ApiClient) -> None:
        """Another client with what is on disk now; what the old one has under way ends, and is tried again."""
        async with self._opening:
            if self._client is not old:
                return
            self._client = await self._access.open()
        await old.close()  # type: ignore[no-untyped-call]


class Stream:
    """The body of a watch as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse, cluster: str, what: str) -> None:
        self._content = response.content
        self._reading: asyncio.Timeout | None = None
        self._cluster = cluster
        self._what = what

    async def read(self, silence_s: float) -> bytes | None:
        """What has arrived; empty at the orderly end, None after `silence_s` without a byte."""
        try:
            async with asyncio.timeout(silence_s) as self._reading:
                return await self._content.readany()
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(
                f"cluster {self._cluster}: {self._what}: cut off: {str(error) or type(error).__name__}",
                cluster=self._cluster,
            ) from error

    def interrupt(self) -> None:
        """End a `read` that waits, as if the silence had lasted."""
        if self._reading is not None and not self._reading.expired():
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._reading.reschedule(asyncio.get_running_loop().time())


def _tell(verb: str, kind: str, path: str, body: Mapping[str, Any] | None) -> Callable[[], None]:
    told = on_send.get()
    if told is None:
        return lambda: None
    return told(verb, kind, str(body["metadata"]["name"]) if verb == "create" and body else path.rpartition("/")[2])


def _document(data: bytes) -> dict[str, Any]:
    """JSON of any shape as a mapping; text such as `ok` becomes a message."""
    try:
        answer = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {"message": data[:1000].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"message": str(answer)[:1000]}
