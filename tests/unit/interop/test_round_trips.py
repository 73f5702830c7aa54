"""Every format and variant: out and in again leads to the same delta, byte for byte; nothing is lost on the way."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.errors import LayoutError
from sync_runtime.offline import load
from sync_runtime.tensors.bits import BitTensor
from syncgroup.cli import main
from tests.support.checkpoints import save_file
from tests.support.interop import (
    EVERY_VARIANT,
    bf16_next,
    bf16_state,
    exported,
    imported,
    mixed_state,
    read_state,
    saved,
)
from tests.support.states import copied, next_state, same_bits, tensor

TAKES_ALL = [(name, variant) for name, variant in EVERY_VARIANT if name != "pulse"]


@pytest.mark.parametrize(("name", "variant"), EVERY_VARIANT)
def test_out_and_in_again_gives_the_same_delta(tmp_path: Path, name: str, variant: str) -> None:
    before = bf16_state()
    case = saved(tmp_path, before, bf16_next(before))
    foreign = exported(case, tmp_path / "foreign", name, variant)
    again = load(imported(case.base, foreign, tmp_path / "again.sgd", name))
    assert bytes(again.object) == bytes(case.delta.object)
    assert again.target.digest == case.delta.target.digest


@pytest.mark.parametrize(("name", "variant"), TAKES_ALL)
def test_every_dtype_and_scalars_pass(tmp_path: Path, name: str, variant: str) -> None:
    before = mixed_state()
    case = saved(tmp_path, before, next_state(before, 3, 300))
    foreign = exported(case, tmp_path / "foreign", name, variant)
    again = load(imported(case.base, foreign, tmp_path / "again.sgd", name))
    assert bytes(again.object) == bytes(case.delta.object)


@pytest.mark.parametrize(("name", "variant"), EVERY_VARIANT)
def test_a_delta_without_a_change_passes(tmp_path: Path, name: str, variant: str) -> None:
    before = bf16_state()
    case = saved(tmp_path, before, before)
    foreign = exported(case, tmp_path / "foreign", name, variant)
    again = load(imported(case.base, foreign, tmp_path / "again.sgd", name))
    assert again.manifest.num_changed == 0


@pytest.mark.parametrize("variant", ["pulsept1-v1", "pulsept1-v3", "grail-v3.1"])
def test_what_pulse_cannot_express_is_refused_by_name(tmp_path: Path, variant: str) -> None:
    before = mixed_state()
    case = saved(tmp_path, before, next_state(before, 3, 900))
    with pytest.raises(LayoutError, match=r"codes|count"):
        exported(case, tmp_path / "foreign", "pulse", variant)
    assert not (tmp_path / "foreign").exists()


def test_a_dense_file_is_the_new_checkpoint(tmp_path: Path) -> None:
    before = mixed_state()
    case = saved(tmp_path, before, next_state(before, 3, 300))
    out = exported(case, tmp_path / "out.safetensors", "dense-safetensors")
    assert same_bits(read_state(out), read_state(case.new))


@given(
    old=st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=40),
    new=st.lists(st.integers(0, 0xFFFF), min_size=40, max_size=40),
    chosen=st.sampled_from(EVERY_VARIANT),
    columns=st.sampled_from([1, 2, 5]),
)
@settings(max_examples=40, deadline=None)
@pytest.mark.timeout(60)
def test_any_two_states_pass_through_any_format(
    tmp_path_factory: pytest.TempPathFactory, old: list[int], new: list[int], chosen: tuple[str, str], columns: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    size = max(1, len(old) // columns) * columns
    shape = (size,) if columns == 1 else (size // columns, columns)
    filled = (old * columns)[:size]
    before: dict[str, BitTensor] = {"w.a": tensor("BF16", shape, np.array(filled, np.uint16))}
    after = {"w.a": tensor("BF16", shape, np.array((new * columns)[:size], np.uint16))}
    case = saved(folder, before, after)
    foreign = exported(case, folder / "foreign", *chosen)
    again = load(imported(case.base, foreign, folder / "again.sgd", chosen[0]))
    assert bytes(again.object) == bytes(case.delta.object)


def test_a_tied_name_that_is_stored_apart_follows_its_tensor(tmp_path: Path) -> None:
    before = bf16_state()
    after = bf16_next(before)
    tied = {**before, "z.head": before["model.embed.weight"]}
    case = saved(tmp_path, tied, {**after, "z.head": after["model.embed.weight"]})
    assert case.delta.layout.tied == (("z.head", "model.embed.weight"),)
    out = exported(case, tmp_path / "out.safetensors", "dense-safetensors")
    assert same_bits(read_state(out), {**after, "z.head": after["model.embed.weight"]})
    case.delta.save(tmp_path / "step.sgd")
    assert main(["delta", "apply", str(case.base), str(tmp_path / "step.sgd"), "-o", str(tmp_path / "applied")]) == 0
    assert same_bits(read_state(tmp_path / "applied"), read_state(out))


def test_a_tie_that_the_base_does_not_keep_is_refused(tmp_path: Path) -> None:
    before = bf16_state()
    after = bf16_next(before)
    tied = {**before, "z.head": before["model.embed.weight"]}
    case = saved(tmp_path, tied, {**after, "z.head": after["model.embed.weight"]})
    other = copied(tied)
    other["z.head"].matrix[0, 0] ^= 1
    save_file(case.base, other)
    with pytest.raises(LayoutError, match=r"z\.head"):
        exported(case, tmp_path / "out", "trl-safetensors")
