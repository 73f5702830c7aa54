"""Mirrors: a state in a file is the state, bit for bit, however it came and whatever happened to its process."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sync_runtime.bucket.keys import ObjectKey
from sync_runtime.bucket.manifest import Version
from sync_runtime.errors import ChainError, LocalProtocolError, SpoolCorruptError, SpoolError
from sync_runtime.offline import digest, layout_of
from sync_runtime.offline.staging import Comparison
from sync_runtime.session.mirror import Mirror, sweep
from sync_runtime.tensors.bits import BitTensor, bind
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.layout import Layout, make_layout
from tests.support.states import compile_loops, next_state, same_bits, small_state
from tests.unit.session.chains import LINEAGE, State, make_trainer

compile_loops()
STATE = small_state()
LAYOUT = layout_of(STATE)


def stream_of(layout: Layout, state: State) -> bytes:
    """The state as the protocol streams it."""
    return b"".join(state[tensor.name].matrix.tobytes() for tensor in layout.tensors)


def filled(folder: Path, state: State, layout: Layout = LAYOUT) -> Mirror:
    mirror = Mirror.create(folder, layout)
    mirror.append(stream_of(layout, state))
    return mirror


def state_of(mirror: Mirror) -> State:
    return {tensor.name: mirror.bound()[at] for at, tensor in enumerate(mirror.layout.tensors)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.integers(0, 140_000), max_size=6))
def test_a_stream_in_any_pieces_becomes_the_state(tmp_path: Path, cuts: list[int]) -> None:
    stream = stream_of(LAYOUT, STATE)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    mirror = Mirror.create(tmp_path, LAYOUT)
    for first, last in pairwise(places):
        assert not mirror.is_complete
        mirror.append(memoryview(stream)[first:last])
    assert mirror.is_complete
    assert same_bits(state_of(mirror), STATE)
    mirror.remove()


def test_its_digest_is_the_states(tmp_path: Path) -> None:
    mirror = filled(tmp_path, STATE)
    assert mirror.digest(threads=1) == digest(STATE, layout=LAYOUT, threads=1)
    assert len(mirror.tensor_digests(threads=1)) == len(LAYOUT.tensors)


def test_a_stream_that_is_too_long_or_too_short_is_refused(tmp_path: Path) -> None:
    mirror = filled(tmp_path, STATE)
    with pytest.raises(LocalProtocolError, match="longer"):
        mirror.append(b"x")
    short = Mirror.create(tmp_path, LAYOUT)
    short.append(stream_of(LAYOUT, STATE)[:-1])
    with pytest.raises(LocalProtocolError, match="only"):
        short.digest(threads=1)


def test_two_mirrors_compare_while_the_second_arrives(tmp_path: Path) -> None:
    after = next_state(STATE, seed=9)
    base, incoming = filled(tmp_path, STATE), Mirror.create(tmp_path, LAYOUT)
    found: list[int] = []

    def compare() -> None:
        pair = Comparison(BlockMap(LAYOUT), dict(base.bound()), dict(incoming.bound()))
        for block in pair.blocks:
            for piece in block.pieces:
                incoming.wait_for(piece.tensor)
            found.append(pair.sparse(block).num_changed)

    thread = threading.Thread(target=compare)
    thread.start()
    stream = stream_of(LAYOUT, after)
    for at in range(0, len(stream), 10_000):
        incoming.append(stream[at : at + 10_000])
    thread.join()
    changed = sum(int(np.count_nonzero(STATE[name].matrix != after[name].matrix)) for name in STATE)
    assert sum(found) == changed > 0


def test_whoever_waits_is_woken_when_the_state_will_not_come(tmp_path: Path) -> None:
    mirror = Mirror.create(tmp_path, LAYOUT)
    messages: list[str] = []

    def wait() -> None:
        with pytest.raises(SpoolError) as caught:
            mirror.wait_for(len(LAYOUT.tensors) - 1)
        messages.append(str(caught.value))

    thread = threading.Thread(target=wait)
    thread.start()
    mirror.give_up("the library went away")
    thread.join()
    assert "the library went away" in messages[0]


def test_a_removed_mirror_can_be_read_by_those_who_hold_it(tmp_path: Path) -> None:
    mirror = filled(tmp_path, STATE)
    bound = mirror.bound()
    mirror.remove()
    mirror.remove()
    assert list(tmp_path.iterdir()) == []
    del mirror
    assert same_bits({tensor.name: bound[at] for at, tensor in enumerate(LAYOUT.tensors)}, STATE)


def test_no_room_is_an_error_before_the_first_byte(tmp_path: Path) -> None:
    huge = make_layout([("w", "F32", (1 << 30, 1 << 18))])
    with pytest.raises(SpoolError):
        Mirror.create(tmp_path, huge)
    assert list(tmp_path.iterdir()) == []


def test_a_mirror_of_a_dead_process_is_proven_by_its_digest(tmp_path: Path) -> None:
    path = filled(tmp_path, STATE).path
    after = next_state(STATE, seed=3)
    digests = [digest(state, layout=LAYOUT, threads=1) for state in (after, STATE)]
    mirror = Mirror.reopen(path, LAYOUT)
    assert mirror.prove(digests, threads=1) == digests[1]
    mirror.bound()[0].matrix[0, 0] ^= 1  # died in the middle of something
    assert Mirror.reopen(path, LAYOUT).prove(digests, threads=1) is None


def test_a_file_that_is_no_mirror_of_this_layout_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path, STATE).path
    with pytest.raises(SpoolCorruptError, match="layout"):
        Mirror.reopen(path, layout_of({"w": STATE["layers.0.norm"]}))
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(SpoolCorruptError, match="cannot be opened"):
        Mirror.reopen(tmp_path / "link", LAYOUT)
    with pytest.raises(SpoolCorruptError, match="cannot be opened"):
        Mirror.reopen(tmp_path / "nothing", LAYOUT)


def test_mirrors_of_a_dead_process_are_swept_and_nothing_else(tmp_path: Path) -> None:
    filled(tmp_path, STATE)
    filled(tmp_path, STATE)
    (tmp_path / "notes.txt").write_text("mine")
    assert sweep(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def flipped(state: State, name: str, row: int) -> State:
    """The state with one bit of one element changed."""
    matrix = state[name].matrix.copy()
    matrix[row, 0] ^= 1
    return {**state, name: BitTensor(state[name].dtype, state[name].shape, matrix)}


@pytest.mark.parametrize("name", ["layers.0.mlp.weight", "layers.0.norm", "codes"])
def test_one_wrong_bit_names_its_block_and_no_other(name: str, tmp_path: Path) -> None:
    right, wrong = filled(tmp_path, STATE), filled(tmp_path, flipped(STATE, name, 0))
    tensor = LAYOUT.index_of[name]
    (expected,) = (block.number for block in BlockMap(LAYOUT) if tensor in {piece.tensor for piece in block.pieces})
    assert right.differing_blocks(wrong, threads=1) == [expected]
    assert wrong.blocks_unlike(right.block_digests(threads=1), threads=1) == [expected]
    assert right.differing_blocks(right, threads=1) == []


def test_states_of_different_layouts_are_not_compared(tmp_path: Path) -> None:
    other = layout_of({"w": STATE["layers.0.norm"]})
    small = filled(tmp_path, {"w": STATE["layers.0.norm"]}, other)
    with pytest.raises(LocalProtocolError):
        filled(tmp_path, STATE).differing_blocks(small)
    with pytest.raises(LocalProtocolError):
        small.blocks_unlike([], threads=1)


def test_an_anchor_fills_a_mirror_and_repairs_a_block(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "spool", versions=0)
    with trainer.spool:
        version = Version(0, digest(STATE, layout=LAYOUT, threads=1))
        source = bind(LAYOUT, STATE)
        maker = trainer.maker
        whole = maker.make_anchor(ObjectKey(LINEAGE, None, None, 0, "anchor"), source, version, LAYOUT)
        mirror = Mirror.create(tmp_path / "mirror", LAYOUT)
        assert mirror.load_anchor(whole.view(), 0, threads=1) == list(range(len(BlockMap(LAYOUT))))
        assert mirror.prove([version.digest], threads=1) == version.digest
        with pytest.raises(ChainError):
            mirror.load_anchor(whole.view(), 1, threads=1)
        broken = filled(tmp_path / "mirror", flipped(STATE, "codes", 1))
        wrong = broken.blocks_unlike(mirror.block_digests(threads=1), threads=1)
        part = maker.make_anchor(ObjectKey(LINEAGE, None, None, 0, "anchor", 1), source, version, LAYOUT, numbers=wrong)
        assert broken.load_anchor(part.view(), 0, threads=1) == wrong
        assert same_bits(state_of(broken), STATE)
