"""A real S3 server, a proxy in front of it that fails on demand, and a trainer and a member on both sides of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.transport.object_store.folder import FolderStore
from sync_runtime.transport.object_store.remote import RemoteStore
from tests.support.s3 import BUCKET, S3Server, s3_server
from tests.support.store_faults import FaultProxy
from tests.support.stores import Member, TrainerSide


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
def inside(server: S3Server, prefix: str) -> FolderStore:
    """What the server keeps, seen without it."""
    return FolderStore(server.folder / BUCKET / prefix)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[TrainerSide]:
    side = TrainerSide.make(tmp_path)
    with side.spool:
        yield side


@pytest.fixture
def member(trainer: TrainerSide, plain: RemoteStore, tmp_path: Path) -> Iterator[Member]:
    one = Member.of(trainer, plain, tmp_path / "member")
    yield one
    one.reader.close()
    one.spool.close()


@pytest.fixture
def faulty(proxy: FaultProxy, server: S3Server, prefix: str) -> RemoteStore:
    """The store through the proxy."""
    return RemoteStore(server.url_through(proxy.address), prefix, server.credentials, timeout_s=5, connect_s=2)


@pytest.fixture
def plain(server: S3Server, prefix: str) -> RemoteStore:
    """The same store, straight."""
    return RemoteStore(server.url, prefix, server.credentials)
