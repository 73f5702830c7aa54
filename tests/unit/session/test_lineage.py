"""Which lineage a trainer continues or begins, from a real spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.bucket.manifest import Version
from sync_runtime.bucket.spool import Spool
from sync_runtime.bucket.versions import Lineage
from sync_runtime.errors import SpoolError
from sync_runtime.session.lineage import Position, newest_position, open_position
from sync_runtime.session.versions import Fence
from sync_runtime.tensors.digest import Digest, parse_digest

UID = "0b9a4c1e-1d1f-4c52-9d1f-6f3f0c1c2a3b"
LAYOUT, OTHER_LAYOUT = "aa" * 32, "bb" * 32


def digest(number: int) -> Digest:
    return parse_digest(f"{number:032x}")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool.open(tmp_path / "spool", max_bytes=1 << 20, max_versions=8) as opened:
        yield opened


def fence_of(spool: Spool) -> Fence:
    term = spool.next_term(1)
    return Fence(term, spool.incarnation(term))


def opened(spool: Spool, number: int, layout_hash: str = LAYOUT) -> Position:
    return open_position(spool, fence_of(spool), UID, digest(number), layout_hash)


def test_the_first_lineage_begins_at_zero(spool: Spool) -> None:
    position = opened(spool, 1)
    assert (position.seq, position.is_continued, position.record.origin) == (0, False, None)


def test_the_newest_version_is_continued_under_a_new_term(spool: Spool) -> None:
    first = opened(spool, 1)
    again = opened(spool, 1)
    assert (again.lineage, again.seq, again.is_continued) == (first.lineage, 0, True)


def test_another_state_begins_another_lineage(spool: Spool) -> None:
    first, second = opened(spool, 1), opened(spool, 2)
    assert second.lineage != first.lineage
    assert second.record.origin is None
    assert [known.lineage for known in second.before] == [first.lineage]


def test_a_version_of_any_known_lineage_is_gone_back_to(spool: Spool) -> None:
    """Not only of the newest: a run that restarted twice may go back to where the first one began."""
    first, second = opened(spool, 1), opened(spool, 2)
    third = opened(spool, 1)
    assert third.lineage not in (first.lineage, second.lineage)
    assert third.record.origin == VersionRef(first.lineage, 0)


def test_an_older_lineage_is_not_continued_over_a_newer_one_of_another_layout(spool: Spool) -> None:
    first = opened(spool, 1)
    opened(spool, 1, OTHER_LAYOUT)
    again = opened(spool, 1)
    assert again.lineage != first.lineage
    assert again.record.origin == VersionRef(first.lineage, 0)


def test_a_clock_that_jumps_back_does_not_change_which_lineage_is_newest(spool: Spool) -> None:
    fence = fence_of(spool)
    assert fence.incarnation is not None
    ahead = Lineage("cc" * 16, fence.term, fence.incarnation, Version(0, digest(7)), LAYOUT, None, 1 << 62)
    spool.put_lineage(ahead)
    position = open_position(spool, fence, UID, digest(1), LAYOUT)
    found = newest_position(spool, LAYOUT)
    assert found is not None
    assert found.lineage == position.lineage


def test_nothing_is_newest_in_an_empty_spool(spool: Spool) -> None:
    assert newest_position(spool, LAYOUT) is None


def test_a_trainer_without_a_term_opens_nothing(spool: Spool) -> None:
    with pytest.raises(SpoolError, match="term"):
        open_position(spool, Fence(), UID, digest(1), LAYOUT)


def test_a_position_that_advanced_knows_its_versions(spool: Spool) -> None:
    position = opened(spool, 1).advanced(Version(1, digest(5)))
    assert (position.seq, position.record.digests) == (1, {0: digest(1), 1: digest(5)})
