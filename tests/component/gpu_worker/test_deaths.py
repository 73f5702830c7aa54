"""Owner or worker dies: the other notices at once, and goes on when its peer is back."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from sync_runtime.errors import LocalError, SidecarLostError
from sync_runtime.library import export_messages as x
from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import WorkerLostError
from sync_runtime.library.export_tensors import Exporter
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from tests.component.gpu_worker.rig import WorkerProcess, dialled, eventually, hello, in_files
from tests.component.local.rig import Pair, copy_of, same, small_state, train, waited
from tests.support.noticing import AT_ONCE_S, END_OF_FILE

pytestmark = pytest.mark.timeout(180)  # workers that import torch are started again and again


def test_a_killed_worker_is_noticed_and_its_successor_goes_on(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    weights, replica = in_files(files / "w", small_state()), in_files(files / "r", small_state())
    options = {"gpu_access": "CudaIpc", "worker_socket": worker.socket}
    with (
        Publisher(weights, patience=0.1, **options) as publisher,  # type: ignore[arg-type]
        Subscriber(replica, **options) as subscriber,  # type: ignore[arg-type]
    ):
        train(weights)
        first = publisher.publish()
        waited(subscriber, seq=1)
        worker.kill()
        eventually(lambda: subscriber.stale and subscriber.staged is None, AT_ONCE_S)
        assert subscriber.version is not None
        assert subscriber.version.seq == 0
        with pytest.raises(WorkerLostError):
            publisher.publish()
        with pytest.raises(WorkerLostError):
            subscriber.scrub()
        worker.start()
        eventually(lambda: subscriber.wait(timeout=0.0) is None and subscriber._session.connection.is_open)
        pair[1].call(pair[0].stage_newest())  # the sidecar stages again what the last worker had
        assert waited(subscriber, seq=1) == first
        assert subscriber.activate() == first
        assert same(weights, replica)
        second = Publisher(weights, **options)  # type: ignore[arg-type]
        assert second.version == first  # the weights are the newest version: its lineage goes on
        second.close(drain=0.0)
        train(weights)
        eventually(lambda: publisher._session._connection._wire is not None)  # type: ignore[attr-defined]
        assert publisher.publish(step=9).step == 9


def test_a_worker_that_dies_over_an_activation_leaves_no_claim_on_a_version(
    worker: WorkerProcess, pair: Pair, files: Path
) -> None:
    weights, replica = in_files(files / "w", small_state()), in_files(files / "r", small_state())
    options = {"gpu_access": "CudaIpc", "worker_socket": worker.socket}
    with Publisher(weights, **options) as publisher, Subscriber(replica, **options) as subscriber:  # type: ignore[arg-type]
        train(weights)
        publisher.publish()
        waited(subscriber, seq=1)
        before = copy_of(replica)
        found: list[Exception] = []
        worker.send(signal.SIGSTOP)
        thread = threading.Thread(target=lambda: found.append(_failure_of(subscriber)))
        thread.start()
        eventually(lambda: subscriber.version is None)  # asked for, not answered: who knows
        worker.kill()
        killed_at = time.monotonic()
        thread.join()
        assert time.monotonic() - killed_at < AT_ONCE_S
        assert isinstance(found[0], WorkerLostError)
        assert re.search(END_OF_FILE, str(found[0]))
        assert subscriber.version is None
        assert subscriber.stale
        worker.start()
        eventually(lambda: subscriber.version is not None and subscriber.version.seq == 0)  # its digest proves it
        assert same(before, replica)


def _failure_of(subscriber: Subscriber) -> Exception:
    try:
        subscriber.activate()
    except LocalError as error:
        return error
    return AssertionError("it activated")


def test_an_owner_that_dies_is_gone_from_the_sidecar_at_once(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    state = in_files(files, small_state())
    exporter = Exporter(module.attach(state))
    with dialled(worker.socket, hello("subscriber")) as wire:
        wire.send(exporter.export(wire.new_id()))
        is_open = False
        while not is_open:
            for message in wire.receive(10.0):
                is_open = is_open or isinstance(message, x.Opened)
                if isinstance(message, x.Validate):
                    wire.send(exporter.validate(message.id, message.generation))
        assert len(pair[0].members) == 1
    eventually(lambda: not pair[0].members, AT_ONCE_S)
    with Publisher(state, gpu_access="CudaIpc", worker_socket=worker.socket) as publisher:  # the worker serves others
        train(state)
        publisher.publish()


def test_without_a_worker_or_without_a_sidecar_opening_says_so(worker: WorkerProcess, files: Path) -> None:
    state = in_files(files, small_state())
    with pytest.raises(WorkerLostError, match="nobody answered at /nowhere"):
        Publisher(state, gpu_access="CudaIpc", worker_socket="/nowhere", timeout=0.1)
    if not worker.is_alive:
        worker.start()
    with pytest.raises(SidecarLostError, match="no sidecar"):
        Publisher(state, gpu_access="CudaIpc", worker_socket=worker.socket, timeout=0.3)


def test_a_worker_ends_when_it_is_told_to(tmp_path: Path) -> None:
    process = WorkerProcess(tmp_path)
    process.start()
    with dialled(process.socket, hello()):
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert not Path(process.socket).exists()


def test_a_forked_child_neither_uses_nor_keeps_its_parents_connection(
    worker: WorkerProcess, pair: Pair, files: Path
) -> None:
    state = in_files(files, small_state())
    publisher = Publisher(state, gpu_access="CudaIpc", worker_socket=worker.socket)
    child = os.fork()
    if child == 0:  # nothing of the test framework may run in here
        refused = False
        try:
            publisher.publish()
        except LocalError as error:
            wire = publisher._session._connection._wire  # type: ignore[attr-defined]
            kept = wire._socket.fileno() >= 0  # it would hide the parent's death from the worker
            refused = "belongs to the parent" in str(error) and not publisher.close() and not kept
        finally:
            os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(state)
    assert publisher.publish().seq == 1
    publisher.close(drain=0.0)


def test_a_worker_that_hangs_is_noticed_though_its_process_lives(
    worker: WorkerProcess, pair: Pair, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sync_runtime.library.export_client.SILENT_S", 10.0)  # a sign of life comes every five seconds
    state = in_files(files, small_state())
    with Publisher(state, gpu_access="CudaIpc", worker_socket=worker.socket, patience=0.1) as publisher:
        time.sleep(11.0)  # nothing is asked of it meanwhile
        train(state)
        assert publisher.publish().seq == 1
        worker.send(signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            with pytest.raises(WorkerLostError, match="it said nothing for 10 s"):
                publisher.publish()
            assert time.monotonic() - began_s < 20.0
        finally:
            worker.send(signal.SIGCONT)
