"""A mirror outlives its sidecar: the next one takes over what its full digest proves, and sweeps the rest."""

from __future__ import annotations

from pathlib import Path

from sync_runtime.offline import digest, layout_of
from sync_runtime.session.mirror import Mirror, adopt, sweep
from sync_runtime.tensors.layout import Layout
from tests.support.states import compile_loops, next_state, small_state
from tests.unit.session.chains import State

compile_loops()
OLD = small_state()
NEW = next_state(OLD, 1)
LAYOUT = layout_of(OLD)


def filled(folder: Path, state: State, layout: Layout = LAYOUT) -> Mirror:
    mirror = Mirror.create(folder, layout)
    mirror.append(b"".join(state[tensor.name].matrix.tobytes() for tensor in layout.tensors))
    return mirror


def test_the_one_with_the_right_digest_is_taken_over(tmp_path: Path) -> None:
    paths = {filled(tmp_path, OLD).path, filled(tmp_path, NEW).path}
    half = Mirror.create(tmp_path, LAYOUT)
    for state in (OLD, NEW):
        found = adopt(tmp_path, LAYOUT, digest(state))
        assert found is not None
        assert found.digest() == digest(state)
        assert found.path in paths
        assert found.path != half.path


def test_a_state_that_is_none_of_them_is_not_found(tmp_path: Path) -> None:
    filled(tmp_path, OLD)
    assert adopt(tmp_path, LAYOUT, digest(NEW)) is None


def test_files_of_other_sizes_and_links_are_passed_over(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    target = filled(elsewhere, OLD)
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "state-link").symlink_to(target.path)
    (folder / "state-short").write_bytes(b"short")
    assert adopt(folder, LAYOUT, digest(OLD)) is None
    assert adopt(tmp_path / "missing", LAYOUT, digest(OLD)) is None


def test_a_sweep_keeps_the_one_in_use(tmp_path: Path) -> None:
    kept, other = filled(tmp_path, OLD), filled(tmp_path, NEW)
    assert sweep(tmp_path, keep=kept.path) == 1
    assert kept.path.exists()
    assert not other.path.exists()
    assert sweep(tmp_path) == 1
