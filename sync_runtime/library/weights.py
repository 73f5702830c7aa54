"""A model's tensors under a layout: what travels, in which dtype, in which order.

The layout is fixed when the library opens. Tensors are looked up again for every use, since training code replaces
them; one that no longer fits the layout is an error that names it. Knows neither sidecar nor coding.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.shards import Holding, holding_of, layout_shards, places_of
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout, TensorSpec, make_layout
from sync_runtime.tensors.places import held_spec

_WIRE_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64",
    "complex64": "C64", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
CAST_DTYPES = (torch.bfloat16, torch.float16)
"""What fp32 masters may travel as."""


def wire_name(dtype: torch.dtype) -> str:
    """How a torch dtype travels; raises LayoutError for one that cannot."""
    found = _WIRE_NAMES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise LayoutError(f"{dtype} is not one of the dtypes that travel: {', '.join(sorted(_WIRE_NAMES))}")
    return found


class Weights:
    """An engine's tensors, with the layout that they had when this was made.

    `wire_dtype`: fp32 tensors are masters; they travel rounded to this dtype. `rank`: of those that hold the tensors
    together.
    """

    def __init__(
        self, engine: Engine, wire_dtype: torch.dtype | None = None, *, rank: int = 0, world_size: int = 1
    ) -> None:
        if wire_dtype is not None and wire_dtype not in CAST_DTYPES:
            raise LayoutError(f"the wire dtype is {wire_dtype}; fp32 masters travel as bfloat16 or float16")
        self._engine, self._cast = engine, wire_dtype
        tensors, shards = engine.tensors(), engine.shards()
        if not tensors:
            raise LayoutError("the model has no tensors")
        listed = [
            (name, wire_name(self.wire_dtype_of(one)), shards[name].shape if name in shards else tuple(one.shape))
            for name, one in tensors.items()
        ]
        self.layout: Layout = make_layout(listed, tied=engine.ties(), shards=layout_shards(shards))
        self.blocks = BlockMap(self.layout)
        self.places = places_of(self.layout, shards)
        """Of tensors that this process holds a part of."""
        self.holding: Holding = holding_of(self.blocks, shards, self.places, rank)
        self.is_part = world_size > 1
        """Whether other ranks hold the rest."""
        if not self.is_part and len(self.holding.counted) < self.blocks.num_blocks:
            raise LayoutError("shards that are not all of the model need the other ranks: say `rank` and `world_size`")
        self.device = _one_device(tensors)

    @property
    def state_bytes(self) -> int:
        """Bytes of a state as a stream."""
        return sum(spec.numel * spec.dtype.width_bytes for spec in self.layout.tensors)

    @property
    def cast(self) -> torch.dtype | None:
        """What fp32 tensors travel as; None: as they are."""
        return self._cast

    def wire_dtype_of(self, tensor: torch.Tensor) -> torch.dtype:
        """The dtype that a tensor travels in."""
        return self._cast if self._cast is not None and tensor.dtype == torch.float32 else tensor.dtype

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors as they are now, by the layout's names."""
        found = self._engine.tensors()
        for spec in self.layout.tensors:
            if spec.name not in found:
                raise LayoutError(f"the model has lost its tensor {spec.name!r} since it was opened")
            self._check(spec, found[spec.name])
        return found

    def _check(self, spec: TensorSpec, tensor: torch.Tensor) -> None:
        have = (wire_name(self.wire_dtype_of(tensor)), tuple(tensor.shape))
        held = held_spec(spec, self.places).shape
        if have != (spec.dtype.name, held):
            raise LayoutError(
                f"{spec.name!r} has become {have[0]}{list(have[1])}; it was {spec.dtype.name}{list(held)} "
                "when it was opened: open again"
            )
        if tensor.device != self.device:
            raise LayoutError(f"{spec.name!r} has moved to {tensor.device}; it was on {self.device}: open again")


def _one_device(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) > 1:
        names = ", ".join(sorted(str(device) for device in devices))
        raise LayoutError(f"the model is spread over {names}; this engine holds models on one device")
    return devices.pop()
