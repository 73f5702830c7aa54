"""Storages in a GPU's memory for another process: CUDA IPC handles by torch, given by the owner, opened by the worker.

torch counts who has a storage open: memory that the owner frees meanwhile is not used for anything else until the
worker lets go. What cannot be handed over reliably is refused here: expandable segments, and memory that is away.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch

from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_handles import CudaHandle, StorageHandle, check_cuda

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_EXPANDABLE = (
    "expandable segments cannot be handed to another process: set expandable_segments:False in PYTORCH_CUDA_ALLOC_CONF "
    "before the model is loaded, or use gpu_access InProcess"
)


class CudaSharing:
    """The owner's side, for one GPU."""

    def __init__(self, device: torch.device, environment: Mapping[str, str] | None = None) -> None:
        self._device = device
        check_environment(os.environ if environment is None else environment)

    @property
    def device_name(self) -> str:
        """The GPU's uuid, which both processes see alike."""
        return uuid_of(self._device)

    def check(self, addresses: Iterable[int]) -> None:
        """Raises ExportError where memory lies in a segment that can grow; called before storages are shared."""
        check_segments(torch.cuda.memory_snapshot(), frozenset(addresses))

    def share(self, storage: torch.UntypedStorage) -> CudaHandle:
        """A handle; every one that is given out must be opened once."""
        try:
            made = cast("tuple[Any, ...]", storage._share_cuda_())
        except RuntimeError as error:
            raise ExportError(
                f"the GPU's driver gives no handle for a tensor's memory ({_first_line(error)}): it is not from "
                "cudaMalloc, as with an engine's sleep mode; turn that off, or use gpu_access InProcess"
            ) from error
        _, handle, size_bytes, offset_bytes, counter, counter_at, event, waits = made
        if handle is None or counter is None or event is None:
            raise ExportError("a tensor has no memory now (an engine that sleeps?): wake it up before it is used")
        found = CudaHandle(
            bytes(handle), int(offset_bytes), int(size_bytes), bytes(counter).decode(), int(counter_at), bytes(event),
            bool(waits),
        )  # fmt: skip
        check_cuda(found)
        return found

    def settle(self, *, all_streams: bool) -> None:
        """Returns when what this process, or the caller's stream alone, has asked of the GPU is done."""
        if all_streams:
            torch.cuda.synchronize(self._device)
        else:
            torch.cuda.current_stream(self._device).synchronize()


class CudaOpening:
    """The worker's side, for one GPU."""

    def __init__(self, uuid: str) -> None:
        self.device = device_of(uuid)

    def open(self, handle: StorageHandle) -> torch.UntypedStorage:
        """The owner's memory, here; raises ExportError."""
        if not isinstance(handle, CudaHandle):
            raise ExportError("a file was exported for tensors on a GPU")
        check_cuda(handle)
        try:
            with torch.cuda.device(self.device):
                return torch.UntypedStorage._new_shared_cuda(
                    self.device.index, handle.handle, handle.size_bytes, handle.offset_bytes, handle.counter.encode(),
                    handle.counter_at, handle.event, handle.waits_for_event,
                )  # fmt: skip
        except RuntimeError as error:
            raise ExportError(
                f"the GPU's driver does not open a handle ({_first_line(error)}): owner and worker need the same GPU, "
                "and one IPC namespace with one /dev/shm"
            ) from error


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises ExportError where torch was told to allocate in segments that grow."""
    for name in ALLOCATOR_VARIABLES:
        settings = environment.get(name, "").replace(" ", "").lower()
        if "expandable_segments:true" in settings.split(","):
            raise ExportError(f"{name} is {environment[name]!r}: {_EXPANDABLE}")


def check_segments(segments: Iterable[Mapping[str, Any]], addresses: frozenset[int]) -> None:
    """Raises ExportError where one of the addresses lies in a segment that can grow, whoever asked for it."""
    for segment in segments:
        if not segment.get("is_expandable", False):
            continue
        begin = int(segment["address"])
        end = begin + int(segment["total_size"])
        if any(begin <= address < end for address in addresses):
            raise ExportError(f"a tensor lies in an expandable segment: {_EXPANDABLE}")


def uuid_of(device: torch.device) -> str:
    """The name of a GPU that is the same in every process."""
    return str(torch.cuda.get_device_properties(device).uuid)


def device_of(uuid: str) -> torch.device:
    """The GPU of a name; raises ExportError where this process does not see it."""
    for index in range(torch.cuda.device_count()):
        if uuid_of(torch.device("cuda", index)) == uuid:
            return torch.device("cuda", index)
    raise ExportError(f"the worker does not see the GPU {uuid}: give both containers the same one")


def _first_line(error: RuntimeError) -> str:
    return str(error).partition("\n")[0]
