"""A real GPU worker in a process of its own, weights that two processes can map, and an owner that speaks by hand."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch

import sync_runtime
from sync_runtime.library import export_messages as x
from sync_runtime.library.export_errors import WorkerLostError
from sync_runtime.library.export_wire import Wire

State = dict[str, torch.Tensor]
START_S = 60.0
WAIT_S = 15.0
ROOT = Path(sync_runtime.__file__).parents[1]


def eventually(holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """What the other process does a moment later."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.005)


class WorkerProcess:
    """`python -m sync_runtime.gpu_worker`, started, killed, started again."""

    def __init__(self, folder: Path, sidecar: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.socket, self.sidecar = str(folder / "worker.sock"), sidecar or str(folder / "sidecar.sock")
        self._log = folder / "worker.log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-m", "sync_runtime.gpu_worker", "--socket", self.socket, "--sidecar", self.sidecar]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=log)
        eventually(self._answers, START_S)

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As the kernel would, and waits until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit status."""
        assert self._process is not None
        return self._process.wait(START_S)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Ends it if it runs."""
        if self.is_alive:
            self.send(signal.SIGTERM)
            self.wait()

    def _answers(self) -> bool:
        assert self.is_alive, self.log
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(self.socket) == 0


def in_file(path: Path, tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, mapped from a file of its own."""
    if not tensor.numel():
        return tensor
    storage = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=tensor.untyped_storage().nbytes())
    whole = cast("torch.UntypedStorage", storage)
    made = torch.empty(0, dtype=tensor.dtype).set_(whole, tensor.storage_offset(), tensor.shape, tensor.stride())
    return made.copy_(tensor)


def in_files(folder: Path, state: State) -> State:
    """A state whose tensors another process can map."""
    folder.mkdir(parents=True)
    return {name: in_file(folder / f"{number}.bin", tensor) for number, (name, tensor) in enumerate(state.items())}


def hello(kind: str = "subscriber", timeout_ms: int = 5000) -> x.Hello:
    """What an owner begins with."""
    return x.Hello((1,), kind, 0, 1, None, None, False, None, timeout_ms, 2000)  # type: ignore[arg-type]


@contextmanager
def dialled(path: str, first: x.Message | None = None) -> Iterator[Wire]:
    """An owner's end that a test speaks by hand; greeted if `first` is a HELLO."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(WAIT_S)
    connection.connect(path)
    wire = Wire(connection, WorkerLostError)
    try:
        if first is not None:
            wire.send(first)
            assert isinstance(wire.first(WAIT_S), x.Welcome)
        yield wire
    finally:
        wire.end(WorkerLostError("the test is over"))
