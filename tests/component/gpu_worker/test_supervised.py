"""A sidecar runs its GPU worker: found without a setting, started again when it dies, in nobody else's way."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import NothingWrittenError, SidecarLostError
from sync_runtime.library.export_errors import WorkerLostError
from tests.component.gpu_worker.rig import START_S, eventually, in_files
from tests.component.local.rig import same, small_state, train
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(180)  # workers that import torch are started again and again
SHARED_TRAINER = Member("trainer-0", "us", role="Trainer", gpu_access="CudaIpc")
SHARED = Member("eu-0", "eu", ("trainer-0",), relay=True, gpu_access="CudaIpc")
LEAF = Member("eu-1", "eu", ("eu-0",))
WITHOUT_TORCH = (
    sys.executable, "-c", "import runpy, sys; sys.modules['torch'] = None; "
    "runpy.run_module('sync_runtime.gpu_worker', run_name='__main__', alter_sys=True)",
)  # fmt: skip


def worker_of(group: Group, name: str) -> dict[str, Any]:
    """What the control API says of a sidecar's worker."""
    return dict(group.ask(name, "/v1/status")["gpuWorker"])


def listening(group: Group, name: str) -> int:
    """The process id of a worker, once owners can dial it."""
    eventually(lambda: worker_of(group, name)["listening"], START_S)
    return int(worker_of(group, name)["pid"])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z"  # ended, and not yet waited for by whoever adopted it


def publish(publisher: Publisher, weights: dict[str, Any]) -> None:
    """As training code does: a worker that went away is tried again."""
    train(weights)
    eventually(lambda: _succeeds(publisher), START_S)


def _succeeds(publisher: Publisher) -> bool:
    try:
        publisher.publish()
    except WorkerLostError:
        return False
    return True


def has_followed(subscriber: Subscriber, weights: dict[str, Any], replica: dict[str, Any]) -> bool:
    subscriber.wait(timeout=0.5)
    try:
        subscriber.activate()
    except (WorkerLostError, SidecarLostError, NothingWrittenError):  # a lineage that ended is taken away, too
        return False
    return same(weights, replica)


def test_killed_workers_are_started_again_and_versions_go_on_bit_for_bit(tmp_path: Path) -> None:
    weights, replica = in_files(tmp_path / "w", small_state()), in_files(tmp_path / "r", small_state())
    with Group(tmp_path, [SHARED_TRAINER, SHARED], ringBytes=1 << 20) as group:
        group.start_all()
        with (
            Publisher(weights, socket=group.socket("trainer-0"), gpu_access="CudaIpc", timeout=START_S) as publisher,
            Subscriber(replica, socket=group.socket("eu-0"), gpu_access="CudaIpc", timeout=START_S) as subscriber,
        ):
            publish(publisher, weights)
            eventually(lambda: has_followed(subscriber, weights, replica), START_S)
            assert group.ask("eu-0", "/readyz")["ok"]
            for name in ("eu-0", "trainer-0"):
                first = listening(group, name)
                os.kill(first, signal.SIGKILL)
                eventually(lambda name=name: "killed by SIGKILL" in str(worker_of(group, name)["lastEnd"]))  # type: ignore[misc]
                assert group.ask(name, "/v1/status")["report"]["trouble"]["reason"] == "GpuWorkerKilled"
                assert listening(group, name) != first
                publish(publisher, weights)
                eventually(lambda: has_followed(subscriber, weights, replica), START_S)
        assert "killed by SIGKILL" in group.log("eu-0")
        polite, alone = listening(group, "eu-0"), listening(group, "trainer-0")
        assert group.stop("eu-0") == 0
        assert is_gone(polite)
        group.kill("trainer-0")
        eventually(lambda: is_gone(alone))


def test_a_worker_without_torch_is_told_and_in_nobody_elses_way(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, SHARED, LEAF], ringBytes=1 << 20) as group:
        group.changes["eu-0"] = {"worker_command": WITHOUT_TORCH}
        group.start_all()
        eventually(lambda: worker_of(group, "eu-0")["lastEnd"] is not None)
        found = worker_of(group, "eu-0")
        assert (found["starts"], found["listening"], found["pid"]) == (1, False, None)
        assert any("CUDA variant" in reason for reason in group.ask("eu-0", "/ready"))
        report = group.ask("eu-0", "/v1/status")["report"]
        assert (report["state"], report["trouble"]["reason"]) == ("Starting", "GpuWorkerNoTorch")
        trained, leaf = small_model(), small_model()
        with (
            Publisher(trained, socket=group.socket("trainer-0")) as publisher,
            Subscriber(leaf, socket=group.socket("eu-1")) as subscriber,
        ):
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)  # through the relay whose worker is not there
            assert same_bits(leaf, trained)


def test_a_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, SHARED], ringBytes=1 << 20) as group:
        group.changes["eu-0"] = {"worker_command": ("/no/such/python",)}
        group.start("eu-0")
        eventually(lambda: worker_of(group, "eu-0")["starts"] == 2)
        assert "/no/such/python" in worker_of(group, "eu-0")["lastEnd"]


def test_a_worker_that_does_not_heed_signals_ends_with_its_sidecar(tmp_path: Path) -> None:
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stderr.write('deaf\\n'); "
    with InsideGroup(tmp_path, [TRAINER, SHARED], ringBytes=1 << 20) as group:
        group.changes["eu-0"] = {"worker_command": (sys.executable, "-c", f"{deaf}sys.stderr.flush(); time.sleep(60)")}
        group.start("eu-0")
        worker = group.sidecars["eu-0"].worker
        assert worker is not None
        eventually(lambda: worker._last_words == "deaf")
        assert group.ask("eu-0", "/v1/status")["report"]["trouble"]["reason"] == "GpuWorkerStarting"
        pid = worker_of(group, "eu-0")["pid"]
        group.stop("eu-0")
        assert is_gone(pid)
