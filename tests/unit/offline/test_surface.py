"""The Python surface: exact, all or nothing, independent of order and threads; the algebra of deltas."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_runtime.errors import (
    ChainError,
    DigestError,
    FormatError,
    LayoutError,
    MissingBaseError,
    ReplayError,
    WrongBaseError,
)
from sync_runtime.offline import Delta, Snapshot, apply, diff, digest, invert, layout_of, merge, transcode
from sync_runtime.tensors.bits import BitTensor
from tests.support.states import SPECIAL_BF16, copied, next_state, noise, same_bits, small_state, tensor, weights

CODECS = ["fast", "tight", "auto"]


@pytest.mark.parametrize("codec", CODECS)
def test_applying_a_diff_gives_the_new_state_bit_for_bit(codec: str) -> None:
    before = small_state()
    after = next_state(before, 7, 100)
    state = copied(before)
    apply(state, diff(before, after, codec=codec))
    assert same_bits(state, after)


@pytest.mark.parametrize("codec", CODECS)
def test_all_ordered_pairs_of_special_patterns_survive(codec: str) -> None:
    pairs = np.array(list(itertools.product(SPECIAL_BF16, SPECIAL_BF16)), np.uint16)
    before, after = ({"w": tensor("BF16", (len(pairs),), column)} for column in pairs.T)
    delta = diff(before, after, codec=codec)
    assert delta.manifest.num_changed == len(SPECIAL_BF16) * (len(SPECIAL_BF16) - 1)
    apply(before, delta)
    assert same_bits(before, after)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3, 4), (0, 5), (5, 0), (65_536,), (65_537, 1)], ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_every_shape_survives(shape: tuple[int, ...], codec: str) -> None:
    count = int(np.prod(shape, dtype=int))
    before = {"w": tensor("BF16", shape, noise(count, 1))}
    after = {"w": tensor("BF16", shape, noise(count, 2))}
    apply(before, diff(before, after, codec=codec))
    assert same_bits(before, after)


def test_a_state_does_not_differ_from_itself() -> None:
    delta = diff(small_state(), small_state())
    assert (delta.manifest.num_changed, delta.manifest.num_blocks) == (0, 0)
    assert delta.base.digest == delta.target.digest


@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_depend_neither_on_order_nor_on_threads(codec: str) -> None:
    before = small_state() | {"big": weights((700, 400), 5)}
    after = next_state(before, 3, 50)
    layout = layout_of(before, block_elements=1 << 16)
    expected = diff(before, after, codec=codec, layout=layout, threads=1).to_bytes()
    turned = diff(dict(reversed(before.items())), dict(reversed(after.items())), codec=codec, layout=layout, threads=5)
    assert turned.to_bytes() == expected


@given(steps=st.integers(2, 6), per_mille=st.sampled_from([0, 5, 60, 400]), seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
@pytest.mark.timeout(20)
def test_merging_gives_the_bytes_of_the_direct_delta(steps: int, per_mille: int, seed: int) -> None:
    states = [small_state(seed)]
    for at in range(steps):
        states.append(next_state(states[-1], seed + 10 * at, per_mille))
    deltas = [diff(states[at], states[at + 1], seqs=(at, at + 1)) for at in range(steps)]
    direct = diff(states[0], states[-1], seqs=(0, steps))
    assert merge(*deltas).to_bytes() == direct.to_bytes()
    back = invert(direct)
    assert back.to_bytes() == diff(states[-1], states[0], seqs=(steps, 0)).to_bytes()
    nothing = merge(direct, back)
    assert (nothing.manifest.num_changed, nothing.manifest.num_blocks) == (0, 0)


@pytest.mark.timeout(60)
def test_a_chain_of_200_equals_the_direct_delta() -> None:
    first = small_state()
    states, deltas = [first], []
    for at in range(200):
        states.append(next_state(states[-1], 31 * at, 3))
        deltas.append(diff(states[-2], states[-1], seqs=(at, at + 1), codec=CODECS[at % 2], threads=1))
    live = copied(first)
    for delta in deltas:
        apply(live, delta, threads=1)
    assert same_bits(live, states[-1])
    direct = diff(first, states[-1], seqs=(0, 200))
    assert merge(*deltas, base=first).to_bytes() == direct.to_bytes()


@pytest.mark.parametrize("codec", ["tight", "auto"])
def test_tight_deltas_merge_and_invert_with_the_base_and_not_without(codec: str) -> None:
    states = [small_state()]
    for at in range(3):
        states.append(next_state(states[-1], at, 40))
    deltas = [diff(states[at], states[at + 1], codec=codec, seqs=(at, at + 1)) for at in range(3)]
    with pytest.raises(MissingBaseError):
        merge(*deltas)
    merged = merge(*deltas, base=states[0], codec=codec)
    assert merged.to_bytes() == diff(states[0], states[3], codec=codec, seqs=(0, 3)).to_bytes()
    back = invert(merged, base=states[0], codec=codec)
    assert back.to_bytes() == diff(states[3], states[0], codec=codec, seqs=(3, 0)).to_bytes()


def test_transcoding_to_fast_and_back_gives_the_same_bytes() -> None:
    before = small_state()
    after = next_state(before, 7, 100)
    fast, tight = diff(before, after), diff(before, after, codec="tight")
    assert transcode(tight, "fast", base=before).to_bytes() == fast.to_bytes()
    assert transcode(fast, "tight", base=before).to_bytes() == tight.to_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_base_a_replay_and_a_foreign_layout_change_nothing(codec: str) -> None:
    before = small_state()
    after = next_state(before, 7, 100)
    delta = diff(before, after, codec=codec)
    elsewhere = copied(before)
    elsewhere["layers.0.norm"].matrix[0, 3] ^= np.uint16(1)
    for state, error in ((elsewhere, WrongBaseError), (copied(after), ReplayError)):
        untouched = copied(state)
        with pytest.raises(error):
            apply(state, delta)
        assert same_bits(state, untouched)
    with pytest.raises(LayoutError):
        apply({"other": before["codes"]}, delta)


@pytest.mark.parametrize("codec", CODECS)
def test_a_base_that_lies_about_its_digest_is_found_on_the_staged_list(codec: str) -> None:
    before = small_state()
    delta = diff(before, next_state(before, 7, 100), codec=codec)
    reader = delta.reader()
    block, record = next(iter(reader.records()))
    bits = before["layers.0.mlp.weight"].matrix.reshape(-1)
    changed = int(reader.decode(block, record, bits).positions[5])
    state = copied(before)
    state["layers.0.mlp.weight"].matrix.reshape(-1)[changed] ^= np.uint16(1)  # a mantissa bit: no lane notices
    untouched = copied(state)
    with pytest.raises(DigestError, match=r"layers\.0\.mlp\.weight"):
        apply(state, delta, held=delta.base.digest)
    assert same_bits(state, untouched)


def test_deltas_that_do_not_follow_each_other_are_not_merged() -> None:
    states = [small_state(), small_state(50), small_state(90)]
    first, other = diff(states[0], states[1]), diff(states[2], states[1])
    for chain in ((first, first), (first, other), ()):
        with pytest.raises(ChainError):
            merge(*chain)
    foreign = diff({"x": states[0]["codes"]}, {"x": states[0]["codes"]})
    with pytest.raises(ChainError):
        merge(first, foreign)


def test_a_tied_tensor_travels_once_and_must_stay_tied() -> None:
    shared = np.arange(70_000, dtype=np.float32)
    before = {"embed": shared, "head": shared}
    after_shared = shared * np.float32(1.5)
    after = {"embed": after_shared, "head": after_shared}
    delta = diff(before, after)
    assert [spec.name for spec in delta.layout.tensors] == ["embed"]
    assert delta.layout.tied == (("head", "embed"),)
    apply(before, delta)
    assert np.array_equal(before["head"], after_shared)
    with pytest.raises(LayoutError, match="tied"):
        diff(after, {"embed": after_shared, "head": after_shared.copy()})


def test_tensors_that_cannot_be_written_in_place_are_refused() -> None:
    before = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}
    delta = diff(before, {"w": before["w"] + np.float32(1)})
    turned = np.asfortranarray(before["w"])
    frozen = before["w"].copy()
    frozen.flags.writeable = False
    for array in (turned, frozen):
        with pytest.raises(LayoutError, match="in place"):
            apply({"w": array}, delta)


def test_states_that_do_not_fit_are_refused_with_the_tensors_name() -> None:
    before = {"w": np.zeros(4, np.float32)}
    for after in ({"w": np.zeros(5, np.float32)}, {"w": np.zeros(4, np.float16)}, {}, {**before, "x": before["w"]}):
        with pytest.raises(LayoutError, match=r"'w'|'x'"):
            diff(before, after)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(LayoutError, match="anchor"):
        diff({}, {}, codec="anchor")


def test_an_empty_state_has_an_empty_delta() -> None:
    delta = diff({}, {})
    assert delta.manifest.num_changed == 0
    assert merge(delta, invert(delta)).manifest.num_blocks == 0


def test_a_snapshot_moves_only_when_told_and_repeats_its_bytes() -> None:
    state = small_state()
    snapshot = Snapshot(state)
    later = next_state(state, 5, 50)
    lost = snapshot.diff(later, label="17")
    assert lost.manifest.label == "17"
    assert snapshot.diff(later, label="17").to_bytes() == lost.to_bytes()
    snapshot.advance(lost)
    assert snapshot.digest == digest(later)
    assert snapshot.diff(later).manifest.num_changed == 0
    with pytest.raises(ReplayError):
        snapshot.advance(lost)


def test_training_on_does_not_reach_into_the_snapshot() -> None:
    live = {"w": np.zeros(10, np.float32)}
    snapshot = Snapshot(live)
    live["w"][3] = 1
    assert snapshot.diff(live).manifest.num_changed == 1


def test_an_object_under_another_layout_is_refused() -> None:
    before = small_state()
    delta = diff(before, next_state(before, 7, 100))
    other = layout_of(before, block_elements=1 << 17)
    with pytest.raises(FormatError, match="layout"):
        Delta(other, delta.manifest, delta.object).reader()


def test_one_update_in_three_codecs_is_one_state() -> None:
    before = {"w": weights((300, 300), 3), "b": BitTensor(*vars(tensor("F32", (3,), noise(3, 1))).values())}
    after = next_state(before, 9, 30)
    assert len({diff(before, after, codec=codec).target.digest for codec in CODECS}) == 1


def test_an_object_that_holds_other_totals_than_its_manifest_is_refused() -> None:
    before = small_state()
    delta = diff(before, next_state(before, 7, 100))
    honest = delta.manifest
    more = replace(honest, num_changed=honest.num_changed + 1)
    fewer = replace(honest, num_blocks=honest.num_blocks - 1)
    for manifest in (more, fewer):
        lying = replace(delta, manifest=manifest)
        with pytest.raises(FormatError, match="number of blocks or changes"):
            apply(copied(before), lying)
        with pytest.raises(FormatError, match="number of blocks or changes"):
            invert(lying)
