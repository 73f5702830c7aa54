"""What the library takes from its environment, read once."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass

from sync_runtime.contract import names


@dataclass(frozen=True)
class LibrarySettings:
    """Where the sidecar is, and who asks."""

    socket: str
    release: str

    @classmethod
    def read(cls, socket: str | None, environment: Mapping[str, str] | None = None) -> LibrarySettings:
        """From an argument, else from the environment, else the place in every pod."""
        found = os.environ if environment is None else environment
        return cls(socket or found.get(names.ENV_SOCKET) or names.SOCKET_PATH, _release())


def _release() -> str:
    try:
        return importlib.metadata.version("syncgroup")[:64]
    except importlib.metadata.PackageNotFoundError:  # the library was copied into an image, not installed
        return "unknown"
