"""Ranks that agree: what fails in one fails in all, and is undone in all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sync_runtime.errors import LocalError
from sync_runtime.library.engines.following import agreed
from sync_runtime.library.engines.mapped import Ranks


def in_ranks(count: int, work: Callable[[Ranks], str]) -> list[str]:
    """What ranks say that are threads and gather over a barrier."""
    barrier, said = threading.Barrier(count, timeout=5), [torch.empty(0)] * count

    def run(number: int) -> str:
        def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
            said[number] = tensor
            barrier.wait()
            found = list(said)
            barrier.wait()
            return found

        return work(Ranks(number, count, gather))

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_a_call_that_succeeds_in_all_ranks_returns_what_it_found() -> None:
    assert in_ranks(3, lambda ranks: agreed(ranks, lambda: f"rank {ranks.number}")) == ["rank 0", "rank 1", "rank 2"]


def test_a_call_that_fails_in_one_rank_fails_in_all_and_is_undone_in_all() -> None:
    undone = []

    def work(ranks: Ranks) -> str:
        def call() -> str:
            if ranks.number == 1:
                raise OSError("the disk is full")
            return "done"

        try:
            return agreed(ranks, call, undo=lambda: undone.append(ranks.number))
        except (OSError, LocalError) as error:
            return str(error)

    told = in_ranks(3, work)
    assert told[1] == "the disk is full"
    assert told[0] == told[2]
    assert told[0].startswith("rank 1 of 3")
    assert sorted(undone) == [0, 1, 2]


def test_a_single_rank_asks_nobody() -> None:
    def gather(_: torch.Tensor) -> list[torch.Tensor]:
        raise AssertionError("there is nobody to ask")

    undone = []
    assert agreed(Ranks(0, 1, gather), lambda: 7) == 7
    with pytest.raises(OSError, match="full"):
        agreed(Ranks(0, 1, gather), _full, undo=lambda: undone.append(1))
    assert undone == [1]


def _full() -> None:
    raise OSError("the disk is full")
