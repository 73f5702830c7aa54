"""A small model spread over ranks: rows of one tensor, columns of another, small ones whole in rank 0."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from sync_runtime import Shard

T = TypeVar("T")
State = dict[str, torch.Tensor]
Held = Mapping[str, torch.Tensor | Shard]
ROWS, COLS = 24, 32
V_ROWS, V_COLS = 6, 96
SMALL = ("b", "n")
SMALL_ELEMENTS = 64
"""What is packed with others here: kernels run in an interpreter, which is too slow for blocks of a usual size."""


def whole_state(seed: int = 0) -> State:
    """Two tensors that are cut and two that are not."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(ROWS, COLS, generator=generator).to(torch.bfloat16),
        "v": torch.randn(V_ROWS, V_COLS, generator=generator).to(torch.bfloat16),
        "b": torch.randn(7, generator=generator),
        "n": torch.tensor(3 + seed),
    }


def rank_state(whole: State, rank: int, ranks: int, *, copies: bool = False) -> dict[str, torch.Tensor | Shard]:
    """A rank's own memory of a state; `copies`: other ranks than 0 have small tensors too."""
    rows, cols = -(-ROWS // ranks), -(-V_COLS // ranks)
    first, left = rank * rows, rank * cols
    held: dict[str, torch.Tensor | Shard] = {
        "w": Shard(whole["w"][first : first + rows].clone(), (ROWS, COLS), (first, 0), (rows, None)),
        "v": Shard(whole["v"][:, left : left + cols].clone(), (V_ROWS, V_COLS), (0, left), (None, cols)),
    }
    for name in SMALL:
        here = rank == 0 or copies
        held[name] = whole[name].clone() if here else Shard(whole[name].new_empty(0), tuple(whole[name].shape))
    return held


def one_rank(whole: State, ranks: int) -> Held:
    """All of it in one process, cut where so many ranks cut it."""
    rows, cols = -(-ROWS // ranks), -(-V_COLS // ranks)
    return {
        "w": Shard(whole["w"], (ROWS, COLS), (0, 0), (rows, None)),
        "v": Shard(whole["v"], (V_ROWS, V_COLS), (0, 0), (None, cols)),
        "b": whole["b"],
        "n": whole["n"],
    }


def train_whole(whole: State, step: int) -> None:
    """Some elements of every tensor."""
    whole["w"].view(torch.int16)[step % 3 :: 4, step % 5 :: 7] += 1 + step
    whole["v"].view(torch.int16)[step % 3 :: 2, step % 5 :: 11] -= 1
    whole["b"][step % 7] += 1
    whole["n"] += 1


def load(held: Mapping[str, torch.Tensor | Shard], whole: State) -> None:
    """Brings a rank's memory to a state."""
    for name, value in held.items():
        memory = value.tensor if isinstance(value, Shard) else value
        memory.copy_(part_of(value, whole[name]))


def part_of(value: torch.Tensor | Shard, whole: torch.Tensor) -> torch.Tensor:
    """What a rank holds of a whole tensor."""
    if not isinstance(value, Shard):
        return whole
    if not value.tensor.numel():
        return value.tensor
    (row, col), (rows, cols) = value.start, value.tensor.shape
    return whole[row : row + rows, col : col + cols]


def same_part(held: Mapping[str, torch.Tensor | Shard], whole: State) -> bool:
    """Whether a rank's memory is its part of a state, bit for bit."""
    pairs = [(v.tensor if isinstance(v, Shard) else v, part_of(v, whole[name])) for name, v in held.items()]
    return all(torch.equal(_bits(mine), _bits(theirs)) for mine, theirs in pairs)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def together(*calls: Callable[[], T], timeout_s: float = 60.0) -> list[T | BaseException]:
    """Runs what ranks do side by side; results or errors, in order."""
    found: dict[int, T | BaseException] = {}

    def run(at: int, call: Callable[[], T]) -> None:
        try:
            found[at] = call()
        except Exception as error:  # noqa: BLE001 -- handed to the test
            found[at] = error

    threads = [threading.Thread(target=run, args=(at, call), daemon=True) for at, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    return [found.get(at, TimeoutError("it still waits")) for at in range(len(calls))]
