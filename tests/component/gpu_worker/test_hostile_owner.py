"""An owner that sends what the protocol does not allow is told so and hung up on; the worker lives on."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sync_runtime.errors import LocalProtocolError, SyncError
from sync_runtime.library import export_messages as x
from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_handles import CudaHandle, FileHandle, TensorHandle
from sync_runtime.library.export_wire import Wire
from sync_runtime.local.frames import pack_frame, pack_json
from tests.component.gpu_worker.rig import WorkerProcess, dialled, hello

pytestmark = pytest.mark.timeout(60)
TENSOR = TensorHandle("w", 0, "float32", (4, 2), (2, 1), 0)
CUDA = CudaHandle(b"\2c" + bytes(64), 0, 32, "/torch_1_2_3", 7, bytes(64), waits_for_event=False)


def export(path: Path, **changes: Any) -> x.Export:
    file = path / "w.bin"
    file.write_bytes(bytes(32))
    return replace(x.Export(1, 1, "", (FileHandle(str(file), 32),), (TENSOR,), ()), **changes)


def end_of(wire: Wire) -> SyncError:
    """What the worker says before it hangs up."""
    failures: list[x.Failure] = []
    ended = wire.run(lambda message: failures.append(message) if isinstance(message, x.Failure) else None)
    if failures and failures[-1].kind == "ExportError":
        return ExportError(failures[-1].message)
    return ended


BAD_EXPORTS: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "beyond its storage": (lambda _: {"tensors": (replace(TENSOR, offset=1),)}, "does not lie inside"),
    "long strides": (lambda _: {"tensors": (replace(TENSOR, stride=(1 << 60, 1)),)}, "does not lie inside"),
    "a huge shape": (lambda _: {"tensors": (replace(TENSOR, shape=(1 << 62, 1 << 62)),)}, "more elements"),
    "another storage": (lambda _: {"tensors": (replace(TENSOR, storage=1),)}, "was not exported"),
    "no storage": (lambda _: {"tensors": (replace(TENSOR, storage=None),)}, "no storage"),
    "an unknown dtype": (lambda _: {"tensors": (replace(TENSOR, dtype="load"),)}, "torch does not have"),
    "a dtype that cannot travel": (lambda _: {"tensors": (replace(TENSOR, dtype="complex128"),)}, "cannot travel"),
    "a name twice": (lambda _: {"tensors": (TENSOR, TENSOR)}, "a name twice"),
    "a tie to nothing": (lambda _: {"ties": (("v", "u"),)}, "ties names"),
    "a folder": (lambda path: {"storages": (FileHandle(str(path), 32),)}, "is not a file"),
    "a device": (lambda _: {"storages": (FileHandle("/dev/zero", 32),)}, "is not a file"),
    "a file that is too short": (lambda path: {"storages": (FileHandle(str(path / "w.bin"), 33),)}, "at least 33"),
    "a file that is not there": (lambda _: {"storages": (FileHandle("/nowhere/w", 32),)}, "cannot be opened"),
    "a GPU's handle on the CPU": (lambda _: {"storages": (CUDA,)}, "on the CPU"),
    "a GPU that is not there": (lambda _: {"device": "GPU-0"}, "does not see the GPU"),
}


@pytest.mark.parametrize("case", BAD_EXPORTS)
def test_a_bad_export_is_refused_before_anything_is_used(worker: WorkerProcess, case: str, tmp_path: Path) -> None:
    changes, message = BAD_EXPORTS[case]
    with dialled(worker.socket, hello()) as wire:
        wire.send(export(tmp_path, **changes(tmp_path)))
        with pytest.raises(ExportError, match=message):
            raise end_of(wire)
    assert worker.is_alive


BAD_FRAMES: dict[str, tuple[bytes, str]] = {
    "an unknown type": (pack_frame(99, b"{}"), "type 99"),
    "a length above the limit": (struct.pack("<BBHI", 22, 0, 0, 1 << 30), "the limit is"),
    "no JSON": (pack_frame(22, b"\xff\xfe"), "cannot be read"),
    "a field too many": (pack_frame(22, pack_json({"id": 1, "more": 2})), "other fields"),
    "a key twice": (pack_frame(22, b'{"id":1,"id":2}'), "twice"),
    "a fraction": (pack_frame(22, b'{"id":1.5}'), "no whole number"),
    "a handle of a list": (pack_frame(16, pack_json(
        {"id": 1, "generation": 1, "device": "", "storages": [[]], "tensors": [], "ties": []})), "other fields"),
    "a relative path": (pack_frame(16, pack_json(
        {"id": 1, "generation": 1, "device": "", "storages": [{"path": "w", "size_bytes": 4}], "tensors": [],
         "ties": []})), "absolute path"),
    "HELLO again": (pack_frame(2, pack_json({"protocol": 1})), "out of turn"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_a_frame_that_breaks_the_protocol_is_answered_and_ends_the_connection(worker: WorkerProcess, case: str) -> None:
    data, message = BAD_FRAMES[case]
    with dialled(worker.socket, hello()) as wire:
        wire._socket.sendall(data)
        with pytest.raises(LocalProtocolError, match=message):
            raise end_of(wire)
    assert worker.is_alive


def test_whoever_does_not_begin_with_hello_is_refused(worker: WorkerProcess) -> None:
    with dialled(worker.socket) as wire:
        wire.send(x.Activate(1))
        with pytest.raises(LocalProtocolError, match="must be HELLO"):
            raise end_of(wire)
    with dialled(worker.socket) as wire:
        wire.send(replace(hello(), protocols=(7,)))
        with pytest.raises(LocalProtocolError, match="in common"):
            raise end_of(wire)


def test_a_request_before_an_export_is_an_error_and_not_the_end(worker: WorkerProcess) -> None:
    with dialled(worker.socket, hello()) as wire:
        wire.send(x.Activate(5))
        found = wire.receive(5.0)
        assert [(type(one), one.id) for one in found] == [(x.Failure, 5)]  # type: ignore[union-attr]
        wire.send(x.Activate(6))
        assert wire.receive(5.0)
