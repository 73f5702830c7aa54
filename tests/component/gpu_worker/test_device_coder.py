"""The GPU's coder through a worker process: the checks of the library itself, in small, by Triton's interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from tests.component.gpu_worker.rig import State, WorkerProcess, in_files
from tests.gpu import library_checks as checks

pytestmark = pytest.mark.timeout(60)
ALL = [
    checks.check_versions_arrive, checks.check_lost_word, checks.check_failed_publish,
    checks.check_repair, checks.check_joining, checks.check_hostile,
]  # fmt: skip
"""Without the one that puts tensors of this process alone in place of others."""
Workers = Callable[[str, str], str]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A worker of each kind for every sidecar's socket: the interpreter knows one thread, and life has two members."""
    started: dict[tuple[str, str], WorkerProcess] = {}

    def worker_of(sidecar: str, kind: str) -> str:
        key = (sidecar, kind)
        if key not in started:
            started[key] = WorkerProcess(tmp_path_factory.mktemp("w"), sidecar, {"TRITON_INTERPRET": "1"})
            started[key].start()
        return started[key].socket

    yield worker_of
    for worker in started.values():
        worker.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_device_coder_in_a_worker(
    check: Callable[[str, int, Path], None], workers: Workers, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    numbers = itertools.count()

    def open_pair(path: str, weights: State, replica: State, **options: Any) -> tuple[Publisher, Subscriber]:
        for state in (weights, replica):
            state.update(in_files(tmp_path / str(next(numbers)), state))
        common: dict[str, Any] = {"coder": "library", "gpu_access": "CudaIpc"}
        publisher = Publisher(weights, worker_socket=workers(path, "publisher"), **common, **options)
        return publisher, Subscriber(replica, worker_socket=workers(path, "subscriber"), **common)

    monkeypatch.setattr(checks, "open_pair", open_pair)
    check("cpu", 12, folder)
