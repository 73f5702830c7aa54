"""Weights that a framework hands over one by one: kept whole, under the names of their checkpoint.

For frameworks that show no model, only a stream of names and tensors: gathered for the moment, views of others, in a
memory that the next one uses again. What is published is a copy, in the dtype that travels. Knows no framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.engines.contents import Read
from sync_runtime.library.engines.fingerprints import bits_of
from sync_runtime.library.engines.mapped import Content
from sync_runtime.library.shards import Shard
from sync_runtime.library.weights import CAST_DTYPES


class HandedEngine:
    """Copies of what was handed over last.

    Args:
        content: what must be handed over, and what its names are.
        device: where copies are kept; by default where the first tensor is.
        memory: of all copies, where somebody has it already.
    """

    def __init__(
        self, content: Content, device: str | None = None, memory: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self._content = content
        self._device = None if device is None else torch.device(device)
        self._kept: dict[str, torch.Tensor] = dict(memory or {})
        self._taken: set[str] = set()

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The copies; raises LayoutError while there are not all."""
        if len(self._kept) < len(self._content.wanted):
            raise LayoutError("nothing was handed over yet")
        return self._kept

    def ties(self) -> Mapping[str, str]:
        """Other names in the checkpoint's model."""
        return self._content.ties

    def shards(self) -> Mapping[str, Shard]:
        """None: everything is whole here."""
        return {}

    def begin(self) -> None:
        """A new round: everything is to be handed over once more."""
        self._taken.clear()

    def take(self, name: str, tensor: torch.Tensor) -> None:
        """A whole tensor; raises LayoutError for one that does not belong to the checkpoint."""
        found = self._content.ties.get(name, name)
        if found not in self._content.wanted:
            raise LayoutError(f"{name!r} was handed over, and the checkpoint has no such tensor: merge adapters first")
        shape, dtype = self._content.wanted[found]
        _check(name, tensor, shape, dtype)
        with torch.no_grad():
            if found not in self._taken:
                self._copy_of(found, tensor.device).copy_(tensor)
                self._taken.add(found)
            elif not _same_bits(self._kept[found], tensor):
                raise LayoutError(f"{name!r} is not what was handed over as {found!r}, and they are one tensor")

    def check_complete(self) -> None:
        """Raises LayoutError where something of the checkpoint was not handed over in this round."""
        missing = self._content.wanted.keys() - self._taken
        if missing:
            raise LayoutError(
                f"{min(missing)!r} is in the checkpoint and was not handed over; {len(missing)} are missing"
            )

    def fill(self, read: Read) -> None:
        """First elements from the checkpoint's files, as a publisher would send them; zeros where there are none."""
        for name in self._content.wanted:
            stored, kept = read(name), self._copy_of(name, torch.device("cpu"))
            if stored is None:
                kept.zero_()
            else:
                kept.copy_(stored)

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The copies under all names."""
        return all_names(self._kept, self._content.ties)

    def _copy_of(self, name: str, device: torch.device) -> torch.Tensor:
        if name not in self._kept:
            self._device = self._device or device
            shape, dtype = self._content.wanted[name]
            self._kept[name] = torch.empty(shape, dtype=dtype, device=self._device)
        return self._kept[name]


def all_names(tensors: Mapping[str, torch.Tensor], ties: Mapping[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors under all names of the model's state, tied ones too."""
    yield from tensors.items()
    yield from ((alias, tensors[name]) for alias, name in ties.items())


def attach(model: Any) -> Engine:
    """An engine over what is handed over."""
    if not isinstance(model, HandedEngine):
        raise LayoutError(f"a {type(model).__name__} hands nothing over: this engine is for plug-ins of frameworks")
    return model


def _check(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if hasattr(tensor, "full_tensor"):
        raise LayoutError(
            f"{name!r} was handed over as a DTensor, of which this rank has a part: whole ones are expected"
        )
    if tuple(tensor.shape) != shape:
        raise LayoutError(
            f"{name!r} was handed over as {list(tensor.shape)}; in the checkpoint it is {list(shape)}, and whole "
            "tensors are expected"
        )
    is_master = tensor.dtype == torch.float32 and dtype in CAST_DTYPES
    if tensor.dtype != dtype and not is_master:
        raise LayoutError(f"{name!r} was handed over as {tensor.dtype}; it travels as {dtype}")


def _same_bits(kept: torch.Tensor, tensor: torch.Tensor) -> bool:
    other = tensor.to(kept.device, kept.dtype).contiguous()
    return torch.equal(bits_of(kept), bits_of(other))
