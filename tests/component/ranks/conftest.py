"""Kernels run under Triton's interpreter here: the variable must be set before Triton is first imported."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("torch", reason="the library needs torch")
pytest.importorskip("triton", reason="the device coder needs triton")

from tests.support.sharded import SMALL_ELEMENTS


@pytest.fixture(autouse=True)
def one_kernel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publisher and subscribers are processes of their own in life; the interpreter knows one thread."""
    lock = threading.Lock()

    @contextmanager
    def alone(*_: object) -> Iterator[None]:
        with lock:
            yield

    monkeypatch.setattr("sync_runtime.tensors.layout.SMALL_ELEMENTS", SMALL_ELEMENTS)
    for module in ("device_publish", "device_stage"):
        monkeypatch.setattr(f"sync_runtime.library.{module}.on_device", alone)
