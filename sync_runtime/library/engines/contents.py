"""What the trainer publishes to an engine of others: names, shapes, dtypes and cuts, and where first elements are read.

Either the trainer's layout document says it, or the checkpoint's folder that the engine started from. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.cuts import Cuts, cuts_by_name, cuts_of
from sync_runtime.library.engines import checkpoint_files
from sync_runtime.library.engines.mapped import Content
from sync_runtime.tensors import layout as layouts

Read = Callable[[str], torch.Tensor | None]
"""A tensor's first elements; None: they are on no disk here."""
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def content_of(
    folder: Path, dtype: torch.dtype, *, layout: str | None, cuts: Cuts | None, ranks: int, is_tied: bool
) -> tuple[Content, Read]:
    """What is published, and where its first elements can be read; raises LayoutError where nothing says so.

    Args:
        folder: the checkpoint that the engine was loaded from; a name on a hub is no folder, and tells nothing.
        dtype: what the engine computes in.
        layout: the trainer's layout document, which wins over the folder, and says where tensors are cut.
        cuts: where the trainer's layout is cut; by default into one part per rank.
        ranks: of the engine.
        is_tied: whether the model's head is its embedding.
    """
    stored = checkpoint_files.stored_in(folder) if folder.is_dir() and list(folder.glob("*.safetensors")) else {}

    def read(name: str) -> torch.Tensor | None:
        return checkpoint_files.read(stored[name]) if name in stored else None

    if layout is not None:
        if cuts is not None:
            raise LayoutError("the trainer's `layout` says where tensors are cut: leave out `cuts`")
        told = layouts.parse_layout(layout.encode())
        wanted = {spec.name: (spec.shape, checkpoint_files.dtype_of(spec.dtype.name)) for spec in told.tensors}
        return Content(wanted, dict(told.tied), cuts_of(told)), read
    if not stored:
        raise LayoutError(f"{folder} is no folder with safetensors files: hand over the trainer's `layout`")
    narrow = dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32
    wanted = {
        name: (one.shape, narrow if one.dtype == torch.float32 else one.dtype) for name, one in sorted(stored.items())
    }
    ties = {_HEAD: _EMBEDDING} if is_tied and _EMBEDDING in wanted and _HEAD not in wanted else {}
    shapes = {name: shape for name, (shape, _) in wanted.items()}
    return Content(wanted, ties, cuts_by_name(ranks if cuts is None else cuts, shapes)), read
