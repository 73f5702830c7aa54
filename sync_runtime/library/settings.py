"""What the library takes from its environment, read once, and what users ask of one publisher or subscriber."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from sync_runtime.contract import names
from sync_runtime.errors import SettingsError
from sync_runtime.local.messages import Coder

if TYPE_CHECKING:
    import torch

GpuAccess = Literal["InProcess", "CudaIpc"]
"""Who works on the weights: this process, or a GPU worker that opens handles of them (experimental)."""

NO_RANKS: Final = 'a GPU worker serves one rank: several ranks need gpu_access "InProcess"'


@dataclass(frozen=True)
class LibrarySettings:
    """Where the sidecar is, and who asks."""

    socket: str
    release: str
    gpu_access: GpuAccess = "InProcess"
    worker_socket: str = ""

    @classmethod
    def read(
        cls, socket: str | None, environment: Mapping[str, str] | None = None, *, gpu_access: str | None = None,
        worker_socket: str | None = None,
    ) -> LibrarySettings:  # fmt: skip
        """From arguments, else the environment, else the places in every pod; a worker listens beside its sidecar."""
        found = os.environ if environment is None else environment
        access = gpu_access or found.get(names.ENV_GPU_ACCESS) or "InProcess"
        if access not in get_args(GpuAccess):
            raise SettingsError(f"gpu_access is {access!r}; it must be one of {', '.join(get_args(GpuAccess))}")
        sidecar = socket or found.get(names.ENV_SOCKET) or names.SOCKET_PATH
        worker = worker_socket or found.get(names.ENV_GPU_WORKER_SOCKET) or names.gpu_worker_socket(sidecar)
        return cls(sidecar, _release(), cast("GpuAccess", access), worker)


@dataclass(frozen=True)
class PublishOptions:
    """What users ask of one publisher."""

    wire_dtype: torch.dtype | None = None
    coder: Coder | None = None
    host_snapshot: bool = False
    rank: int = 0
    world_size: int = 1
    timeout_s: float = 60.0
    patience_s: float = 5.0


@dataclass(frozen=True)
class SubscribeOptions:
    """What users ask of one subscriber."""

    coder: Coder | None = None
    auto_scrub: bool | None = None
    rank: int = 0
    world_size: int = 1
    timeout_s: float = 60.0
    patience_s: float = 5.0


def _release() -> str:
    try:
        return importlib.metadata.version("syncgroup")[:64]
    except importlib.metadata.PackageNotFoundError:  # the library was copied into an image, not installed
        return "unknown"
