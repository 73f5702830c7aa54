"""The control API of PROTOCOL.md, section 7. Shows what the sidecar says about itself; knows nothing of how it works.

Bound to loopback or to the pod; it carries no weights and no secrets. Readings are plain JSON documents that a
`SidecarView` hands out.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import web

from sync_runtime.control import work
from sync_runtime.control.exposition import CONTENT_TYPE, Reading, rendered
from sync_runtime.settings import Address

Document = Mapping[str, object]


class SidecarView(Protocol):
    """What the API shows and may ask for."""

    def live(self) -> Sequence[str]:
        """Why it is not alive; empty: it is."""

    def ready(self) -> Sequence[str]:
        """Why it is not ready; empty: it is."""

    def status(self) -> Document:
        """The member report and what it is doing."""

    def links(self) -> Document:
        """Links with samples and decisions."""

    def versions(self) -> Document:
        """What the spool holds."""

    def refusals(self) -> Mapping[str, int]:
        """Counts by reason."""

    def metrics(self) -> Sequence[Reading]:
        """Figures, as they are now."""

    @property
    def work(self) -> work.WorkPort | None:
        """Groups for workers that speak HTTP; None: this is no rollout's sidecar."""

    async def drain(self) -> Document:
        """Finishes what is in flight and takes nothing new; asked again it tells whether that is done."""

    async def reload(self) -> None:
        """Reads plan and certificates now."""


_SERVER: web.AppKey[ControlServer] = web.AppKey("server")


class ControlServer:
    """The HTTP server of one sidecar."""

    def __init__(self, view: SidecarView, address: Address) -> None:
        self.view = view
        """May be replaced: a sidecar that starts has another one than one that is whole."""
        self._address = address
        self._app = web.Application(client_max_size=64 << 10)
        self._app[_SERVER] = self
        self._app.add_routes(_ROUTES)
        self._runner = web.AppRunner(self._app, access_log=None)
        self.port = 0

    async def start(self) -> None:
        """Listens; `port` is then the real one."""
        await self._runner.setup()
        site = web.SockSite(self._runner, _listening(self._address))
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Ends it."""
        await self._runner.cleanup()


def _listening(address: Address) -> socket.socket:
    """`::` takes both families: a server of asyncio would refuse IPv4 there, by which kubelets probe."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    both = address.host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((address.host, address.port), family=family, dualstack_ipv6=both)


def _view(request: web.Request) -> SidecarView:
    return request.app[_SERVER].view


async def _livez(request: web.Request) -> web.Response:
    return _probe(_view(request).live())


async def _readyz(request: web.Request) -> web.Response:
    return _probe(_view(request).ready())


async def _status(request: web.Request) -> web.Response:
    return _json(_view(request).status())


async def _links(request: web.Request) -> web.Response:
    return _json(_view(request).links())


async def _versions(request: web.Request) -> web.Response:
    return _json(_view(request).versions())


async def _refusals(request: web.Request) -> web.Response:
    return _json(_view(request).refusals())


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(text=rendered(_view(request).metrics()), headers={"Content-Type": CONTENT_TYPE})


async def _drain(request: web.Request) -> web.Response:
    return _json(await _view(request).drain())


async def _reload(request: web.Request) -> web.Response:
    await _view(request).reload()
    return _json({"reloaded": True})


_ROUTES = [
    web.get("/livez", _livez),
    web.get("/readyz", _readyz),
    web.get("/v1/status", _status),
    web.get("/v1/links", _links),
    web.get("/v1/versions", _versions),
    web.get("/v1/refusals", _refusals),
    web.get("/metrics", _metrics),
    web.post("/v1/drain", _drain),
    web.post("/v1/reload", _reload),
    *work.routes(lambda request: _view(request).work),
]


def _probe(reasons: Sequence[str]) -> web.Response:
    return web.json_response({"ok": not reasons, "reasons": list(reasons)}, status=503 if reasons else 200)


def _json(document: Mapping[str, object]) -> web.Response:
    return web.Response(text=json.dumps(document, indent=1, sort_keys=True) + "\n", content_type="application/json")
