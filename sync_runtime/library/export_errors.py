"""What can go wrong between the user's process and a GPU worker: children of LocalError.

LocalError
├── WorkerLostError        the worker went away; it is dialled again in the background
├── OwnerLostError         the user's process went away
├── ExportError            tensors that cannot be handed over, or handles that cannot be opened
└── HandlesChangedError    tensors were replaced, moved or resized before an apply: nothing was written
"""

from __future__ import annotations

from typing import ClassVar

from sync_runtime.errors import LocalError, NothingWrittenError, SyncError
from sync_runtime.local import faults
from sync_runtime.local.messages import Error


class WorkerLostError(LocalError):
    """The GPU worker went away."""

    retry_helps: ClassVar[bool] = True


class OwnerLostError(NothingWrittenError):
    """The process that owns the tensors went away."""

    retry_helps: ClassVar[bool] = True


class ExportError(LocalError):
    """Tensors that another process cannot be given, or handles that are not sound."""


class HandlesChangedError(NothingWrittenError):
    """Handles no longer describe the owner's tensors."""

    retry_helps: ClassVar[bool] = True


_OURS = {cls.__name__: cls for cls in (WorkerLostError, OwnerLostError, ExportError, HandlesChangedError)}


def error_of(kind: str, message: str, *, retry: bool) -> SyncError:
    """The error that the other end raised, by its name."""
    if kind in _OURS:
        return _OURS[kind](message)
    return faults.to_error(Error("WORKER", kind, message, retry))
