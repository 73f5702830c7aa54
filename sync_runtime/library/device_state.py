"""Weights on a device as kernels find them: bound section by section, bound again when tensors were replaced.

Kernels read tensors where they lie. What they cannot read (a mix of fp32 masters and tensors that travel as they are in
one section, rows that do not lie evenly) is copied into a shadow of the wire dtype before it is looked at; that is for
reading alone.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from sync_runtime.delta.kernels.scrub import TilePlan, plan_tiles, scrub
from sync_runtime.errors import LayoutError, LocalError
from sync_runtime.library.weights import Weights
from sync_runtime.tensors.device.bind import BITS_OF_WIDTH, TORCH_DTYPES, Bound, bind
from sync_runtime.tensors.device.sections import Section
from sync_runtime.tensors.layout import TensorSpec
from sync_runtime.tensors.places import held_spec

Sums = tuple[torch.Tensor, ...]
"""Per section int64[P, 2]: two digest words per piece."""


class LiveState:
    """The model's tensors bound to sections."""

    def __init__(self, weights: Weights, sections: tuple[Section, ...], *, writable: bool) -> None:
        self._weights, self._sections, self._writable = weights, sections, writable
        self._where: tuple[object, ...] = ()
        self._shadows: dict[str, torch.Tensor] = {}
        self.bounds: tuple[Bound, ...] = ()
        self.plans: tuple[TilePlan, ...] = ()
        self._tensors: Mapping[str, torch.Tensor] = {}

    def refresh(self) -> bool:
        """Looks at the tensors anew and fills shadows; True where something lies elsewhere than before."""
        self._tensors = self._weights.tensors()
        where = tuple((tensor.data_ptr(), tensor.stride()) for tensor in self._tensors.values())
        moved = where != self._where
        if moved:
            self._shadows = {}
            self.bounds = tuple(self._bind(section) for section in self._sections)
            self.plans = tuple(plan_tiles(bound.section, bound) for bound in self.bounds)
            self._where = where
        for name, shadow in self._shadows.items():
            shadow.copy_(self._tensors[name])
        return moved

    def state(self) -> Mapping[str, torch.Tensor]:
        """The tensors as of the last look."""
        return self._tensors

    def sums(self) -> Sums:
        """The full digest, piece by piece."""
        found = []
        for bound, plan in zip(self.bounds, self.plans, strict=True):
            words = new_sums(bound.section)
            bound.refresh()
            scrub(bound, plan, words)
            found.append(words)
        return tuple(found)

    def _bind(self, section: Section) -> Bound:
        layout, places = self._weights.layout, self._weights.places
        numbers = sorted({int(piece.tensor) for block in section.blocks for piece in block.pieces})
        specs = [held_spec(layout.tensors[number], places) for number in numbers]
        wire = TORCH_DTYPES[section.dtype.name]
        masters = [spec.name for spec in specs if self._tensors[spec.name].dtype != wire]
        all_masters = len(masters) == len(specs)
        chosen = {}
        for spec in specs:
            tensor = self._tensors[spec.name]
            if (spec.name in masters and not all_masters) or not _lies_evenly(tensor, spec):
                tensor = self._shadow(spec, torch.float32 if all_masters else wire)
            chosen[spec.name] = tensor
        return bind(layout, section, chosen, masters=all_masters, places=places)

    def _shadow(self, spec: TensorSpec, dtype: torch.dtype) -> torch.Tensor:
        if self._writable:
            raise LayoutError(f"{spec.name!r} cannot be written in place on a GPU: make it contiguous")
        self._shadows[spec.name] = torch.empty(spec.shape, dtype=dtype, device=self._weights.device)
        return self._shadows[spec.name]


def new_sums(section: Section) -> torch.Tensor:
    """Digest words of a section, zero."""
    return torch.zeros((section.num_pieces, 2), dtype=torch.int64, device=section.device)


def element_matrix(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A tensor as the layout's matrix of raw elements, in its own memory; raises LayoutError where that cannot be."""
    items = tensor.detach()
    try:
        bits = (items if items.dim() else items.view(1)).view(BITS_OF_WIDTH[spec.dtype.width_bits])
        return bits.view(spec.rows, spec.cols)
    except RuntimeError as error:
        raise LayoutError(f"the rows of {spec.name!r} do not lie evenly in memory: make it contiguous") from error


@contextmanager
def on_device(device: torch.device, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
    """Kernels of the calling thread go to a device, on its current stream or a given one; they are done at the end.

    A device without memory left is an error of ours.
    """
    if device.type != "cuda":
        yield
        return
    try:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            yield
            torch.cuda.current_stream(device).synchronize()
    except torch.OutOfMemoryError as error:
        raise LocalError(
            "the GPU has no memory left for lists and masks: leave some per cent of the model's size free"
        ) from error


def _lies_evenly(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    if spec.dtype.elements_per_item > 1 and not tensor.is_contiguous():
        return False
    try:
        tensor.view(spec.rows, -1 if spec.shape else 1)
    except RuntimeError:
        return False
    return True
