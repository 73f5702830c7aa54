"""An API server that misbehaves on demand, as far as a member meets one: a ConfigMap, its watch, requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from sync_runtime.contract.names import PLAN_KEY
from sync_runtime.contract.plan import Plan
from sync_runtime.identity.ca import read_request, sign_request
from sync_runtime.membership.api import ClusterApi
from sync_runtime.settings import Address, SidecarSettings
from tests.support.identities import DAY, GROUP_UID, Group, now

Watch = Callable[["ApiServer", web.StreamResponse], Any]
"""How one watch goes on after its headers; its end ends the watch."""


class ApiServer:
    """One server; `watches` says how each watch goes, the last one again and again."""

    def __init__(self) -> None:
        self.config_map: dict[str, Any] | None = None
        self.version = 1
        self.seen = 0
        """The version that the present watch has told."""
        self.list_status = 200
        self.watch_status = 200
        self.watches: list[Watch] = [changes]
        self.changed = asyncio.Event()
        self.lists = 0
        self.requests: dict[str, dict[str, Any]] = {}
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda _: {}
        """The status of a request when it is looked at; None: it is gone."""
        self.request_status = 201

    def put(self, text: str) -> None:
        """The ConfigMap holds this from now on."""
        self.version += 1
        self.config_map = {
            "metadata": {"name": "plan", "resourceVersion": str(self.version)},
            "data": {PLAN_KEY: text},
        }
        self.changed.set()

    @contextlib.asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[ClusterApi]:
        """Serves; a client that is logged in."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/api/v1/namespaces/space/configmaps", self._config_maps),
                web.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", self._post),
                web.get("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}", self._get),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        path = folder / "kubeconfig"
        path.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
        api = ClusterApi(kubeconfig=path)
        try:
            yield api
        finally:
            await api.close()
            await runner.cleanup()

    async def _config_maps(self, request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == "metadata.name=plan"
        if "watch" not in request.query:
            self.lists += 1
            items = [] if self.config_map is None else [self.config_map]
            document = {"metadata": {"resourceVersion": str(self.version)}, "items": items, "message": "no"}
            return web.json_response(document, status=self.list_status)
        if self.watch_status != 200:
            return web.json_response({"message": "you may not watch"}, status=self.watch_status)
        self.seen = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        watch = self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]
        with contextlib.suppress(ConnectionError):
            await watch(self, response)
        return response

    async def _post(self, request: web.Request) -> web.Response:
        document = await request.json()
        if self.request_status == 201:
            self.requests[document["metadata"]["name"]] = document
        return web.json_response(document | {"message": "not now"}, status=self.request_status)

    async def _get(self, request: web.Request) -> web.Response:
        document = self.requests[request.match_info["name"]]
        status = self.answer(document)
        if status is None:
            return web.json_response({"message": "gone"}, status=404)
        return web.json_response(document | {"status": status})


async def changes(server: ApiServer, response: web.StreamResponse) -> None:
    """A good watch: every change, for ever."""
    while True:
        server.changed.clear()
        if server.version > server.seen:
            server.seen = server.version
            await event(response, "MODIFIED", server.config_map or {})
        await server.changed.wait()


async def silence(_: ApiServer, __: web.StreamResponse) -> None:
    """A watch that is dead, and nobody notices."""
    await asyncio.sleep(60)


async def gone(_: ApiServer, response: web.StreamResponse) -> None:
    """The version is too old."""
    await event(response, "ERROR", {"code": 410, "message": "too old resource version"})


async def garbage(_: ApiServer, response: web.StreamResponse) -> None:
    """Lines that are no events."""
    await response.write(b'7\n{"type":"ADDED"}\n{"type":"BOOKMARK","object":{}}\nnot JSON\n')


async def event(response: web.StreamResponse, kind: str, document: dict[str, Any]) -> None:
    await response.write(json.dumps({"type": kind, "object": document}).encode() + b"\n")


def signs(group: Group) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers every request with a certificate for whatever it asks."""

    def answer(document: dict[str, Any]) -> dict[str, Any]:
        pem = base64.b64decode(document["spec"]["request"])
        identity, _ = read_request(pem)
        certificate = sign_request(group.authority, pem, identity, now=now(), lifetime=DAY)
        return issued(certificate)

    return answer


def issued(certificate_pem: bytes) -> dict[str, Any]:
    return {"conditions": [{"type": "Approved"}], "certificate": base64.b64encode(certificate_pem).decode()}


def settings_in(folder: Path, **changes: Any) -> SidecarSettings:
    """A rollout's, with its volumes in a folder."""
    found: dict[str, Any] = {
        "group": "demo",
        "group_namespace": "team-a",
        "group_uid": GROUP_UID,
        "member": "worker-0",
        "role": "rollout",
        "cluster": "local",
        "region": "eu-west",
        "plan_path": folder / "plan/plan.json",
        "identity_dir": folder / "identity",
        "trust_dir": folder / "trust",
        "spool_dir": folder / "spool",
        "socket_path": folder / "socket",
        "listen": Address("127.0.0.1", 0),
        "control": Address("127.0.0.1", 0),
        "pod_namespace": "space",
        "pod_name": "worker-0",
        "pod_uid": "pod-uid",
        "plan_config_map": "plan",
    }
    return SidecarSettings(**found | changes)


def plan(**changes: Any) -> Plan:
    """A plan for that rollout."""
    found: dict[str, Any] = {
        "formatVersion": 1,
        "groupUid": GROUP_UID,
        "groupNamespace": "team-a",
        "groupName": "demo",
        "cluster": "local",
        "region": "eu-west",
        "term": 1,
        "revision": 1,
        "transport": "Streams",
        "maxStaleness": 4,
        "anchorEvery": 0,
        "retention": {},
        "members": [{"name": "worker-0", "role": "Rollout"}],
        "links": [],
        "lease": {"durationSeconds": 10, "renewIntervalSeconds": 1},
    }
    return Plan.parse(found | changes)


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Waits for something that a task brings about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 what is waited for is a file, not an event
            await asyncio.sleep(0.01)


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"token": "secret"}}],
    }
