"""`syncgroup delta encode --device cuda`: asks for what that needs, then lets the runtime do it.

torch is imported here only after everything cheaper was asked, for its import takes seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
from collections.abc import Mapping
from typing import BinaryIO

from sync_runtime.bucket.manifest import Manifest
from sync_runtime.tensors.bits import BitTensor
from sync_runtime.tensors.blocks import BlockMap
from syncgroup.commands.delta_progress import Progress
from syncgroup.errors import CommandError

_DRIVER = "libcuda.so.1"
_NEEDS = ("torch", "triton")
_BESIDE = "use --device cpu, the bytes are the same"


def check_device() -> None:
    """Whether coding on a GPU can be tried at all; raises CommandError."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise CommandError(f"there is no CUDA driver here ({_DRIVER}): {_BESIDE}") from error
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"coding on a GPU needs {' and '.join(missing)}, not installed here: {_BESIDE}")


def write_on_device(
    file: BinaryIO,
    blocks: BlockMap,
    states: tuple[Mapping[int, BitTensor], Mapping[int, BitTensor]],
    options: argparse.Namespace,
) -> Manifest:
    """The delta of two states to a file, coded on the GPU."""
    check_device()
    device = importlib.import_module("sync_runtime.offline.device")
    manifest: Manifest = device.write_device_diff(
        file, blocks, states, codec=options.codec, label=options.label, watch=Progress("uploading").over
    )
    return manifest
