"""The owner's tensors as an export, and whether they still are what was exported.

How memory crosses to another process is behind `Sharing`: CUDA IPC on a GPU, files on the CPU. Knows no sockets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.export_cuda import CudaSharing
from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_files import FileSharing
from sync_runtime.library.export_handles import StorageHandle, TensorHandle
from sync_runtime.library.export_messages import Export, Valid


class Sharing(Protocol):
    """One way to hand memory to another process."""

    @property
    def device_name(self) -> str:
        """What the other process finds the device by; empty for the CPU."""

    def check(self, addresses: Iterable[int]) -> None:
        """Raises ExportError where memory at an address cannot be shared."""

    def share(self, storage: torch.UntypedStorage) -> StorageHandle:
        """A handle of a storage; raises ExportError."""

    def settle(self, *, all_streams: bool) -> None:
        """Returns when whatever this process, or the caller's stream alone, has begun to write is written."""


Memory = tuple[int, str | None, int]
"""A storage by its address, its file and its size: what a worker opens once."""


@dataclass(frozen=True)
class Place:
    """Where a tensor lies; two that are equal are one memory, seen alike."""

    storage: int
    """The storage's address."""
    file: str | None
    """What the storage was mapped from, since another file may come to lie at the same address; None on a GPU."""
    size_bytes: int
    """The storage's."""
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def memory(self) -> Memory:
        """The storage alone."""
        return self.storage, self.file, self.size_bytes


class Exporter:
    """An engine's tensors, exported to one worker at a time."""

    def __init__(self, engine: Engine, sharing: Sharing | None = None) -> None:
        self._engine = engine
        self._sharing = sharing or sharing_for(engine.tensors())
        self._lock = threading.Lock()
        self._generation = 0
        self._places: Mapping[str, Place] | None = None
        self._handles: dict[Memory, StorageHandle] = {}
        """What the present worker was given."""

    def settle(self, *, all_streams: bool = True) -> None:
        """What was begun is written."""
        self._sharing.settle(all_streams=all_streams)

    def forget(self) -> None:
        """Another worker comes: it was given nothing yet."""
        with self._lock:
            self._places, self._handles = None, {}

    def export(self, request_id: int) -> Export:
        """The tensors as they are, under a new generation; raises ExportError for those that cannot be exported."""
        with self._lock:
            return self._export(request_id, *self._look())

    def changed(self) -> bool:
        """Whether the tensors are not those of the last export."""
        with self._lock:
            return self._places != self._look()[1]

    def validate(self, request_id: int, generation: int) -> Valid | Export:
        """Answers a worker that is about to use a generation: it is still right, or else what is."""
        with self._lock:
            tensors, places = self._look()
            if generation == self._generation and places == self._places:
                return Valid(request_id, generation)
            return self._export(request_id, tensors, places)

    def _look(self) -> tuple[Mapping[str, torch.Tensor], Mapping[str, Place]]:
        tensors = self._engine.tensors()
        return tensors, {name: place_of(name, tensor) for name, tensor in tensors.items()}

    def _export(self, request_id: int, tensors: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> Export:
        used = {place.memory for place in places.values() if place.size_bytes}
        fresh = used - set(self._handles)
        if fresh:
            self._sharing.check(address for address, _, _ in fresh)
        handles = {key: handle for key, handle in self._handles.items() if key in used}
        for name, place in places.items():
            key = place.memory
            if place.size_bytes and key not in handles:
                handles[key] = self._sharing.share(tensors[name].untyped_storage())
        numbers = {key: number for number, key in enumerate(handles)}
        self._handles, self._places = handles, dict(places)
        self._generation += 1
        return Export(
            request_id, self._generation, self._sharing.device_name, tuple(handles.values()),
            tuple(_handle_of(name, place, numbers) for name, place in places.items()),
            tuple(sorted(self._engine.ties().items())),
        )  # fmt: skip


def place_of(name: str, tensor: torch.Tensor) -> Place:
    """Where a tensor lies; raises ExportError where it has elements and no memory."""
    try:
        storage = tensor.untyped_storage()
        address, size_bytes = storage.data_ptr(), storage.nbytes()
        file = storage.filename if storage.device.type == "cpu" else None
    except (NotImplementedError, RuntimeError) as error:
        raise ExportError(f"{name!r} has no memory that could be handed over") from error
    if tensor.numel() == 0:
        address, size_bytes, file = 0, 0, None
    elif address == 0 or size_bytes == 0:
        raise ExportError(
            f"the memory of {name!r} is away, as when an engine sleeps: wake it up before weights are published or "
            "activated, or use gpu_access InProcess with a new subscriber after each sleep"
        )
    offset, shape = int(tensor.storage_offset()), tuple(tensor.shape)
    return Place(address, file, size_bytes, offset, shape, tensor.stride(), tensor.dtype)


def sharing_for(tensors: Mapping[str, torch.Tensor]) -> Sharing:
    """The way that fits where the tensors are."""
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) != 1:
        raise LayoutError("a model that is handed to a worker has tensors, all on one device")
    device = devices.pop()
    if device.type == "cuda":
        return CudaSharing(device)
    if device.type == "cpu":
        return FileSharing()
    raise ExportError(f"tensors on {device} cannot be handed to another process")


def _handle_of(name: str, place: Place, numbers: Mapping[Memory, int]) -> TensorHandle:
    storage = numbers[place.memory] if place.size_bytes else None
    dtype = str(place.dtype).removeprefix("torch.")
    return TensorHandle(name, storage, dtype, place.shape, place.stride, place.offset)
