"""A pod's own token and authority change on disk while it runs: both are read again, by our client and for kopf."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.config import incluster_config

from syncgroup_operator.errors import UnreachableError
from syncgroup_operator.handlers.login import GOOD_FOR, login
from syncgroup_operator.kube.access import InCluster, KubeconfigFile
from syncgroup_operator.kube.client import Cluster
from syncgroup_operator.kube.connection import RENEW_EVERY_S
from syncgroup_operator.kube.limits import ClientLimits
from tests.support.operators import free_port
from tools.devcluster.pki import Authority

HOST = "127.0.0.1"


class ApiServer:
    """Something that speaks TLS and tells its version to anybody; with a certificate of any authority."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.tokens: list[str] = []
        self._folder = folder

    def authority(self, name: str) -> Path:
        """A folder with ca.crt and a certificate for this server."""
        folder = self._folder / name
        folder.mkdir()
        Authority(folder).server("server", "server", None, [HOST])
        return folder

    @contextlib.asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[None]:
        """With the certificate of that folder, until the block ends."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        runner = web.AppRunner(_application(self.tokens))
        await runner.setup()
        await web.TCPSite(runner, HOST, self.port, ssl_context=context, reuse_address=True).start()
        try:
            yield
        finally:
            await runner.cleanup()


def _application(tokens: list[str]) -> web.Application:
    async def version(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"].rpartition(" ")[2])
        return web.json_response({"major": "1"})

    application = web.Application()
    application.router.add_get("/version", version)
    return application


@pytest.fixture
def server(tmp_path: Path) -> ApiServer:
    return ApiServer(tmp_path)


@pytest.fixture
def pod(tmp_path: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a kubelet would mount."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", HOST)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    return folder


def test_a_new_authority_of_the_cluster_is_trusted_once_its_file_is_there_and_the_old_one_no_longer(
    server: ApiServer, pod: Path
) -> None:
    old, new = server.authority("old"), server.authority("new")

    async def scenario() -> dict[str, Any]:
        now_s = 1000.0
        cluster = Cluster("hub", InCluster(), ClientLimits(), clock_s=lambda: now_s)
        (pod / "ca.crt").write_bytes((old / "ca.crt").read_bytes())
        async with server.running(old):
            await cluster.version()
        async with server.running(new):
            with pytest.raises(UnreachableError, match="certificate"):  # the kubelet has not written it yet
                await cluster.version()
            (pod / "ca.crt").write_bytes((new / "ca.crt").read_bytes())
            now_s += RENEW_EVERY_S
            with pytest.raises(UnreachableError, match="certificate"):  # this one makes us look
                await cluster.version()
            found = await cluster.version()
        async with server.running(old):
            with pytest.raises(UnreachableError, match="certificate"):
                await cluster.version()
        await cluster.close()
        return found

    assert asyncio.run(scenario()) == {"major": "1"}


def test_a_kubeconfig_file_may_name_another_authority_while_the_operator_runs(
    server: ApiServer, tmp_path: Path
) -> None:
    old, new = server.authority("old"), server.authority("new")
    path = tmp_path / "kubeconfig"

    def write(folder: Path) -> None:
        cluster = {"server": f"https://{HOST}:{server.port}", "certificate-authority": str(folder / "ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": folder.name}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(document))

    async def scenario() -> None:
        write(old)
        cluster = Cluster("hub", KubeconfigFile(path), ClientLimits())
        async with server.running(old):
            await cluster.version()
        write(new)
        async with server.running(new):
            with pytest.raises(UnreachableError):
                await cluster.version()
            await cluster.version()
        await cluster.close()

    asyncio.run(scenario())
    assert server.tokens == ["old", "new"]


def test_a_renewed_token_is_used_within_a_minute_though_nobody_refused_the_old_one(
    server: ApiServer, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.authority("only")
    (pod / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())

    later = types.SimpleNamespace(now=lambda: datetime.datetime.now() + datetime.timedelta(seconds=61))  # noqa: DTZ005

    async def scenario() -> None:
        cluster = Cluster("hub", InCluster(), ClientLimits())
        async with server.running(folder):
            await cluster.version()
            (pod / "token").write_text("second")
            await cluster.version()
            with monkeypatch.context() as patch:
                patch.setattr(incluster_config, "datetime", types.SimpleNamespace(datetime=later))
                await cluster.version()
        await cluster.close()

    asyncio.run(scenario())
    assert server.tokens == ["first", "first", "second"]


def test_kopf_gets_the_pods_token_as_it_is_now_and_asks_again_after_a_while(server: ApiServer, pod: Path) -> None:
    (pod / "ca.crt").write_bytes((server.authority("only") / "ca.crt").read_bytes())
    begun = datetime.datetime.now(datetime.UTC)
    found = asyncio.run(login(None))
    assert (found.server, found.token, found.ca_path) == (f"https://{HOST}:{server.port}", "first", str(pod / "ca.crt"))
    assert found.expiration is not None
    assert begun < found.expiration <= datetime.datetime.now(datetime.UTC) + GOOD_FOR
    (pod / "token").write_text("second")
    assert asyncio.run(login(None)).token == "second"
