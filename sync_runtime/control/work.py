"""Work leases over HTTP, for workers that are not Python (PROTOCOL.md, section 11.3).

From the same machine only: the control port may be reachable from elsewhere, and whoever may complete work may decide
what is trained on. Bodies are bounded before they are read. Knows nothing of how work is leased.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from aiohttp import web

from sync_runtime.errors import SyncError

MAX_WAIT_MS: Final = 60_000
MAX_JSON_BYTES: Final = 4 << 10
DRAINED_BYTES: Final = 16 << 20
"""Read and thrown away beyond a limit: a client that is still sending does not hear the answer."""
_LEASE: Final = re.compile("[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}")
Document = Mapping[str, object]


class WorkPort(Protocol):
    """A worker's groups."""

    @property
    def max_payload_bytes(self) -> int:
        """Of a result."""

    async def take(self, wait_s: float, lost: Callable[[], bool]) -> Document | None:
        """A group; None: none came, or who asked is lost."""

    def complete(self, lease: str, tokens: int, payload: bytes) -> Document:
        """A result: `{taken, reason, message}`."""

    def release(self, lease: str, reason: str, *, failed: bool) -> None:
        """Gives a lease back."""


PortOf = Callable[[web.Request], WorkPort | None]
_Handler = Callable[[web.Request, WorkPort], Awaitable[web.StreamResponse]]


def routes(port_of: PortOf) -> list[web.RouteDef]:
    """The paths; `port_of` finds the worker's groups, or None where there is no worker."""

    def served(handler: _Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            port = port_of(request)
            if not is_local(request.remote):
                return _problem(403, "NotLocal", "work is handed out to processes of this machine only")
            if port is None:
                return _problem(404, "NoWorker", "this is not the sidecar of a rollout")
            try:
                return await handler(request, port)
            except _BadRequestError as error:
                return _problem(error.status, "BadRequest", str(error))
            except SyncError as error:
                return _problem(409, type(error).__name__.removesuffix("Error"), str(error))

        return answer

    return [
        web.post("/v1/work/take", served(_take)),
        web.post("/v1/work/{lease}/complete", served(_complete)),
        web.post("/v1/work/{lease}/release", served(_release)),
    ]


def is_local(remote: str | None) -> bool:
    """Whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(remote or "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class _BadRequestError(Exception):
    """What the client sent cannot be used."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


async def _take(request: web.Request, port: WorkPort) -> web.StreamResponse:
    wait_ms = (await _json_body(request)).get("wait_ms", 0)
    if type(wait_ms) is not int or not 0 <= wait_ms <= MAX_WAIT_MS:
        raise _BadRequestError(f"wait_ms must be a number from 0 to {MAX_WAIT_MS}")

    def lost() -> bool:
        return request.transport is None or request.transport.is_closing()

    found = await port.take(wait_ms / 1000, lost)
    return web.Response(status=204) if found is None else web.json_response(found)


async def _complete(request: web.Request, port: WorkPort) -> web.StreamResponse:
    tokens = request.query.get("tokens", "0")
    if not tokens.isdecimal() or len(tokens) > 15:
        raise _BadRequestError("tokens must be a number")
    payload = await _body(request, port.max_payload_bytes)
    found = port.complete(_lease(request), int(tokens), payload)
    return web.json_response(found, status=200 if found["taken"] else 409)


async def _release(request: web.Request, port: WorkPort) -> web.StreamResponse:
    document = await _json_body(request)
    reason, failed = document.get("reason", ""), document.get("failed", False)
    if not isinstance(reason, str) or len(reason) > 256 or not isinstance(failed, bool):
        raise _BadRequestError("reason must be a text of at most 256 characters, failed true or false")
    port.release(_lease(request), reason, failed=failed)
    return web.json_response({"released": True})


def _lease(request: web.Request) -> str:
    lease = request.match_info["lease"]
    if not _LEASE.fullmatch(lease):
        raise _BadRequestError("this is not the name of a work lease")
    return lease


async def _body(request: web.Request, limit_bytes: int) -> bytes:
    """All of a body, or an error before more than the limit was kept."""
    found, size_bytes = bytearray(), 0
    async for chunk in request.content.iter_chunked(1 << 16):
        size_bytes += len(chunk)
        if size_bytes <= limit_bytes:
            found += chunk
        elif size_bytes > limit_bytes + DRAINED_BYTES:
            break
    if size_bytes > limit_bytes:
        raise _BadRequestError(f"the body has more than {limit_bytes} bytes", 413)
    return bytes(found)


async def _json_body(request: web.Request) -> Document:
    data = await _body(request, MAX_JSON_BYTES)
    try:
        document = json.loads(data or b"{}")
    except ValueError as error:
        raise _BadRequestError(f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _BadRequestError("the body must be a JSON object")
    return document


def _problem(status: int, reason: str, message: str) -> web.Response:
    return web.json_response({"taken": False, "reason": reason, "message": message}, status=status)
