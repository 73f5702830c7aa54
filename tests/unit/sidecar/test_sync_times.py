"""How long a version takes to a member: by one clock, from the first word of it until it is staged."""

from __future__ import annotations

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.sidecar.sync_times import MAX_KEPT, SyncTimes

ONE, TWO = VersionRef("a" * 32, 1), VersionRef("a" * 32, 2)


def opened(now_s: float = 0.0) -> SyncTimes:
    times = SyncTimes()
    times.engine(is_open=True, now_s=now_s)
    return times


def test_a_version_takes_from_its_first_word_until_it_is_staged() -> None:
    times = opened()
    times.heard(ONE, 10.0)
    times.heard(ONE, 11.0)  # HEAD follows BEGIN
    times.staged(ONE, 12.5)
    assert times.millis(ONE) == 2500
    times.heard(TWO, 12.0)
    assert times.millis(TWO) is None
    times.staged(TWO, 12.8)
    assert (times.millis(ONE), times.millis(TWO)) == (2500, 800)


def test_what_did_not_come_as_an_update_has_no_time() -> None:
    times = opened()
    times.staged(ONE, 3.0)
    assert times.millis(ONE) is None
    assert times.millis(None) is None


def test_an_engine_that_came_late_is_not_the_links_fault() -> None:
    times = SyncTimes()
    times.heard(ONE, 10.0)
    times.engine(is_open=True, now_s=3600.0)
    times.engine(is_open=True, now_s=3601.0)
    times.staged(ONE, 3602.0)
    assert times.millis(ONE) == 2000
    times.engine(is_open=False, now_s=3700.0)
    times.heard(TWO, 3800.0)
    times.engine(is_open=True, now_s=4000.0)
    times.staged(TWO, 4000.5)
    assert times.millis(TWO) == 500


def test_a_repair_does_not_make_its_version_slow() -> None:
    times = opened()
    times.heard(ONE, 1.0)
    times.staged(ONE, 2.0)
    times.staged(ONE, 500.0)
    assert times.millis(ONE) == 1000


def test_only_the_last_versions_are_kept() -> None:
    times = opened()
    for seq in range(10 * MAX_KEPT):
        times.heard(VersionRef("a" * 32, seq), float(seq))
        times.staged(VersionRef("a" * 32, seq), seq + 0.5)
    assert len(times._heard_s) == len(times._took_s) == MAX_KEPT
    assert times.millis(VersionRef("a" * 32, 10 * MAX_KEPT - 1)) == 500
