"""Owner's and worker's sessions at their edges: a real server and connection, with sidecars that go missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.gpu_worker import sessions
from sync_runtime.gpu_worker.server import WorkerServer
from sync_runtime.gpu_worker.tensors import OwnedTensors
from sync_runtime.library import export_messages as x
from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_sessions import ExportedPublishSession, ExportedSubscribeSession
from sync_runtime.library.export_tensors import Exporter
from sync_runtime.library.settings import LibrarySettings, PublishOptions, SubscribeOptions
from sync_runtime.library.version import Version
from sync_runtime.local.frames import pack_frame
from tests.component.gpu_worker.rig import State, eventually, hello, in_files
from tests.support.toy_sidecar import ToySidecar, toy_sidecar

VERSION = Version("a" * 32, 4, "b" * 32, None)


class ScriptedSession:
    """Opens at once, has one state, and answers as it is told."""

    def __init__(self, live: Version | None, answer: Callable[[sessions.Request], sessions.Answer]) -> None:
        self._live, self.answer = live, answer

    def open(self) -> None:
        """At once."""

    def state(self) -> x.State:
        return x.State(self._live, None if self._live is None else VERSION, stale=True, poisoned=False)

    def watch(self) -> None:
        time.sleep(0.02)

    def note(self, tokens_per_second: int | None) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    running = WorkerServer(str(tmp_path / "w"), LibrarySettings("/nowhere", "test"))
    thread = threading.Thread(target=running.run)
    thread.start()
    yield str(tmp_path / "w")
    running.stop()
    thread.join()


@pytest.fixture
def state(tmp_path: Path) -> State:
    return in_files(tmp_path / "files", {"w": torch.arange(600.0)})


def mended(request: sessions.Request) -> sessions.Answer:
    assert isinstance(request, x.Activate | x.Close)
    return x.Activated(request.id, VERSION) if isinstance(request, x.Activate) else x.Closed(request.id, drained=True)


def test_torn_weights_are_mended_though_nothing_is_staged(
    server: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "make", lambda *_: ScriptedSession(None, mended))
    owner = ExportedSubscribeSession(module.attach(state), SubscribeOptions(), server)
    owner.open(5.0)
    assert (owner.version, owner.staging.staged) == (None, None)
    assert owner.activate(1.0) == VERSION
    owner.close()


def test_a_connection_that_fails_over_an_activation_leaves_no_claim_on_a_version(
    server: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def hang(request: sessions.Request) -> sessions.Answer:
        is_over.wait(10.0)
        return mended(request)

    made = iter([ScriptedSession(VERSION, hang)])
    monkeypatch.setattr(sessions, "make", lambda *_: next(made, ScriptedSession(None, mended)))
    owner = ExportedSubscribeSession(module.attach(state), SubscribeOptions(), server)
    owner.open(5.0)
    found: list[tuple[SyncError, Version | None]] = []

    def activate() -> None:
        try:
            owner.activate(1.0)
        except SyncError as error:
            found.append((error, owner.version))

    thread = threading.Thread(target=activate)
    assert owner.version == VERSION
    thread.start()
    eventually(lambda: owner.version is None)
    wire = owner.connection._wire
    assert wire is not None
    wire._socket.sendall(pack_frame(99, b"{}"))  # the worker answers FAILURE 0
    thread.join()
    is_over.set()
    assert isinstance(found[0][0], LocalProtocolError)
    assert found[0][1] is None
    owner.close()


def test_after_an_export_that_failed_the_next_one_is_a_new_attempt(
    server: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "make", lambda *_: ScriptedSession(VERSION, mended))
    owner = ExportedPublishSession(module.attach(state), PublishOptions(), server)
    connection, mapped = owner._connection, state["w"]
    state["w"] = torch.arange(600.0)
    with pytest.raises(ExportError, match="map it from a file"):
        connection.ready(5.0, 5.0)
    state["w"] = mapped
    assert connection.ready(5.0, 5.0) is connection.open_wire
    owner.close(0.0)


@contextmanager
def opened(path: Path, state: State) -> Iterator[tuple[sessions.PublisherSession, ToySidecar]]:
    exporter = Exporter(module.attach(state))
    tensors = OwnedTensors(lambda generation: exporter.validate(0, generation))
    tensors.adopt(exporter.export(1))
    with toy_sidecar(str(path / "sidecar")) as (sidecar, _):
        session = sessions.PublisherSession(tensors, hello("publisher"), LibrarySettings(str(path / "sidecar"), "test"))
        session.open()
        try:
            yield session, sidecar
        finally:
            session.close()


def test_a_publisher_whose_thread_ended_says_so(tmp_path: Path, state: State) -> None:
    with opened(tmp_path, state) as (session, _):
        session.watch()
        session._session.cut()
        with pytest.raises(LocalError, match="its thread failed"):
            session.watch()


def test_closing_does_not_wait_for_a_publish_under_way(tmp_path: Path, state: State) -> None:
    found: list[SyncError] = []

    def publish() -> None:
        try:
            session.answer(x.Publish(1, None, ""))
        except SyncError as error:
            found.append(error)

    with opened(tmp_path, state) as (session, sidecar):
        sidecar.silent = True
        known = len(sidecar.versions)
        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        eventually(lambda: len(sidecar.versions) > known)
        closing = threading.Thread(target=session.close, daemon=True)
        closing.start()
        closing.join(5.0)
        is_closed = not closing.is_alive()
        session._session.cut()  # so that the test ends where it fails
        thread.join(5.0)
        assert is_closed
        assert found
