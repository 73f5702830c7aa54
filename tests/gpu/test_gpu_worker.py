"""The library's checks on a GPU with two processes: this one owns the tensors, a worker has them by CUDA IPC."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import ExportError, HandlesChangedError, WorkerLostError
from sync_runtime.library.export_tensors import Exporter
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from tests.component.gpu_worker.rig import WorkerProcess, eventually
from tests.gpu import library_checks as checks
from tests.support.toy_sidecar import toy_sidecar

pytestmark = pytest.mark.timeout(300)  # every worker imports torch and makes a context of its own
NOTICED_S = 1.0
BUSY_CYCLES = 500_000_000
"""Of the GPU's clock: some tenths of a second."""
ALL = [
    checks.check_versions_arrive, checks.check_masters, checks.check_replaced_tensors, checks.check_lost_word,
    checks.check_failed_publish, checks.check_repair, checks.check_joining, checks.check_hostile,
]  # fmt: skip
Workers = Callable[[str], WorkerProcess]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """One worker for every sidecar's socket, which several checks share."""
    started: dict[str, WorkerProcess] = {}

    def worker_of(sidecar: str) -> WorkerProcess:
        worker = started.setdefault(sidecar, WorkerProcess(tmp_path_factory.mktemp("w"), sidecar))
        if not worker.is_alive:
            worker.start()
        return worker

    yield worker_of
    for worker in started.values():
        worker.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def opened(worker: WorkerProcess, weights: object, replica: object, **options: Any) -> tuple[Publisher, Subscriber]:
    common: dict[str, Any] = {"gpu_access": "CudaIpc", "worker_socket": worker.socket}
    return Publisher(weights, **common, **options), Subscriber(replica, **common)


@pytest.mark.parametrize("rows", [12, 9000])
@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_device_coder_in_a_worker(
    check: Callable[[str, int, Path], None], rows: int, workers: Workers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        checks, "open_pair",
        lambda path, weights, replica, **options: opened(workers(path), weights, replica, **options),
    )  # fmt: skip
    check("cuda", rows, folder)


def test_what_the_owner_has_queued_is_in_the_version(workers: Workers, folder: Path) -> None:
    weights = checks.make_state("cuda", 9000)
    replica = checks.copy_of(weights)
    with toy_sidecar(str(folder / "s")):
        publisher, subscriber = opened(workers(str(folder / "s")), weights, replica)
        with publisher, subscriber:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                torch.cuda._sleep(BUSY_CYCLES)
                weights["w"].view(torch.int16).add_(1)  # long after publish was called, but for the wait in it
            publisher.publish()
            checks.waited(subscriber, 1)
            subscriber.activate()
            torch.cuda.synchronize()
            assert checks.same(replica, weights)


def test_an_apply_onto_tensors_that_just_moved_is_refused_and_writes_nothing(
    workers: Workers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = checks.make_state("cuda", 9000)
    replica = checks.copy_of(weights)
    with toy_sidecar(str(folder / "s")):
        publisher, subscriber = opened(workers(str(folder / "s")), weights, replica)
        with publisher, subscriber:
            checks.train(weights, 1)
            publisher.publish()
            checks.waited(subscriber, 1)
            before = checks.copy_of(replica)
            exporter = subscriber._session.connection._exporter  # type: ignore[attr-defined]
            with monkeypatch.context() as patch:
                patch.setattr(exporter, "changed", lambda: False)
                old = replica["w"]
                replica["w"] = old.clone()
                with pytest.raises(HandlesChangedError):
                    subscriber.activate()
            assert checks.same(replica, before)
            assert torch.equal(old, before["w"])
            assert subscriber.activate() == publisher.version
            assert checks.same(replica, weights)
            assert torch.equal(old, before["w"])


def test_a_killed_worker_is_noticed_and_its_successor_goes_on(workers: Workers, folder: Path) -> None:
    weights = checks.make_state("cuda", 9000)
    replica = checks.copy_of(weights)
    with toy_sidecar(str(folder / "s")) as (sidecar, server):
        worker = workers(str(folder / "s"))
        publisher, subscriber = opened(worker, weights, replica, patience=0.1)
        with publisher, subscriber:
            checks.train(weights, 1)
            first = publisher.publish()
            checks.waited(subscriber, 1)
            worker.kill()
            eventually(lambda: subscriber.stale and subscriber.staged is None, NOTICED_S)
            with pytest.raises(WorkerLostError):
                publisher.publish()
            worker.start()
            eventually(lambda: subscriber._session.connection.is_open, 60.0)
            server.call(sidecar.stage_newest())
            checks.waited(subscriber, 1)
            assert subscriber.activate() == first
            assert checks.same(replica, weights)
            checks.train(weights, 2)
            assert publisher.publish(step=9).step == 9


def test_expandable_segments_are_refused() -> None:
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    try:
        torch.cuda.empty_cache()
        weights = {"w": torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")}
        with pytest.raises(ExportError, match="expandable"):
            Exporter(module.attach(weights)).export(1)
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")


def test_memory_that_is_away_is_refused() -> None:
    weights = {"w": torch.zeros(1 << 20, device="cuda")}
    exporter = Exporter(module.attach(weights))
    exporter.export(1)
    weights["w"].untyped_storage().resize_(0)
    with pytest.raises(ExportError, match="wake it up"):
        exporter.validate(2, 1)
