"""The worker's server with a session that fails as a GPU does: the owner is told, and the worker ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from sync_runtime.errors import LocalError
from sync_runtime.gpu_worker import server as worker_server
from sync_runtime.gpu_worker import sessions
from sync_runtime.gpu_worker.server import WorkerServer
from sync_runtime.library import export_messages as x
from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import OwnerLostError, WorkerLostError
from sync_runtime.library.export_sessions import ExportedPublishSession
from sync_runtime.library.export_wire import Wire
from sync_runtime.library.settings import LibrarySettings, PublishOptions
from tests.component.gpu_worker.rig import dialled, hello

EMPTY = x.Export(1, 1, "", (), (), ())
NOTHING = x.State(None, None, stale=True, poisoned=False)


class FailingSession:
    """Opens, and then fails where it is told to."""

    def __init__(self, failing: str, error: Exception) -> None:
        self._failing, self._error = failing, error

    def open(self) -> None:
        self._fail("open")

    def answer(self, request: sessions.Request) -> sessions.Answer:
        self._fail("answer")
        return x.Scrubbed(request.id, passed=True)

    def state(self) -> x.State:
        return NOTHING

    def watch(self) -> None:
        threading.Event().wait(0.01)
        self._fail("watch")

    def note(self, tokens_per_second: int | None) -> None:
        self._fail("note")

    def close(self) -> None:
        self._failing = ""

    def _fail(self, where: str) -> None:
        if where == self._failing:
            raise self._error


@contextmanager
def serving(path: Path) -> Iterator[WorkerServer]:
    server = WorkerServer(str(path), LibrarySettings("/nowhere", "test"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def received(wire: Wire) -> list[x.Message]:
    """Everything until the worker hangs up."""
    found: list[x.Message] = []
    wire.run(found.append)
    return found


def drain(wire: Wire) -> None:
    """Receives until the end, or until nothing comes any more; raises which it was."""
    while True:
        wire.receive(5.0)


@pytest.mark.parametrize("where", ["open", "answer"])
def test_an_error_of_the_driver_is_told_and_ends_the_worker(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingSession(where, RuntimeError("CUDA error: an illegal memory access was encountered"))
    monkeypatch.setattr(sessions, "make", lambda *_: failing)
    with serving(tmp_path / "w") as server, dialled(str(tmp_path / "w"), hello()) as wire:
        wire.send(EMPTY)
        if where == "answer":
            while not any(isinstance(one, x.Opened) for one in wire.receive(5.0)):
                pass
            wire.send(x.Scrub(7))
        told = [one for one in received(wire) if isinstance(one, x.Failure)]
        assert [one.id for one in told] == [7 if where == "answer" else 1]
        assert "illegal memory access" in told[0].message
        assert server.is_broken
    assert not (tmp_path / "w").exists()


def test_a_session_whose_thread_ended_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "make", lambda *_: FailingSession("watch", LocalError("its thread failed")))
    with serving(tmp_path / "w") as server, dialled(str(tmp_path / "w"), hello()) as wire:
        wire.send(EMPTY)
        assert any(isinstance(one, x.Opened) for one in received(wire))
        assert server.is_broken


def test_an_ordinary_error_is_told_and_the_worker_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "make", lambda *_: FailingSession("answer", LocalError("not now")))
    with serving(tmp_path / "w") as server, dialled(str(tmp_path / "w"), hello()) as wire:
        wire.send(EMPTY)
        while not any(isinstance(one, x.Opened) for one in wire.receive(5.0)):
            pass
        resolving = threading.Thread(target=wire.run, args=(wire.resolve,))
        resolving.start()
        for request_id in (7, 8):
            with pytest.raises(LocalError, match="not now"):
                wire.ask(x.Scrub(request_id), request_id, x.Scrubbed, 5.0)
        assert not server.is_broken
    resolving.join()


def test_an_owner_that_does_not_answer_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "make", lambda *_: FailingSession("answer", OwnerLostError("no answer to VALIDATE")))
    with serving(tmp_path / "w") as server, dialled(str(tmp_path / "w"), hello()) as wire:
        wire.send(EMPTY)
        while not any(isinstance(one, x.Opened) for one in wire.receive(5.0)):
            pass
        wire.send(x.Scrub(7))
        with pytest.raises(WorkerLostError, match="closed the connection"):
            drain(wire)
        assert not server.is_broken


def test_another_user_is_told_so_unread_and_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LocalError("user 7 may not share")

    monkeypatch.setattr(worker_server, "check_peer", refuse)
    monkeypatch.setattr(worker_server, "MAX_OWNERS", 0)
    with serving(tmp_path / "w"):
        with dialled(str(tmp_path / "w")) as wire, pytest.raises(LocalError, match="user 7"):
            wire.receive(5.0)
        owner = ExportedPublishSession(module.attach({"w": torch.ones(2)}), PublishOptions(), str(tmp_path / "w"))
        with pytest.raises(LocalError, match="user 7"):
            owner.open(5.0)


def test_a_socket_that_a_dead_worker_left_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    settings = LibrarySettings("/nowhere", "test")
    left = WorkerServer(str(tmp_path / "w"), settings)
    with pytest.raises(LocalError, match="another GPU worker listens"):
        WorkerServer(str(tmp_path / "w"), settings)
    left._listener.close()
    with serving(tmp_path / "w") as server, dialled(str(tmp_path / "w"), hello()):
        assert not server.is_broken
