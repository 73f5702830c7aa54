"""One word for cuts at every end: whoever is given the same cuts has the same blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.errors import LayoutError
from sync_runtime.library.cuts import CutEngine, cuts_by_name, cuts_of, even_cut
from sync_runtime.library.engines import attach
from sync_runtime.library.engines.contents import content_of
from sync_runtime.library.shards import Shard
from sync_runtime.library.weights import Weights

STATE = {"large": torch.zeros(300, 512), "long": torch.zeros(70_000), "small": torch.zeros(16, 8)}
SHAPES = {name: tuple(tensor.shape) for name, tensor in STATE.items()}


def test_an_even_cut_serves_rows_and_columns_alike() -> None:
    assert even_cut((8, 6), 1) == (None, None)
    assert even_cut((8, 6), 2) == (4, 3)
    assert even_cut((4, 8, 6), 4) == (8, 2)
    assert even_cut((9,), 2) == (None, 5)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=3), st.integers(1, 8), st.integers(0, 7))
def test_every_rank_finds_its_part_on_an_even_grid(shape: list[int], parts: int, rank: int) -> None:
    sizes = (torch.Size(shape[:-1]).numel(), shape[-1])
    for size, step in zip(sizes, even_cut(shape, parts), strict=True):
        begin = min(size, -(-size // parts) * (rank % parts))
        assert parts == 1 or size == 1 or begin in (0, size) or (step is not None and begin % step == 0)


def test_a_number_cuts_large_tensors_and_leaves_small_ones_packed() -> None:
    assert cuts_by_name(2, SHAPES) == {"large": (150, 256), "long": (None, 35_000)}
    assert cuts_by_name(1, SHAPES) == {}


def test_cuts_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(LayoutError, match="one part or more"):
        cuts_by_name(0, SHAPES)
    for wrong in ({"stranger": (1, 1)}, {"large": (1,)}, {"large": (0, 1)}):
        with pytest.raises(LayoutError, match="no such tensor, or matrix"):
            cuts_by_name(wrong, SHAPES)


@pytest.mark.parametrize("cuts", [2, {"large": (100, None), "small": (4, None)}])
def test_what_a_publisher_says_of_its_cuts_makes_its_layout_anew(cuts: object) -> None:
    trainer = Weights(CutEngine(attach("module", STATE), cuts)).layout  # type: ignore[arg-type]
    told = json.loads(json.dumps(cuts_of(trainer)))
    assert Weights(CutEngine(attach("module", STATE), told)).layout.document == trainer.document


def test_a_number_is_what_a_cut_by_hand_says() -> None:
    shards = {
        name: Shard(STATE[name], SHAPES[name], step=even_cut(SHAPES[name], 2)) if name != "small" else STATE[name]
        for name in STATE
    }
    by_hand = Weights(attach("module", shards)).layout
    assert Weights(CutEngine(attach("module", STATE), 2)).layout.document == by_hand.document


def test_an_engine_of_others_takes_a_number_names_or_the_trainer_s_layout(tmp_path: Path) -> None:
    safetensors.torch.save_file(STATE, tmp_path / "model.safetensors")
    trainer = Weights(CutEngine(attach("module", STATE), {"large": (100, None), "small": (4, None)})).layout

    def found(**told: object) -> object:
        options = {"layout": None, "cuts": None, "ranks": 2, "is_tied": False} | told
        return content_of(tmp_path, torch.float32, **options)[0].cuts  # type: ignore[arg-type]

    assert found() == cuts_by_name(2, SHAPES)
    assert found(cuts=4) == cuts_by_name(4, SHAPES)
    assert found(cuts=cuts_of(trainer)) == found(layout=trainer.document.decode()) == cuts_of(trainer)
    with pytest.raises(LayoutError, match="leave out `cuts`"):
        found(layout=trainer.document.decode(), cuts=2)
