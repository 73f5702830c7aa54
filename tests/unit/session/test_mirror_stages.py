"""Versions staged over a mirror: decoded and checked without a touch, committed in order, repeatable, forgettable."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sync_runtime.bucket.keys import VersionRef, delta_key
from sync_runtime.errors import DigestError, ReplayError, SequenceError, WrongBaseError
from sync_runtime.offline import digest
from sync_runtime.session.mirror import Mirror, Stages
from sync_runtime.tensors.bits import scatter
from sync_runtime.tensors.digest import Digest
from tests.support.states import compile_loops, same_bits
from tests.unit.session.chains import LINEAGE, Trainer, make_trainer

compile_loops()


def at(seq: int) -> VersionRef:
    return VersionRef(LINEAGE, seq)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = make_trainer(tmp_path / "spool", versions=3)
    yield made
    made.spool.close()


@pytest.fixture
def stages(trainer: Trainer, tmp_path: Path) -> Stages:
    """A member's mirror at version 0."""
    mirror = Mirror.create(tmp_path / "mirror", trainer.layout)
    state = trainer.states[at(0)]
    mirror.append(b"".join(state[tensor.name].matrix.tobytes() for tensor in trainer.layout.tensors))
    return Stages(mirror, at(0), mirror.digest(threads=1), threads=1)


def stage(stages: Stages, trainer: Trainer, *seqs: int) -> None:
    for seq in seqs:
        stages.stage(trainer.delta_of(delta_key(LINEAGE, seq - 1, seq)), at(seq))


def holds(stages: Stages, trainer: Trainer, seq: int) -> bool:
    layout = stages.mirror.layout
    state = {tensor.name: stages.mirror.bound()[number] for number, tensor in enumerate(layout.tensors)}
    return same_bits(state, trainer.states[at(seq)])


def test_staging_touches_nothing(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2, 3)
    assert holds(stages, trainer, 0)
    assert (stages.active, stages.newest) == (at(0), at(3))
    assert [layer.ref for layer in stages.layers] == [at(1), at(2), at(3)]


@pytest.mark.parametrize("order", [(1, 2, 3), (3,), (2, 3)])
def test_commits_lead_through_the_versions(order: tuple[int, ...], stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2, 3)
    for seq in order:
        stages.commit(at(seq))
        assert holds(stages, trainer, seq)
        assert stages.active == at(seq)
        assert stages.is_sound()
    assert stages.layers == ()


def test_a_delta_is_decoded_over_what_is_staged_after_a_commit_too(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2)
    stages.commit(at(1))
    stage(stages, trainer, 3)
    stages.commit(at(3))
    assert holds(stages, trainer, 3)


def test_a_committed_list_is_not_kept_in_memory(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2)
    first = weakref.ref(stages.layers[0])
    stages.commit(at(1))
    gc.collect()
    assert first() is None


def test_a_tight_delta_is_decoded_against_the_staged_base(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1)
    stages.stage(trainer.direct(at(1), at(2), codec="tight"), at(2))
    stages.commit(at(2))
    assert holds(stages, trainer, 2)


def test_a_commit_that_was_cut_short_is_simply_done_again(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2)
    first = stages.layers[0]
    number, staged = next(iter(first.staged.items()))
    half = staged.positions.size // 2
    scatter(stages.mirror.blocks.block(number), stages.mirror.bound(), staged.positions[:half], staged.bits[:half])
    known = [digest(trainer.states[at(seq)], layout=trainer.layout, threads=1) for seq in range(4)]
    assert half > 0
    assert stages.mirror.prove(known, threads=1) is None  # a mixture, and its digest says so
    stages.commit(at(2))
    stages.commit(at(2))
    assert holds(stages, trainer, 2)


def test_a_delta_from_another_state_is_refused(stages: Stages, trainer: Trainer) -> None:
    with pytest.raises(WrongBaseError):
        stage(stages, trainer, 2)
    stage(stages, trainer, 1)
    with pytest.raises(ReplayError):
        stage(stages, trainer, 1)
    assert [layer.ref for layer in stages.layers] == [at(1)]


def test_a_delta_that_does_not_keep_its_promise_is_not_staged(stages: Stages, trainer: Trainer) -> None:
    delta = trainer.delta_of(delta_key(LINEAGE, 0, 1))
    changes = list(delta.manifest.digest_changes)
    changes[0] = changes[0].plus(Digest(1, 0))
    target = replace(delta.manifest.target, digest=delta.target.digest.plus(Digest(1, 0)))
    forged = replace(delta, manifest=replace(delta.manifest, digest_changes=tuple(changes), target=target))
    with pytest.raises(DigestError):
        stages.stage(forged, at(1))
    assert stages.layers == ()
    assert holds(stages, trainer, 0)


def test_what_is_staged_can_be_forgotten(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1, 2, 3)
    assert stages.unstage(at(1)) == (at(2), at(3))
    assert stages.newest == at(1)
    stage(stages, trainer, 2)
    assert stages.unstage(at(0)) == (at(1), at(2))
    stages.commit(at(0))
    assert holds(stages, trainer, 0)


def test_a_version_that_is_not_staged_cannot_be_committed(stages: Stages, trainer: Trainer) -> None:
    stage(stages, trainer, 1)
    for change in (stages.commit, stages.unstage):
        with pytest.raises(SequenceError, match="neither"):
            change(at(3))
    assert holds(stages, trainer, 0)


def test_a_wrong_bit_in_the_mirror_is_found(stages: Stages, trainer: Trainer) -> None:
    assert stages.is_sound()
    matrix = stages.mirror.bound()[0].matrix
    matrix[0, 0] ^= np.array(1, matrix.dtype)
    assert not stages.is_sound()
