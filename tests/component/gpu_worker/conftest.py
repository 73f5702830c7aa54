"""One worker process for a module, and a sidecar in memory for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.gpu_worker.rig import WorkerProcess
from tests.support.local import ServerThread
from tests.support.toy_sidecar import ToySidecar, toy_sidecar


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    process = WorkerProcess(tmp_path_factory.mktemp("worker"))
    process.start()
    yield process
    process.close()


@pytest.fixture
def pair(worker: WorkerProcess) -> Iterator[tuple[ToySidecar, ServerThread]]:
    if not worker.is_alive:
        worker.start()
    with toy_sidecar(worker.sidecar) as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"
