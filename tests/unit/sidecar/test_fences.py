"""A member's fence on disk: it outlives the process, never goes back, and is refused rather than guessed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from sync_runtime.errors import OldTermError, SpoolCorruptError, SpoolFullError
from sync_runtime.session.versions import Fence, Proof
from sync_runtime.sidecar.fences import FILE, FenceFile

ME, OTHER = "d" * 32, "e" * 32


def proved(term: int) -> Fence:
    """A fence that a trainer moved."""
    return Fence(term, ME, Proof(term, ME, "a" * 128))


def restored(folder: Path, plan_term: int = 0) -> Fence:
    fence = Fence()
    FenceFile(folder).restore(fence, plan_term)
    return fence


def test_a_fence_outlives_its_process(tmp_path: Path) -> None:
    assert FenceFile(tmp_path).keep(proved(7))
    fence = restored(tmp_path)
    with pytest.raises(OldTermError):
        fence.admit(6, OTHER)
    assert not fence.admit(7, ME)


def test_a_plan_with_a_larger_term_moves_the_fence_and_an_older_one_does_not(tmp_path: Path) -> None:
    FenceFile(tmp_path).keep(proved(7))
    assert restored(tmp_path, plan_term=9) == Fence(9, None)
    assert restored(tmp_path, plan_term=7) == proved(7)
    assert restored(tmp_path, plan_term=3) == proved(7)


def test_a_term_of_which_no_trainer_was_heard_is_kept_too(tmp_path: Path) -> None:
    FenceFile(tmp_path).keep(Fence(9, None))
    assert restored(tmp_path) == Fence(9, None)


def test_a_new_spool_has_no_fence(tmp_path: Path) -> None:
    assert restored(tmp_path) == Fence(0, None)


def test_a_fence_that_does_not_move_is_not_written_again(tmp_path: Path) -> None:
    file = FenceFile(tmp_path)
    file.keep(proved(7))
    before = (tmp_path / FILE).stat().st_ino
    file.keep(proved(7))
    assert (tmp_path / FILE).stat().st_ino == before


@pytest.mark.parametrize(
    "text", ["", "7\n", f"7 {ME}\n", "-1 -\n", "7 -", "07 -\n", "7 " + "x" * 200, "x" * 300], ids=repr
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SpoolCorruptError):
        FenceFile(tmp_path)


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FenceFile(tmp_path)

    def full(*_: object) -> None:
        raise SpoolFullError("no room left")

    with monkeypatch.context() as patch:
        patch.setattr("sync_runtime.bucket.durable.write_at", full)
        assert not file.keep(proved(7))
    assert file.keep(proved(7))
    assert restored(tmp_path) == proved(7)


def test_a_proof_of_an_older_term_is_not_kept_as_that_of_the_plans(tmp_path: Path) -> None:
    fence = proved(7)
    fence.appoint(9)
    FenceFile(tmp_path).keep(fence)
    assert restored(tmp_path) == Fence(9, None)


def test_a_proof_under_a_new_key_replaces_the_old_one(tmp_path: Path) -> None:
    file = FenceFile(tmp_path)
    file.keep(proved(7))
    renewed = Fence(7, ME, Proof(7, ME, "b" * 128))
    file.keep(renewed)
    assert restored(tmp_path) == renewed
