"""A small model with everything that is awkward to spread over ranks, and the ways in which trainers spread it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, TOKENS = 16, 10
WIRE = torch.bfloat16


class Net(torch.nn.Module):
    """fp32 masters; the same in every process. Sizes that few numbers of ranks divide; tied; buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embed = torch.nn.Embedding(TOKENS, WIDTH)
        self.up = torch.nn.Linear(WIDTH, 12)
        self.down = torch.nn.Linear(12, WIDTH)
        self.odd = torch.nn.Linear(WIDTH, TOKENS)
        self.head = torch.nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embed.weight
        self.thin = torch.nn.Parameter(torch.randn(3, 40))
        self.single = torch.nn.Parameter(torch.randn(1, WIDTH))
        self.stacked = torch.nn.Parameter(torch.randn(4, 3, 8))
        self.register_buffer("mask", torch.rand(70))
        self.register_buffer("count", torch.tensor(3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.single
        x = x + self.down(torch.relu(self.up(x)))
        found: torch.Tensor = self.head(x) + self.odd(x) * (self.thin.sum() + self.stacked.sum())
        return found


def train(model: torch.nn.Module, step: int) -> None:
    """One real step: forward, backward, optimiser; buffers too."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    tokens = (torch.arange(6) * (step + 1)) % TOKENS
    loss = torch.nn.functional.cross_entropy(model(tokens), tokens.flip(0))
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    optimiser.zero_grad()
    model.get_buffer("count").add_(1)
    model.get_buffer("mask")[step] = -0.0


def whole_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All tensors whole, as they travel; of tied ones the first name. A collective where they are spread."""
    found: dict[str, torch.Tensor] = {}
    for name, value in sorted(model.state_dict(keep_vars=True).items()):
        if name == "head.weight":
            continue
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        found[name] = (whole.to(WIRE) if whole.dtype == torch.float32 else whole).detach().clone()
    return found


def _mesh(*shape: int, names: tuple[str, ...]) -> DeviceMesh:
    size = torch.Size(shape).numel()
    return DeviceMesh("cpu", torch.arange(size).reshape(shape), mesh_dim_names=names)


def _rows(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh)


def _columns(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    def last(parameter: torch.nn.Parameter) -> Shard | None:
        size = parameter.shape[-1]
        return Shard(parameter.dim() - 1) if parameter.dim() > 1 and size % mesh.size() == 0 else None

    fully_shard(model, mesh=mesh, shard_placement_fn=last)


def _tensors(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    replicated = torch.distributed.tensor.Replicate()
    plan = {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
        "odd": ColwiseParallel(output_layouts=replicated),
    }
    parallelize_module(model, mesh, plan)


def _both(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    _tensors(model, mesh["inner"])
    fully_shard(model, mesh=mesh["outer"])


def _middle(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    stacked = torch.nn.Parameter(torch.distributed.tensor.distribute_tensor(torch.ones(4, 4, 8), mesh, [Shard(1)]))
    model.register_parameter("stacked", stacked)


_WAYS: Mapping[str, Callable[[torch.nn.Module, DeviceMesh], None]] = {
    "rows": _rows, "columns": _columns, "tensors": _tensors, "replicas": _rows, "both": _both, "middle": _middle,
}  # fmt: skip
_SQUARE = ("replicas", "both")


def spread(way: str, ranks: int) -> tuple[DeviceMesh, Callable[[torch.nn.Module], None]]:
    """A mesh over the first ranks, which every process of the world must make, and how a model is spread over it."""
    if way in _SQUARE:
        mesh = _mesh(2, ranks // 2, names=("outer", "inner"))
    else:
        mesh = _mesh(ranks, names=("inner",))
    return mesh, lambda model: _WAYS[way](model, mesh)
