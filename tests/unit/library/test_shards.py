"""Shards: which blocks follow from them, and what cannot be a shard."""

from __future__ import annotations

import pytest
import torch

from sync_runtime.errors import LayoutError
from sync_runtime.library import device
from sync_runtime.library.coders import choose_coder
from sync_runtime.library.cuts import CutEngine, cuts_of
from sync_runtime.library.engines import attach
from sync_runtime.library.shards import Shard, part_of
from sync_runtime.library.weights import Weights


def rank_of_two(rank: int, *, counted: bool = True) -> Weights:
    state = {
        "rows": Shard(torch.zeros(150, 512), (300, 512), (150 * rank, 0), (150, None), counted),
        "cols": Shard(torch.zeros(256, 200), (256, 400), (0, 200 * rank), (None, 200)),
        "bias": torch.zeros(8) if rank == 0 else Shard(torch.zeros(0), (8,)),
        "norm": torch.zeros(70_000),
    }
    return Weights(attach("module", state), rank=rank, world_size=2)


def test_ranks_have_one_layout_and_count_every_block_once() -> None:
    first, second = rank_of_two(0), rank_of_two(1)
    assert first.layout.hash == second.layout.hash
    counted = [*first.holding.counted, *second.holding.counted]
    assert sorted(counted) == list(range(first.blocks.num_blocks))
    assert first.holding.copies == ()


def test_what_is_whole_in_another_rank_than_the_first_is_a_copy() -> None:
    second = rank_of_two(1)
    names = {
        second.layout.tensors[second.blocks.block(number).pieces[0].tensor].name for number in second.holding.copies
    }
    assert names == {"norm"}
    assert part_of(second.holding).copies


def test_a_shard_may_be_a_copy_of_another_ranks() -> None:
    assert set(rank_of_two(0).holding.counted) - set(rank_of_two(0, counted=False).holding.counted)


@pytest.mark.parametrize(
    ("shard", "sentence"),
    [
        (Shard(torch.zeros(200, 512), (300, 512), (150, 0), (150, None)), "outside"),
        (Shard(torch.zeros(150, 512), (300, 512), (-1, 0), (150, None)), "outside"),
        (Shard(torch.zeros(150, 512), (300, 512), (0, 0)), "`step` must say where all ranks cut"),
        (Shard(torch.zeros(4, 8), (8, 8), (0, 0)), "give it whole, in rank 0"),
    ],
)
def test_a_shard_that_does_not_fit_is_refused_with_a_sentence(shard: Shard, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        Weights(attach("module", {"w": shard}), world_size=2)


def test_a_small_tensor_that_ranks_cut_has_blocks_of_its_own() -> None:
    def rank_of_three(rank: int) -> Weights:
        first = min(8, 3 * rank)
        cut = Shard(torch.zeros(min(3, 8 - first)), (8,), (0, first), (None, 3))
        return Weights(attach("module", {"cut": cut, "whole": torch.zeros(8)}), rank=rank, world_size=3)

    ranks = [rank_of_three(rank) for rank in range(3)]
    assert len({one.layout.hash for one in ranks}) == 1
    assert [one.holding.counted for one in ranks] == [(0, 3), (1,), (2,)]
    assert [one.holding.copies for one in ranks] == [(), (3,), (3,)]


def test_several_ranks_code_themselves_and_whole_tensors_do_not_hang_on_their_cuts() -> None:
    whole = Weights(attach("module", {"w": Shard(torch.zeros(300, 512), (300, 512), (0, 0), (150, None))}))
    assert choose_coder(None, whole) == "sidecar"
    assert choose_coder("library", whole) == "library"
    assert choose_coder(None, rank_of_two(1)) == "library"
    with pytest.raises(LayoutError, match="several ranks"):
        choose_coder("sidecar", rank_of_two(0))


def test_cuts_make_the_same_layout_anew() -> None:
    trainer = rank_of_two(0)
    plain = {name: torch.zeros(spec.shape) for spec in trainer.layout.tensors for name in [spec.name]}
    cuts = cuts_of(trainer.layout)
    assert cuts == {"cols": (256, 200), "norm": (1, 70_000), "rows": (150, 512)}
    worker = Weights(CutEngine(attach("module", plain), cuts))
    assert worker.layout.document == trainer.layout.document


def test_one_rank_alone_must_hold_everything() -> None:
    shard = Shard(torch.zeros(150, 512), (300, 512), (0, 0), (150, None))
    with pytest.raises(LayoutError, match="need the other ranks"):
        Weights(attach("module", {"w": shard}))


def test_shards_that_were_offloaded_to_the_cpu_are_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "fast_measure", None)  # as it is without the interpreter, which these tests run under
    with pytest.raises(LayoutError, match="CPU offload"):
        device.make_publisher(rank_of_two(0))
    whole = Weights(attach("module", {"w": torch.zeros(8)}))
    for make in (device.make_publisher, lambda weights: device.make_subscriber(weights, lambda: None)):
        with pytest.raises(LayoutError, match="leave `coder` out"):
            make(whole)
