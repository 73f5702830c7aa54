"""Sharded trainers: FSDP2 (`fully_shard`), tensor parallelism (`parallelize_module`), both, and anything of DTensors.

Every rank hands over what lies in its own memory: nothing is gathered and no collective is called. A parameter that is
spread becomes a Shard; parts that several ranks have are counted by one of them, in turn; what is no DTensor, or is
the same in all ranks, is rank 0's. Names are those of the module; of Hugging Face models those of the checkpoint.

Needs torch alone. Does not know how many ranks there are: the sidecar refuses parts that do not make a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

from sync_runtime.errors import LayoutError
from sync_runtime.library.engines import Engine
from sync_runtime.library.engines.module import ModuleEngine
from sync_runtime.library.engines.placements import Axis, box, rectangle, replica_of, splits_of, step_of
from sync_runtime.library.engines.transformers import TransformersEngine, unwrapped
from sync_runtime.library.shards import Shard

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_FLAT = "FullyShardedDataParallel"


class DTensorEngine(ModuleEngine):
    """The tensors of a module or mapping, of which this rank may have parts."""

    def shards(self) -> Mapping[str, Shard]:
        """What this rank has of every tensor that is spread over ranks."""
        found = dict(super().shards())
        for number, (name, value) in enumerate(self._values()):
            if isinstance(value, DTensor):
                shard = _shard(name, value, self._held(name, value), number)
                if shard is not None:
                    found[name] = shard
        return found

    def _held(self, name: str, value: torch.Tensor | Shard) -> torch.Tensor:
        if isinstance(value, DTensor):
            with torch.no_grad():
                local = value.to_local()
            _check_kind(name, local)
            return super()._held(name, local)
        if not isinstance(value, Shard):
            _check_kind(name, value)
        return super()._held(name, value)

    def _memory(self, name: str, value: torch.Tensor | Shard, tensor: torch.Tensor) -> object:
        # One parameter under two names is tied also where this rank's part of it is empty: all ranks must agree.
        return id(value) if isinstance(value, DTensor) else super()._memory(name, value, tensor)


class CheckpointDTensorEngine(DTensorEngine, TransformersEngine):
    """The same for a Hugging Face model: tied tensors under the name in the checkpoint."""


def attach(model: Any) -> Engine:
    """An engine over a module or mapping whose tensors may be DTensors."""
    if not isinstance(model, torch.nn.Module | Mapping):
        raise LayoutError(f"a model is a torch module or a mapping from names to tensors, not a {type(model).__name__}")
    if isinstance(model, Mapping):
        return DTensorEngine(model)
    if any(type(part).__name__ == _FLAT for part in model.modules()):
        raise LayoutError(
            f"{_FLAT} keeps parameters of several tensors in flat memory, cut anywhere: shard with `fully_shard`"
        )
    inner = unwrapped(model)
    is_checkpoint = hasattr(inner, "config") and hasattr(inner, "all_tied_weights_keys")
    return CheckpointDTensorEngine(model) if is_checkpoint else DTensorEngine(model)


def _shard(name: str, value: DTensor, local: torch.Tensor, number: int) -> Shard | None:
    """A rank's part of the DTensor that comes `number`th; None: it is whole in every rank. Raises LayoutError."""
    mesh, shape = value.device_mesh, tuple(value.shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise LayoutError(f"{name!r} lies in a mesh that this rank is not part of: publish from that mesh's ranks")
    axes = [_axis(name, mesh.size(at), placement) for at, placement in enumerate(value.placements)]
    try:
        splits = splits_of(axes)
        if not splits:
            return None
        _check_order(value)
        ranges, step = box(shape, splits, coordinate), step_of(shape, splits)
        part = rectangle(shape, ranges)
    except LayoutError as error:
        raise LayoutError(f"{name!r} cannot be published from its ranks: {error}") from error
    expected = tuple(size for _, size in ranges)
    if expected != tuple(local.shape):
        raise LayoutError(
            f"{name!r} is {list(local.shape)} in this rank; its placements {value.placements} say {list(expected)}"
        )
    replica, replicas = replica_of(axes, coordinate)
    counted = _is_first(mesh) and replica == number % replicas
    return Shard(local, shape, (part.row, part.col), step, counted)


def _axis(name: str, size: int, placement: Placement) -> Axis:
    if placement.is_replicate():
        return Axis(size)
    dim = getattr(placement, "dim", None)
    if placement.is_partial() or not isinstance(dim, int):
        raise LayoutError(
            f"{name!r} has the placement {placement}: ranks hold summands, not weights; redistribute it to shards first"
        )
    # Torch's private placement of data parallelism over tensor parallelism; a name, so that any release is understood.
    return Axis(size, dim, int(getattr(placement, "split_factor", 1)))


def _check_order(value: DTensor) -> None:
    """Newer releases can also say the order of cuts beside the placements."""
    order = getattr(getattr(value, "_spec", None), "shard_order", None)
    if any(list(entry.mesh_dims) != sorted(entry.mesh_dims) for entry in order or ()):
        raise LayoutError(f"its mesh cuts it in the order {order}; axes cut from left to right")


def _is_first(mesh: DeviceMesh) -> bool:
    """Whether no mesh with lower ranks holds the same tensors: a part of the trainer repeats what another one has."""
    return mesh.size() == dist.get_world_size() or bool((mesh.mesh == 0).any())


def _check_kind(name: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN:
        raise LayoutError(
            f"{name!r} is a {type(tensor).__name__}, whose memory is not its elements; weights travel as plain tensors"
        )
