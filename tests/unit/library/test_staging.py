from typing import Any

import pytest

from sync_runtime.errors import WrongBaseError
from sync_runtime.library.staging import Staging
from sync_runtime.library.version import Version
from sync_runtime.local.messages import Stage, VersionRef

LINEAGE, OTHER, DIGEST = "a" * 32, "b" * 32, "0" * 32


def version(seq: int, lineage: str = LINEAGE) -> Version:
    return Version(lineage, seq, DIGEST)


def stage(seq: int, base: int | None, *, lineage: str = LINEAGE, base_lineage: str = LINEAGE) -> Stage:
    ref = None if base is None else VersionRef(base_lineage, base)
    return Stage(lineage, seq, DIGEST, None, ref, "list", 0)


def joined(earlier: Any, later: Any) -> Any:
    return earlier + later


def staging_at(*seqs: int) -> Staging:
    """Live 0, and these staged; a layer is its seq as text."""
    found = Staging()
    found.live = version(0)
    for seq in seqs:
        found.add(version(seq), str(seq), (found.folded or "") + str(seq))
    return found


def test_each_version_follows_from_the_one_below() -> None:
    staging = staging_at()
    staging.check(stage(1, 0))
    staging.add(version(1), "1", "1")
    staging.check(stage(2, 1))
    staging.check(stage(5, 1, lineage=OTHER))
    assert staging.staged == version(1)
    for wrong in (stage(1, 0), stage(3, 2), stage(2, 1, base_lineage=OTHER)):
        with pytest.raises(WrongBaseError):
            staging.check(wrong)


def test_whole_weights_are_for_a_member_out_of_service() -> None:
    staging = Staging()
    staging.check(stage(3, None))
    with pytest.raises(WrongBaseError):
        staging.check(stage(3, 2))
    with pytest.raises(WrongBaseError, match="out of service"):
        staging_at().check(stage(3, None))
    poisoned = staging_at()
    poisoned.is_poisoned = True
    poisoned.check(stage(3, None))
    poisoned.replace_live()
    assert poisoned.live is None


def test_a_repair_lies_under_what_is_staged() -> None:
    staging = staging_at(1, 2)
    staging.check(stage(0, 0))
    with pytest.raises(WrongBaseError):
        staging.check(stage(1, 1))
    staging.add_repair("r", "r12")
    assert staging.staged == version(2)
    staging.unstage(version(1).ref, joined)
    assert staging.folded == "r1"


def test_activation_keeps_what_came_after_it() -> None:
    staging = staging_at(1, 2, 3)
    staging.activated(version(2), joined)
    assert staging.live == version(2)
    assert staging.staged == version(3)
    assert staging.folded == "3"
    staging.activated(version(3), joined)
    assert staging.staged is None
    assert staging.folded is None


@pytest.mark.parametrize(
    ("after", "staged", "folded"), [(2, 2, "12"), (3, 3, "123"), (1, 1, "1"), (0, None, None), (9, None, None)]
)
def test_what_was_superseded_is_forgotten(after: int, staged: int | None, folded: str | None) -> None:
    staging = staging_at(1, 2, 3)
    staging.unstage(version(after).ref, joined)
    assert staging.staged == (None if staged is None else version(staged))
    assert staging.folded == folded


def test_whoever_folds_can_see_that_something_moved() -> None:
    staging = staging_at(1, 2)
    seen = [staging.turn]
    staging.activated(version(1), joined)
    seen.append(staging.turn)
    staging.unstage(None, joined)
    seen.append(staging.turn)
    staging.forget()
    seen.append(staging.turn)
    assert len(set(seen)) == 4
    assert staging.live == version(1)
