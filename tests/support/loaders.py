"""A small model with a loader as engines have them: fused, cut for a rank, padded, tied, filtered, computed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch

from sync_runtime.library.cuts import cuts_by_name
from sync_runtime.library.engines.loadplan import Plan, make_plan
from sync_runtime.library.engines.mapped import Content, MappedEngine, Ranks
from sync_runtime.library.engines.recording import Wanted, record, state_of
from sync_runtime.tensors import layout
from tests.support.sharded import together

HIDDEN, VOCAB, PADDED = 8, 13, 16
Q_ROWS, KV_ROWS = 16, 4
State = dict[str, torch.Tensor]
BF16 = torch.bfloat16


class Leaf(torch.nn.Module):
    """A weight, and a bias where it is wanted."""

    weight: torch.nn.Parameter
    bias: torch.nn.Parameter

    def __init__(self, *shape: int, bias: bool = False, dtype: torch.dtype = BF16) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(shape[0], dtype=dtype), requires_grad=False)


class Fused(torch.nn.Module):
    """A rank's half, or all, of one layer."""

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        super().__init__()
        self.rank, self.ranks = rank, ranks
        self.embed = Leaf(PADDED // ranks, HIDDEN)
        self.qkv = Leaf((Q_ROWS + 2 * KV_ROWS) // ranks, HIDDEN, bias=True)
        self.o = Leaf(HIDDEN, Q_ROWS // ranks)
        self.norm = Leaf(HIDDEN)
        self.head = Leaf(PADDED // ranks, HIDDEN)
        self.router = Leaf(3, dtype=torch.float32)
        self.decay = Leaf(HIDDEN, dtype=torch.float32)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Knows its own names only; others are left aside."""
        loaded = set()
        for name, weight in weights:
            layer, _, kind = name.rpartition(".")
            if layer in ("q", "k", "v"):
                self._fuse(layer, getattr(self.qkv, kind), weight)
            elif layer == "o":
                width = self.o.weight.shape[1]
                self.o.weight.data.copy_(weight.narrow(1, self.rank * width, width))
            elif layer == "embed":
                for module in (self.embed, self.head):
                    self._vocabulary(module.weight, weight)
            elif layer == "decay":
                self.decay.weight.data.copy_(weight)
                self.decay.weight.data.copy_(-torch.exp(self.decay.weight.float()))
            elif layer in ("norm", "router"):
                getattr(self, layer).weight.data.copy_(weight)
            else:
                continue
            loaded.add(name)
        return loaded

    def _fuse(self, layer: str, parameter: torch.nn.Parameter, weight: torch.Tensor) -> None:
        rows = {"q": Q_ROWS, "k": KV_ROWS, "v": KV_ROWS}[layer] // self.ranks
        at = {"q": 0, "k": Q_ROWS, "v": Q_ROWS + KV_ROWS}[layer] // self.ranks
        parameter.data.narrow(0, at, rows).copy_(weight.narrow(0, self.rank * rows, rows))

    def _vocabulary(self, parameter: torch.nn.Parameter, weight: torch.Tensor) -> None:
        rows = PADDED // self.ranks
        mine = weight[self.rank * rows : (self.rank + 1) * rows]
        parameter[: mine.shape[0]].data.copy_(mine)
        parameter[mine.shape[0] :].data.fill_(0)


def checkpoint(seed: int = 0) -> State:
    """A checkpoint of it, in bf16; `extra` is for others."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "decay.weight": (HIDDEN,), "embed.weight": (VOCAB, HIDDEN), "extra.weight": (5,), "k.bias": (KV_ROWS,),
        "k.weight": (KV_ROWS, HIDDEN), "norm.weight": (HIDDEN,), "o.weight": (HIDDEN, Q_ROWS), "q.bias": (Q_ROWS,),
        "q.weight": (Q_ROWS, HIDDEN), "router.weight": (3,), "v.bias": (KV_ROWS,), "v.weight": (KV_ROWS, HIDDEN),
    }  # fmt: skip
    return {name: torch.randn(shape, generator=generator).to(BF16) for name, shape in shapes.items()}


def wanted_of(state: Mapping[str, torch.Tensor]) -> Wanted:
    """Shapes and dtypes."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}


def plan_of(model: Fused, state: State, *, whole_below: int = layout.MAX_TENSOR_ELEMENTS + 1) -> Plan:
    """The plan of its loader."""
    wanted = wanted_of(state)
    dtypes = {name: tensor.dtype for name, tensor in state_of(model)}
    return make_plan(record(model, model.load_weights, wanted), wanted, dtypes, whole_below=whole_below)


def engine_of(
    model: Fused, state: State, ranks: Ranks | None = None, *, whole_below: int | None = None
) -> MappedEngine:
    """An engine over the model, whose computing modules are loaded again by its own loader."""
    below = layout.MAX_TENSOR_ELEMENTS + 1 if whole_below is None else whole_below
    wanted = wanted_of(state)
    shapes = {name: shape for name, (shape, _) in wanted.items()}
    content = Content(wanted, {}, cuts_by_name(1 if ranks is None else ranks.count, shapes))

    def reload(_: Sequence[str], tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        model.load_weights(tensors)

    plan = plan_of(model, state, whole_below=below)
    return MappedEngine(model, plan, content, ranks=ranks, reload=reload, stored=state.get)


def ranks_of(count: int) -> list[Ranks]:
    """Ranks in threads that tell each other what they have."""
    barrier, told = threading.Barrier(count, timeout=120), dict[int, torch.Tensor]()

    def gather(number: int, tensor: torch.Tensor) -> list[torch.Tensor]:
        barrier.wait()
        told[number] = tensor.clone()
        barrier.wait()
        return [told[at] for at in range(count)]

    return [Ranks(at, count, partial(gather, at)) for at in range(count)]


def engines_of(models: Sequence[Fused], small: int) -> list[MappedEngine]:
    """Engines of all ranks, made side by side."""
    ranks = ranks_of(len(models))
    calls = [
        partial(engine_of, model, checkpoint(), one, whole_below=small)
        for model, one in zip(models, ranks, strict=True)
    ]
    found = together(*calls)
    assert all(isinstance(one, MappedEngine) for one in found), found
    return [one for one in found if isinstance(one, MappedEngine)]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Raw bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Whether two models hold the same bits."""
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(bits(one), bits(other)) for one, other in pairs)
