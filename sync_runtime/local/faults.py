"""Errors across the local protocol: any SyncError becomes an ERROR message, and an ERROR becomes that error again."""

from __future__ import annotations

from sync_runtime import errors
from sync_runtime.errors import LocalError, RefusedError, SyncError
from sync_runtime.local.messages import MAX_TEXT_CHARACTERS, Error


def to_message(request: str, error: SyncError) -> Error:
    """What the other end is told."""
    return Error(request, type(error).__name__, str(error)[:MAX_TEXT_CHARACTERS], error.retry_helps)


def to_error(message: Error) -> SyncError:
    """The error of that name; a name that is not known here, or needs more than a sentence, becomes a LocalError."""
    found = getattr(errors, message.kind, None)
    if isinstance(found, type) and issubclass(found, SyncError) and not issubclass(found, RefusedError):
        return found(message.message)
    return LocalError(f"{message.kind}: {message.message}")
