"""The device coder end to end on the CPU: a few dozen rows, since the interpreter is slow."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="kernels need triton")

from tests.gpu import library_checks as checks

pytestmark = pytest.mark.timeout(120)
ALL = [
    checks.check_versions_arrive,
    checks.check_masters,
    checks.check_replaced_tensors,
    checks.check_lost_word,
    checks.check_failed_publish,
    checks.check_repair,
    checks.check_joining,
    checks.check_unwanted_anchor,
    checks.check_hostile,
]


@pytest.fixture(autouse=True)
def one_kernel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publisher and subscriber are two processes in life; the interpreter knows one thread."""
    lock = threading.Lock()

    @contextmanager
    def alone(*_: object) -> Iterator[None]:
        with lock:
            yield

    for module in ("device_publish", "device_stage"):
        monkeypatch.setattr(f"sync_runtime.library.{module}.on_device", alone)


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__name__)
def test_the_device_coder_on_the_cpu(check: Callable[[str, int, Path], None], tmp_path: Path) -> None:
    check("cpu", 12, tmp_path)
