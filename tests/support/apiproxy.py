"""A proxy in front of a real API server that answers wrongly, late or not at all, by rule.

    with ApiProxy(region.kubeconfig) as proxy:
        proxy.add(Rule(method="PATCH", path="/leases/", status=409))        # the next one; times=None: every one
        proxy.add(Rule(path="/pods", watch=True, freeze=True))
        cluster = Cluster("hub", from_kubeconfig(proxy.kubeconfig()))

It ends TLS with an authority of its own and goes to the server with the credentials of the kubeconfig it was given, so
that the whole of any client can be pointed at it. It runs in a thread with its own loop: the code under test may be in
this process or in another one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from tools.devcluster import kubeconfig as kubeconfigs
from tools.devcluster.pki import Authority

START_TIMEOUT_S = 10.0
_HOP_HEADERS = {"host", "authorization", "accept-encoding", "connection", "transfer-encoding", "content-length"}


@dataclass
class Rule:
    """What happens to which requests. The first rule that matches and is not used up counts."""

    method: str = ""
    path: str = ""
    """A regular expression, found anywhere in the path with its query."""
    watch: bool | None = None
    """Only watches, or only other requests."""
    times: int | None = 1
    skip: int = 0
    """How many that match pass before."""

    status: int | None = None
    """Answered with this, without asking the server."""
    body: dict[str, Any] | None = None
    """Of that answer; a Kubernetes Status by default."""
    retry_after: str | None = None
    location: str | None = None
    delay_s: float = 0.0
    drop: bool = False
    """The connection ends without an answer, the server never hears of it."""
    lose_answer: bool = False
    """The server acts, but its answer is lost."""
    freeze: bool = False
    """Nothing is answered, and the connection stays. For a watch: the stream opens and says nothing."""

    hits: int = 0

    def takes(self, request: web.BaseRequest) -> bool:
        """Whether it decides about this request."""
        is_watch = "watch=" in request.path_qs
        if self.method and request.method != self.method:
            return False
        if self.watch not in (None, is_watch) or not re.search(self.path, request.path_qs):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


@dataclass
class ApiProxy:
    """The proxy; a context manager."""

    upstream: Path
    """The kubeconfig (JSON) of the server behind it."""
    rules: list[Rule] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of everything that was asked."""
    _watches: set[asyncio.Transport] = field(default_factory=set)
    _connections: set[asyncio.Transport] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="apiproxy-")
        self._pki = Path(self._folder.name)
        Authority(self._pki).server("proxy", "proxy", None, ["127.0.0.1", "localhost"])
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="apiproxy", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(START_TIMEOUT_S)
        self._folder.cleanup()

    def kubeconfig(self) -> str:
        """A kubeconfig whose server is this proxy."""
        server = f"https://127.0.0.1:{self._port}"
        return kubeconfigs.with_token(self._pki, name="proxy", server=server, token="any")

    def add(self, rule: Rule) -> Rule:
        """A further rule; the same object counts its hits."""
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """No rules any more."""
        self.rules.clear()

    def cut_watches(self) -> None:
        """End every open watch in the middle of its stream."""
        self._call(lambda: _abort(self._watches))

    def freeze(self) -> None:
        """Nothing passes any more, and no connection ends: a cut link."""
        self._call(self._flowing.clear)

    def thaw(self) -> None:
        """It passes again."""
        self._call(self._flowing.set)

    def refuse(self) -> None:
        """No connection is accepted, and those that are there end."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(START_TIMEOUT_S)

    def accept(self) -> None:
        """Connections are accepted again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_TIMEOUT_S)

    def _call(self, act: Callable[[], object]) -> None:
        async def acted() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result(START_TIMEOUT_S)

    # --- inside the thread --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended, self._flowing = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._port = 0
        self._server = web.Server(self._handle, handler_cancellation=True)
        async with _upstream(self.upstream) as (self._session, self._origin):
            runner = web.ServerRunner(self._server, shutdown_timeout=0.2)
            await runner.setup()
            self._runner = runner
            await self._listen()
            self._ready.set()
            await self._ended.wait()
            self._flowing.set()
            _abort(self._connections)
            await runner.cleanup()

    async def _listen(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._pki / "proxy.crt", self._pki / "proxy.key")
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._site.stop()
        _abort(self._connections)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        rule = next((rule for rule in list(self.rules) if rule.takes(request)), None) or Rule()
        await self._flowing.wait()
        await asyncio.sleep(rule.delay_s)
        if rule.drop:
            transport.abort()
            return web.Response()
        if rule.status is not None:
            return _answer(rule)
        if rule.freeze and "watch=" not in request.path_qs:
            await self._ended.wait()
        with contextlib.suppress(OSError, aiohttp.ClientError):  # either side left
            return await self._forward(request, transport, rule)
        transport.abort()
        return web.Response()

    async def _forward(self, request: web.BaseRequest, transport: asyncio.Transport, rule: Rule) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP_HEADERS}
        headers["Accept-Encoding"] = "identity"
        body = await request.read()
        async with self._session.request(
            request.method, self._origin + request.path_qs, data=body or None, headers=headers
        ) as upstream:
            if rule.lose_answer:
                await upstream.read()
                transport.abort()
            kept = {key: value for key, value in upstream.headers.items() if key.lower() not in _HOP_HEADERS}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            if "watch=" in request.path_qs:
                self._watches.add(transport)
            try:
                await self._pass(upstream, response, frozen=rule.freeze)
            finally:
                self._watches.discard(transport)
            await response.write_eof()
            return response

    async def _pass(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, *, frozen: bool) -> None:
        async for chunk in upstream.content.iter_any():
            if frozen:
                continue
            await self._flowing.wait()
            await response.write(chunk)


def _answer(rule: Rule) -> web.Response:
    status = rule.status or 500
    body = rule.body or {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "message": "injected",
    }
    headers = {"Retry-After": rule.retry_after, "Location": rule.location}
    # One line, so that a watch can be given an event.
    return web.Response(
        status=status,
        text=json.dumps(body) + "\n",
        content_type="application/json",
        headers={key: value for key, value in headers.items() if value is not None},
    )


def _abort(transports: set[asyncio.Transport]) -> None:
    for transport in transports:
        transport.abort()
    transports.clear()


def _login(path: Path) -> tuple[str, ssl.SSLContext, dict[str, str]]:
    """The server of a kubeconfig and what it takes to be known there."""
    document = json.loads(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    if "token" in user:
        return cluster["server"], context, {"Authorization": f"Bearer {user['token']}"}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("client-certificate", "client-key"):
            Path(folder, name).write_bytes(base64.b64decode(user[f"{name}-data"]))
        context.load_cert_chain(Path(folder, "client-certificate"), Path(folder, "client-key"))
    return cluster["server"], context, {}


@contextlib.asynccontextmanager
async def _upstream(path: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session that logs in with the kubeconfig's credentials."""
    server, context, headers = _login(path)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        yield session, server
