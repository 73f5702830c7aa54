"""What the trainer publishes to an engine of others: names, shapes, dtypes and cuts, and where first elements are read.

Either the trainer's layout document says it, or the checkpoint's folder that the engine started from. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import Content
from sync_runtime.tensors import layout as layouts

Read = Callable[[str], torch.Tensor | None]
"""A tensor's first elements; None: they are on no disk here."""
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def content_of(
    folder: Path, dtype: torch.dtype, *, layout: str | None, parts: int, is_tied: bool
) -> tuple[Content, Read]:
    """What is published, and where its first elements can be read; raises LayoutError where nothing says so.

    Args:
        folder: the checkpoint that the engine was loaded from; a name on a hub is no folder, and tells nothing.
        dtype: what the engine computes in.
        layout: the trainer's layout document, which wins over the folder.
        parts: into so many parts the trainer cuts large tensors, each way.
        is_tied: whether the model's head is its embedding.
    """
    stored = checkpoint_files.stored_in(folder) if folder.is_dir() and list(folder.glob("*.safetensors")) else {}

    def read(name: str) -> torch.Tensor | None:
        return checkpoint_files.read(stored[name]) if name in stored else None

    if layout is not None:
        told = layouts.parse_layout(layout.encode())
        wanted = {spec.name: (spec.shape, checkpoint_files.dtype_of(spec.dtype.name)) for spec in told.tensors}
        steps = {spec.name: spec.grid[::2] for spec in told.tensors if spec.grid and spec.grid != _uncut(spec)}
        return Content(wanted, dict(told.tied), steps=steps), read
    if not stored:
        raise LayoutError(f"{folder} is no folder with safetensors files: hand over the trainer's `layout`")
    narrow = dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32
    wanted = {
        name: (one.shape, narrow if one.dtype == torch.float32 else one.dtype) for name, one in sorted(stored.items())
    }
    ties = {_HEAD: _EMBEDDING} if is_tied and _EMBEDDING in wanted and _HEAD not in wanted else {}
    return Content(wanted, ties, parts), read


def _uncut(spec: layouts.TensorSpec) -> layouts.Grid:
    return layouts.default_grid(rows=spec.rows, cols=spec.cols, block_elements=layouts.DEFAULT_BLOCK_ELEMENTS)
