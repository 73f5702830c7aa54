"""What lies beside a checkpoint's weights and belongs to it: configuration, tokeniser, templates.

Weights in other formats do not: beside a patched checkpoint they would still be the old ones.
"""

from __future__ import annotations

from pathlib import Path

from sync_runtime.offline.checkpoints import Checkpoint

_OTHER_WEIGHTS = frozenset(
    {".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".npz", ".onnx", ".pt", ".pth", ".safetensors", ".tflite"}
)
_INDEXES = (".bin.index.json", ".safetensors.index.json")


def companions(base: Checkpoint) -> list[Path]:
    """The small files of a checkpoint's folder."""
    found = [path for path in base.path.iterdir() if path.is_file() and path not in base.files]
    return [path for path in found if path.suffix not in _OTHER_WEIGHTS and not path.name.endswith(_INDEXES)]
