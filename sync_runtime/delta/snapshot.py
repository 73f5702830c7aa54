"""The snapshot: the last durable version as extraction compares with it, on the device or in pinned host memory.

    snapshot = DeviceSnapshot(layout, sections, pinned=True)
    snapshot.seed(state)                                  # what the receivers loaded
    ...
    extractor.run(); ...                                  # encode, hand the bytes on
    snapshot.advance(lists)                               # once the version is durable, before the next extraction

In pinned memory it costs the GPU nothing; kernels then read it through the bus, at its address, without a copy. It
advances by the differences that were extracted, not by a copy of the live weights: these may have moved on while the
version became durable.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from sync_runtime.delta.kernels.scrub import add_differences
from sync_runtime.errors import LayoutError
from sync_runtime.tensors.device.bind import TORCH_DTYPES, Bound, bind
from sync_runtime.tensors.device.lists import ChangeList
from sync_runtime.tensors.device.sections import Section
from sync_runtime.tensors.layout import Layout, TensorSpec
from sync_runtime.tensors.places import WHOLE, Places, held_spec

_ALIGN_BYTES = 256


class DeviceSnapshot:
    """A state of the wire dtypes that only this object writes."""

    def __init__(
        self, layout: Layout, sections: Sequence[Section], *, pinned: bool = False, places: Places = WHOLE
    ) -> None:
        device = sections[0].device
        held = sorted({piece.tensor for one in sections for block in one.blocks for piece in block.pieces})
        specs = [held_spec(layout.tensors[at], places) for at in held]
        sizes = [-(-_size_bytes(spec) // _ALIGN_BYTES) * _ALIGN_BYTES for spec in specs]
        on_host = pinned and device.type == "cuda"  # elsewhere kernels reach all of the host's memory
        # One allocation: torch rounds each pinned one up to a power of two.
        memory = torch.empty(
            sum(sizes), dtype=torch.uint8, device="cpu" if on_host else device, pin_memory=on_host
        )  # fmt: skip
        self.tensors: dict[str, torch.Tensor] = {}
        for spec, part in zip(specs, memory.split(sizes), strict=True):
            items = part[: _size_bytes(spec)].view(TORCH_DTYPES[spec.dtype.name])
            self.tensors[spec.name] = items.view(spec.shape)
        self.bounds: tuple[Bound, ...] = tuple(
            bind(layout, section, self.tensors, places=places) for section in sections
        )

    def seed(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes over a state, cast to the wire dtypes where it is."""
        for name, tensor in self.tensors.items():
            if name not in state:
                raise LayoutError(f"the state has no tensor {name!r}")
            tensor.copy_(state[name].detach().to(tensor.dtype))

    def advance(self, lists: Sequence[ChangeList]) -> None:
        """Adds the differences of an extraction, section by section. To be done once per extraction."""
        for bound, changes in zip(self.bounds, lists, strict=True):
            sums = torch.zeros((bound.section.num_pieces, 2), dtype=torch.int64, device=bound.section.device)
            add_differences(changes, bound, sums)


def _size_bytes(spec: TensorSpec) -> int:
    return spec.numel * spec.dtype.width_bytes
