"""Signs of life: a worker that hangs is noticed, one that is slow is named and waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sync_runtime.gpu_worker import sessions
from sync_runtime.gpu_worker.pulse import SLOW_FACTOR, SLOW_S, Pulse
from sync_runtime.gpu_worker.server import WorkerServer
from sync_runtime.library import export_messages as x
from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import WorkerLostError
from sync_runtime.library.export_sessions import ExportedSubscribeSession
from sync_runtime.library.settings import LibrarySettings, SubscribeOptions
from sync_runtime.library.version import Version
from tests.component.gpu_worker.rig import in_files

VERSION = Version("a" * 32, 4, "b" * 32, None)
QUIET = x.Beat(None, 0)


class Clock:
    """A clock that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_is_slow_before_its_time() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    assert pulse.beat() == QUIET
    with pulse.under_way("Publish"):
        clock.now_s = SLOW_S
        assert pulse.beat() == QUIET
        clock.now_s += 1
        assert pulse.beat() == x.Beat("Publish", int((SLOW_S + 1) * 1000))
    assert pulse.beat() == QUIET


def test_a_request_is_measured_by_the_longest_of_its_kind() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    with pulse.under_way("Publish"):
        clock.now_s = 20.0
    with pulse.under_way("Publish"):
        clock.now_s += SLOW_FACTOR * 20.0
        assert pulse.beat() == QUIET
        with pulse.under_way("Scrub"):
            clock.now_s += SLOW_S + 1
            assert pulse.beat().request == "Publish"  # the oldest
        assert pulse.beat().request == "Publish"


class SlowSession:
    """A session that takes its time to activate."""

    def __init__(self, release: threading.Event) -> None:
        self._release = release

    def open(self) -> None:
        """At once."""

    def answer(self, request: sessions.Request) -> sessions.Answer:
        if isinstance(request, x.Close):
            return x.Closed(request.id, drained=True)
        self._release.wait(10.0)
        return x.Activated(request.id, VERSION)

    def state(self) -> x.State:
        return x.State(None, None, stale=True, poisoned=False)

    def watch(self) -> None:
        time.sleep(0.02)

    def note(self, tokens_per_second: int | None) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets the worker's session answer."""
    event = threading.Event()
    monkeypatch.setattr(sessions, "make", lambda *_: SlowSession(event))
    # Before the owner dials: the first pause between two signs of life begins with the connection.
    monkeypatch.setattr("sync_runtime.gpu_worker.owner.BEAT_S", 0.05)
    monkeypatch.setattr("sync_runtime.library.export_client.SILENT_S", 0.8)
    return event


@pytest.fixture
def owner(tmp_path: Path, release: threading.Event) -> Iterator[ExportedSubscribeSession]:
    server = WorkerServer(str(tmp_path / "w"), LibrarySettings("/nowhere", "test"))
    thread = threading.Thread(target=server.run)
    thread.start()
    state = in_files(tmp_path / "files", {"w": torch.arange(600.0)})
    made = ExportedSubscribeSession(module.attach(state), SubscribeOptions(), str(tmp_path / "w"))
    yield made
    release.set()
    made.close()
    server.stop()
    thread.join()


def test_a_slow_worker_is_named_and_waited_for(
    owner: ExportedSubscribeSession,
    release: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sync_runtime.gpu_worker.pulse.SLOW_S", 0.3)
    owner.open(5.0)
    threading.Timer(1.8, release.set).start()
    with caplog.at_level(logging.WARNING):
        assert owner.activate(1.0) == VERSION  # after more than twice the time that a silent worker is given
    told = [line for line in caplog.messages if "ACTIVATE has been under way" in line]
    assert len(told) == 1


def test_a_worker_that_sends_no_sign_of_life_is_lost(
    owner: ExportedSubscribeSession, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sync_runtime.gpu_worker.owner.BEAT_S", 60.0)
    owner.open(5.0)
    began_s = time.monotonic()
    with pytest.raises(WorkerLostError, match="it said nothing for"):
        owner.activate(1.0)
    assert time.monotonic() - began_s < 5.0
    assert owner.version is None
