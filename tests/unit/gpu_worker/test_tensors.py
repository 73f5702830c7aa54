"""An owner's exports and a worker's view of them, without a socket in between."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sync_runtime.errors import LayoutError, SettingsError
from sync_runtime.gpu_worker.tensors import OwnedTensors
from sync_runtime.library.engines import module
from sync_runtime.library.export_errors import ExportError, HandlesChangedError
from sync_runtime.library.export_files import FileSharing
from sync_runtime.library.export_handles import FileHandle
from sync_runtime.library.export_messages import Export, Valid
from sync_runtime.library.export_tensors import Exporter, place_of, sharing_for
from sync_runtime.library.settings import LibrarySettings
from tests.component.gpu_worker.rig import State, in_file, in_files


class Direct:
    """Owner and worker in one process: the worker's question is a call."""

    def __init__(self, state: State) -> None:
        self.asked: list[int] = []
        self.exporter = Exporter(module.attach(state))
        self.tensors = OwnedTensors(self._ask)
        self.tensors.adopt(self.exporter.export(1))

    def _ask(self, generation: int) -> Valid | Export:
        self.asked.append(generation)
        answer = self.exporter.validate(0, generation)
        if isinstance(answer, Export):
            self.tensors.adopt(answer)
        return answer


def make(folder: Path) -> State:
    wide = torch.arange(40.0).reshape(5, 8)
    return in_files(folder / "s", {"view": wide[1:, 2:6], "t": torch.ones(3, 2).T, "empty": torch.zeros(0, 3)})


def test_a_worker_sees_the_owners_memory_and_shapes(tmp_path: Path) -> None:
    state = make(tmp_path)
    found = Direct(state).tensors.tensors()
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor)
        assert (found[name].stride(), found[name].dtype) == (tensor.stride(), tensor.dtype)
    found["view"][0, 0] = -1.0
    assert state["view"][0, 0] == -1.0


def test_every_use_asks_and_a_confirmed_one_asks_once(tmp_path: Path) -> None:
    direct = Direct(make(tmp_path))
    direct.tensors.tensors()
    direct.tensors.tensors()
    assert direct.asked == [1, 1]
    with direct.tensors.confirmed():
        direct.tensors.tensors()
        direct.tensors.tensors()
    assert direct.asked == [1, 1, 1]
    direct.tensors.tensors()
    assert direct.asked == [1, 1, 1, 1]


def test_tensors_that_moved_are_followed_when_read_and_refused_when_written(tmp_path: Path) -> None:
    state = make(tmp_path)
    direct = Direct(state)
    assert not direct.exporter.changed()
    state["t"] = in_file(tmp_path / "t2", state["t"] + 1)
    assert direct.exporter.changed()
    assert torch.equal(direct.tensors.tensors()["t"], state["t"])
    state["t"] = in_file(tmp_path / "t3", state["t"] + 1)
    with pytest.raises(HandlesChangedError), direct.tensors.confirmed():
        raise AssertionError("nothing may be written")
    with direct.tensors.confirmed():
        assert torch.equal(direct.tensors.tensors()["t"], state["t"])


def test_another_file_at_the_same_address_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make(tmp_path)
    direct = Direct(state)
    first, second = state["t"], in_file(tmp_path / "t2", state["t"] + 1)
    # The kernel gives an address again when it likes to; here it always does.
    address, own = first.data_ptr(), torch.UntypedStorage.data_ptr
    at = second.data_ptr()
    monkeypatch.setattr(torch.UntypedStorage, "data_ptr", lambda it: address if own(it) == at else own(it))
    state["t"] = second
    assert direct.exporter.changed()
    with pytest.raises(HandlesChangedError), direct.tensors.confirmed():
        raise AssertionError("nothing may be written")
    assert torch.equal(direct.tensors.tensors()["t"], second)
    assert not torch.equal(first, second)


def test_a_view_of_the_same_memory_under_other_strides_is_a_change(tmp_path: Path) -> None:
    state = make(tmp_path)
    direct = Direct(state)
    state["t"] = state["t"].T.reshape(2, 3)
    assert direct.exporter.changed()


def test_storages_that_stayed_are_neither_shared_nor_opened_again(tmp_path: Path) -> None:
    class Counting(FileSharing):
        shared = 0

        def share(self, storage: torch.UntypedStorage) -> FileHandle:
            Counting.shared += 1
            return super().share(storage)

    state = make(tmp_path)
    exporter = Exporter(module.attach(state), Counting())
    first = exporter.export(1)
    tensors = OwnedTensors(lambda generation: Valid(0, generation))
    tensors.adopt(first)
    before = tensors.tensors()["view"].data_ptr()
    state["t"] = in_file(tmp_path / "t2", state["t"])
    second = exporter.export(2)
    tensors.adopt(second)
    assert Counting.shared == 3
    assert tensors.tensors()["view"].data_ptr() == before
    tensors.adopt(replace(first, storages=()))  # late: a newer one was faster
    assert torch.equal(tensors.tensors()["t"], state["t"])
    exporter.forget()
    exporter.export(3)
    assert Counting.shared == 5


def test_expandable_memory_is_looked_for_before_anything_is_shared(tmp_path: Path) -> None:
    class Refusing(FileSharing):
        def check(self, addresses: Iterable[int]) -> None:
            assert {tensor.untyped_storage().data_ptr() for tensor in state.values() if tensor.numel()} == set(
                addresses
            )
            raise ExportError("expandable")

        def share(self, storage: torch.UntypedStorage) -> FileHandle:
            raise AssertionError("shared")

    state = make(tmp_path)
    with pytest.raises(ExportError, match="expandable"):
        Exporter(module.attach(state), Refusing()).export(1)


def test_memory_that_is_away_is_refused() -> None:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ExportError, match="wake it up"):
        place_of("w", tensor)
    with pytest.raises(ExportError, match="cannot be handed"):
        sharing_for({"w": torch.ones(2, device="meta")})
    with pytest.raises(LayoutError, match="all on one device"):
        sharing_for({})


def test_a_move_to_another_device_needs_a_new_session(tmp_path: Path) -> None:
    direct = Direct(make(tmp_path))
    with pytest.raises(ExportError, match="another device"):
        direct.tensors.adopt(replace(direct.exporter.export(2), device="GPU-1"))


def test_access_comes_from_the_argument_else_from_the_environment() -> None:
    environment = {"SYNCGROUP_GPU_ACCESS": "CudaIpc", "SYNCGROUP_GPU_WORKER_SOCKET": "/w"}
    found = LibrarySettings.read(None, environment)
    assert (found.gpu_access, found.worker_socket) == ("CudaIpc", "/w")
    found = LibrarySettings.read(None, environment, gpu_access="InProcess", worker_socket="/v")
    assert (found.gpu_access, found.worker_socket) == ("InProcess", "/v")
    assert LibrarySettings.read(None, {}).gpu_access == "InProcess"


def test_a_worker_is_looked_for_beside_its_sidecar() -> None:
    assert LibrarySettings.read(None, {}).worker_socket == "/run/syncgroup/gpu-worker.sock"
    assert LibrarySettings.read(None, {"SYNCGROUP_SOCKET": "/a/sidecar.sock"}).worker_socket == "/a/gpu-worker.sock"
    assert LibrarySettings.read("sidecar.sock", {}).worker_socket == "gpu-worker.sock"


def test_another_access_is_refused() -> None:
    with pytest.raises(SettingsError, match="InProcess, CudaIpc"):
        LibrarySettings.read(None, {}, gpu_access="Rdma")


@pytest.mark.timeout(60)
def test_the_worker_loads_nothing_that_a_torch_image_does_not_have() -> None:
    modules = "sync_runtime.gpu_worker.__main__, sync_runtime.gpu_worker.server"
    program = f"import {modules}, sys; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"numpy", "torch"} <= loaded
    assert not loaded & {"numba", "pydantic", "cryptography", "aiohttp", "opentelemetry", "kubernetes"}
