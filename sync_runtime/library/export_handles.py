"""Handles: tensors of one process as another one can open them. Data, and the checks that stand before any use.

A *storage* is one piece of memory; tensors lie in storages. Pure: opens nothing, knows neither sockets nor torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sync_runtime.library.export_errors import ExportError

MAX_DIMENSIONS: Final = 64
CUDA_HANDLE_BYTES: Final = 64
CUDA_MALLOC_MARK: Final = ord("c")
"""Second byte of a handle of torch's: memory from cudaMalloc. Any other mark is a kind that cannot be relied on."""
COUNTERS_PER_FILE: Final = 10_000
"""Reference counts in one of torch's shared files: a place beyond them would be a write outside of it."""
_COUNTER_NAME = re.compile(r"/torch_[0-9]{1,20}_[0-9]{1,20}(?:_[0-9]{1,20})?")


@dataclass(frozen=True)
class FileHandle:
    """A storage in a file that both processes map."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class CudaHandle:
    """A storage in a GPU's memory, as torch's CUDA IPC describes it."""

    handle: bytes
    """Two bytes of torch's, then the driver's handle of the allocation."""
    offset_bytes: int
    """Of the storage in its allocation."""
    size_bytes: int
    counter: str
    """The shared file with the count of whoever has it open."""
    counter_at: int
    event: bytes
    waits_for_event: bool


StorageHandle = FileHandle | CudaHandle


@dataclass(frozen=True)
class TensorHandle:
    """A tensor in a storage."""

    name: str
    storage: int | None
    """Its place among the storages; None for a tensor without elements."""
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""
    offset: int
    """In elements, from the storage's begin."""

    @property
    def numel(self) -> int:
        """Elements."""
        found = 1
        for size in self.shape:
            found *= size
        return found


def check_cuda(handle: CudaHandle) -> None:
    """Raises ExportError for a handle that must not reach the driver or torch's counters."""
    if len(handle.handle) != CUDA_HANDLE_BYTES + 2 or handle.handle[1] != CUDA_MALLOC_MARK:
        raise ExportError(
            "a handle is not of memory from cudaMalloc: turn expandable segments off (PYTORCH_CUDA_ALLOC_CONF) and "
            "use no sleep mode with gpu_access CudaIpc"
        )
    if len(handle.event) != CUDA_HANDLE_BYTES:
        raise ExportError("a handle's event does not have the size of the driver's events")
    if not _COUNTER_NAME.fullmatch(handle.counter) or not 0 <= handle.counter_at < COUNTERS_PER_FILE:
        raise ExportError("a handle's reference count is not at a place that torch uses")
    if handle.size_bytes < 1 or handle.offset_bytes < 0:
        raise ExportError("a handle has no bytes, or begins before its allocation")


def check_extent(tensor: TensorHandle, item_bytes: int, storages: tuple[StorageHandle, ...]) -> None:
    """Raises ExportError where a tensor does not lie inside its storage."""
    if len(tensor.shape) != len(tensor.stride) or len(tensor.shape) > MAX_DIMENSIONS:
        raise ExportError(f"{tensor.name!r} has {len(tensor.shape)} sizes and {len(tensor.stride)} strides")
    if min((0, tensor.offset, *tensor.shape, *tensor.stride)) < 0:
        raise ExportError(f"{tensor.name!r} has a negative size, stride or offset")
    if tensor.storage is None:
        if tensor.numel:
            raise ExportError(f"{tensor.name!r} has elements and no storage")
        return
    if not 0 <= tensor.storage < len(storages):
        raise ExportError(f"{tensor.name!r} lies in a storage that was not exported")
    storage = storages[tensor.storage]
    if tensor.numel * item_bytes > storage.size_bytes:
        raise ExportError(f"{tensor.name!r} has more elements than its storage: make an expanded tensor contiguous")
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    if not tensor.numel or (last + 1) * item_bytes > storage.size_bytes:
        raise ExportError(f"{tensor.name!r} does not lie inside its storage of {storage.size_bytes} bytes")
    if isinstance(storage, CudaHandle) and storage.offset_bytes % item_bytes:
        raise ExportError(f"{tensor.name!r} does not lie at a multiple of its elements' size")
