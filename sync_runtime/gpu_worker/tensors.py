"""An owner's tensors in the worker: opened from handles that were checked, and asked about before every use.

An engine like any other to the library's sessions. Knows no sockets: how the owner is asked comes from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.export_cuda import CudaOpening
from sync_runtime.library.export_errors import ExportError, HandlesChangedError
from sync_runtime.library.export_files import FileOpening
from sync_runtime.library.export_handles import StorageHandle, TensorHandle, check_extent
from sync_runtime.library.export_messages import Export, Valid
from sync_runtime.library.shards import Shard
from sync_runtime.library.weights import wire_name

Ask = Callable[[int], Valid | Export]
"""Asks the owner about a generation. An EXPORT that it answers with was adopted when this returns."""


class Opening(Protocol):
    """One way to get at another process's memory."""

    @property
    def device(self) -> torch.device:
        """Where opened storages are."""

    def open(self, handle: StorageHandle) -> torch.UntypedStorage:
        """The memory of a handle; raises ExportError."""


class OwnedTensors:
    """The tensors of one owner, in their newest generation."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._generation = 0
        self._device = ""
        self._opening: Opening | None = None
        self._opened: dict[StorageHandle, torch.UntypedStorage] = {}
        self._tensors: Mapping[str, torch.Tensor] = {}
        self._ties: Mapping[str, str] = {}
        self._confirmed = threading.local()

    def adopt(self, export: Export) -> None:
        """Takes handles over; those that were there before stay open. Raises ExportError, and then nothing changes."""
        if export.generation <= self._generation:
            return  # two threads of the owner exported, and the newer one was faster
        if self._opening is None:
            self._device = export.device
            self._opening = CudaOpening(export.device) if export.device else FileOpening()
        if export.device != self._device:
            raise ExportError("the tensors moved to another device: close this and open a new one")
        dtypes = check_export(export)
        opened = {handle: self._open(self._opening, handle) for handle in export.storages}
        storages = [opened[handle] for handle in export.storages]
        self._tensors = {
            handle.name: _rebuilt(handle, dtypes[handle.name], storages, self._opening.device)
            for handle in export.tensors
        }
        self._ties, self._opened, self._generation = dict(export.ties), opened, export.generation

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors as the owner has them now."""
        if not getattr(self._confirmed, "now", False):
            self._ask(self._generation)
        return self._tensors

    def shards(self) -> Mapping[str, Shard]:
        """None: an owner exports whole tensors."""
        return {}

    def ties(self) -> Mapping[str, str]:
        """Other names of tensors."""
        return self._ties

    @contextmanager
    def confirmed(self) -> Iterator[None]:
        """The owner confirms its tensors once, at the begin; raises HandlesChangedError where they are others now."""
        if not isinstance(self._ask(self._generation), Valid):
            raise HandlesChangedError(
                "tensors were replaced, moved or resized since they were handed over: nothing was written, and the new "
                "ones are known now; try again"
            )
        self._confirmed.now = True
        try:
            yield
        finally:
            self._confirmed.now = False

    def release(self) -> None:
        """Lets go of the owner's memory."""
        self._tensors, self._opened = {}, {}

    def _open(self, opening: Opening, handle: StorageHandle) -> torch.UntypedStorage:
        found = self._opened.get(handle)
        return opening.open(handle) if found is None else found


def check_export(export: Export) -> Mapping[str, torch.dtype]:
    """The dtypes by tensor; raises ExportError where an export does not fit together. Opens nothing."""
    dtypes = {}
    for handle in export.tensors:
        dtype = getattr(torch, handle.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ExportError(f"{handle.name!r} has the dtype {handle.dtype!r}, which torch does not have")
        try:
            wire_name(dtype)
        except LayoutError as error:
            raise ExportError(f"{handle.name!r} cannot travel: {error}") from error
        check_extent(handle, dtype.itemsize, export.storages)
        dtypes[handle.name] = dtype
    if len(dtypes) != len(export.tensors):
        raise ExportError("an export has a name twice")
    if len(set(export.storages)) != len(export.storages):
        raise ExportError("an export has a storage twice")
    ties = dict(export.ties)
    if len(ties) != len(export.ties) or not set(ties.values()) <= set(dtypes) or set(ties) & set(dtypes):
        raise ExportError("an export ties names that it does not have, or has besides")
    return dtypes


def _rebuilt(
    handle: TensorHandle, dtype: torch.dtype, storages: list[torch.UntypedStorage], device: torch.device
) -> torch.Tensor:
    if handle.storage is None:
        return torch.empty(handle.shape, dtype=dtype, device=device)
    try:
        return torch.empty(0, dtype=dtype, device=device).set_(
            storages[handle.storage], handle.offset, handle.shape, handle.stride
        )
    except RuntimeError as error:
        raise ExportError(f"{handle.name!r} cannot be made of its storage: {error}") from error
