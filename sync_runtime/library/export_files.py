"""Storages on the CPU for another process: files that both map. For tests, and for models on the CPU.

A storage must have been mapped from a file (`torch.UntypedStorage.from_file`, `torch.from_file`); memory of any other
kind is refused, since moving it would break whatever points to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch

from sync_runtime.library.export_errors import ExportError
from sync_runtime.library.export_handles import FileHandle, StorageHandle


class FileSharing:
    """The owner's side."""

    device_name = ""
    """The CPU has no uuid."""

    def check(self, addresses: Iterable[int]) -> None:
        """Any address will do."""
        del addresses

    def share(self, storage: torch.UntypedStorage) -> FileHandle:
        """The file that a storage was mapped from."""
        path = storage.filename
        if path is None:
            raise ExportError(
                "a tensor on the CPU lies in memory of this process alone: map it from a file "
                "(torch.UntypedStorage.from_file with shared=True), or use gpu_access InProcess"
            )
        return FileHandle(str(Path(path).absolute()), storage.nbytes())

    def settle(self, *, all_streams: bool) -> None:
        """What is written is there."""
        del all_streams


class FileOpening:
    """The worker's side."""

    device = torch.device("cpu")

    def open(self, handle: StorageHandle) -> torch.UntypedStorage:
        """The owner's memory, here; raises ExportError."""
        if not isinstance(handle, FileHandle):
            raise ExportError("a GPU's handle was exported for tensors on the CPU")
        try:
            found = os.lstat(handle.path)
        except OSError as error:
            raise ExportError(f"the file {handle.path} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode) or found.st_size < handle.size_bytes:
            raise ExportError(f"{handle.path} is not a file of at least {handle.size_bytes} bytes")
        try:
            made = torch.UntypedStorage.from_file(handle.path, shared=True, nbytes=handle.size_bytes)
            return cast("torch.UntypedStorage", made)
        except RuntimeError as error:
            raise ExportError(f"the file {handle.path} cannot be mapped: {error}") from error
