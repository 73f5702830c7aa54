"""Publisher and Subscriber whose tensors a worker process works on: bits cross, and tensors may be replaced."""

from pathlib import Path

import pytest
import torch

from sync_runtime.library.export_errors import ExportError, HandlesChangedError
from sync_runtime.library.publisher import Publisher
from sync_runtime.library.subscriber import Subscriber
from sync_runtime.local import messages as m
from tests.component.gpu_worker.rig import State, WorkerProcess, eventually, in_file, in_files
from tests.component.local.rig import Pair, copy_of, same, small_state, train, waited

pytestmark = pytest.mark.timeout(120)  # the first test waits for a process that imports torch


def publisher_of(weights: object, worker: WorkerProcess) -> Publisher:
    return Publisher(weights, gpu_access="CudaIpc", worker_socket=worker.socket)


def subscriber_of(replica: object, worker: WorkerProcess) -> Subscriber:
    return Subscriber(replica, gpu_access="CudaIpc", worker_socket=worker.socket)


def states(files: Path) -> tuple[State, State]:
    weights = small_state()
    return in_files(files / "weights", weights), in_files(files / "replica", weights)


def test_versions_arrive_bit_for_bit(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    weights, replica = states(files)
    with publisher_of(weights, worker) as publisher, subscriber_of(replica, worker) as subscriber:
        assert subscriber.version == publisher.version is not None
        assert not subscriber.stale
        for step in (1, 2, 3):
            train(weights)
            version = publisher.publish(step=step)
            assert (version.seq, version.step) == (step, step)
            assert publisher.version == version
            if step == 2:
                continue  # two versions become one switch
            assert waited(subscriber, seq=step) == version
            assert subscriber.staged == version
            assert subscriber.stale
            assert not same(weights, replica)
            assert subscriber.activate() == version
            assert same(weights, replica)
            assert subscriber.version == version
            assert subscriber.staged is None
        assert subscriber.activate() is None
        assert subscriber.scrub()
    assert [one.seq for one in pair[0].said if isinstance(one, m.Activated)] == [1, 3]


def test_tied_weights_travel_once_and_fp32_masters_as_bf16(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    torch.manual_seed(3)
    files.mkdir()
    master = in_file(files / "m", torch.randn(8, 5))
    replica = in_file(files / "r", master.to(torch.bfloat16))
    tied = {"head": master, "body.embedding": master}
    options = {"gpu_access": "CudaIpc", "worker_socket": worker.socket}
    with (
        Publisher(tied, wire_dtype=torch.bfloat16, **options) as publisher,  # type: ignore[arg-type]
        subscriber_of({"head": replica, "body.embedding": replica}, worker) as subscriber,
    ):
        master.mul_(1.5)
        publisher.publish()
        waited(subscriber, seq=1)
        subscriber.activate()
        assert torch.equal(replica, master.to(torch.bfloat16))
    layout = pair[0].layout
    assert layout is not None
    assert [spec.name for spec in layout.tensors] == ["body.embedding"]


def test_tensors_that_were_replaced_are_exported_anew(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    weights, replica = states(files)
    with publisher_of(weights, worker) as publisher, subscriber_of(replica, worker) as subscriber:
        for round_ in (1, 2):
            weights["a.bias"] = in_file(files / f"w{round_}", weights["a.bias"] + 1)
            replica["b.weight"] = in_file(files / f"r{round_}", replica["b.weight"])
            train(weights)
            publisher.publish()
            waited(subscriber, seq=round_)
            subscriber.activate()
            assert same(weights, replica)
        assert subscriber.scrub()


def test_an_apply_onto_tensors_that_just_moved_is_refused_and_writes_nothing(
    worker: WorkerProcess, pair: Pair, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, replica = states(files)
    with publisher_of(weights, worker) as publisher, subscriber_of(replica, worker) as subscriber:
        train(weights)
        publisher.publish()
        waited(subscriber, seq=1)
        moved_from = replica["b.weight"]
        before = copy_of(replica)
        exporter = subscriber._session.connection._exporter  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:  # they move after the owner has looked, before the worker writes
            patch.setattr(exporter, "changed", lambda: False)
            replica["b.weight"] = in_file(files / "moved", moved_from)
            with pytest.raises(HandlesChangedError, match="nothing was written") as caught:
                subscriber.activate()
        assert caught.value.retry_helps
        assert same(before, replica)
        assert torch.equal(moved_from, before["b.weight"])
        assert subscriber.activate() == publisher.version
        assert same(weights, replica)
        assert torch.equal(moved_from, before["b.weight"])


def test_weights_of_an_engine_that_sleeps_are_refused_until_it_wakes(
    worker: WorkerProcess, pair: Pair, files: Path
) -> None:
    weights, replica = states(files)
    with publisher_of(weights, worker) as publisher, subscriber_of(replica, worker) as subscriber:
        awake, asleep = replica["a.bias"], torch.randn(7)
        asleep.untyped_storage().resize_(0)
        replica["a.bias"] = asleep
        train(weights)
        with pytest.raises(ExportError, match=r"'a\.bias' is away"):
            subscriber._session.connection.ready(1.0, 1.0)  # type: ignore[attr-defined]
        replica["a.bias"] = awake
        train(weights)
        publisher.publish()
        waited(subscriber, seq=1)
        subscriber.activate()
        assert same(weights, replica)


def test_memory_that_is_no_file_is_refused_with_what_to_do(worker: WorkerProcess, pair: Pair) -> None:
    with pytest.raises(ExportError, match="map it from a file"):
        publisher_of(small_state(), worker)
    with pytest.raises(ExportError, match="map it from a file"):
        subscriber_of(small_state(), worker)


def test_damage_is_found_and_mended_through_the_worker(worker: WorkerProcess, pair: Pair, files: Path) -> None:
    weights, replica = states(files)
    with publisher_of(weights, worker) as publisher, subscriber_of(replica, worker) as subscriber:
        replica["a.bias"][3] += 1
        assert not subscriber.scrub()
        assert subscriber.poisoned
        eventually(lambda: subscriber.staged is not None)
        assert subscriber.activate() == publisher.version
        assert subscriber.scrub()
        assert not subscriber.poisoned
        assert same(weights, replica)
