"""A stuck stream is told from a slow one, and a broken path from both."""

from __future__ import annotations

from sync_runtime.transport.stuck import GIVE_UP_AFTER_S, Progress, StuckWatch, Verdicts

NOTHING = Verdicts((), ())


def observe(watch: StuckWatch, now_s: float, **streams: tuple[int, int]) -> Verdicts:
    """`s0=(acknowledged bytes, retransmissions)`."""
    found = {int(name[1:]): Progress(acked, retransmits, 0.1) for name, (acked, retransmits) in streams.items()}
    return watch.observe(found, now_s)


def test_a_stream_that_retransmits_in_vain_beside_one_that_moves_is_stuck_once() -> None:
    watch = StuckWatch()
    assert observe(watch, 0.0, s0=(10, 0), s1=(10, 0)) == NOTHING
    assert observe(watch, 0.9, s0=(10, 2), s1=(20, 0)) == NOTHING
    assert observe(watch, 1.1, s0=(10, 3), s1=(30, 0)).stuck == (0,)
    assert observe(watch, 1.3, s0=(10, 3), s1=(40, 0)) == NOTHING


def test_it_is_given_up_after_five_more_seconds() -> None:
    watch = StuckWatch()
    observe(watch, 0.0, s0=(10, 0), s1=(10, 0))
    observe(watch, 1.1, s0=(10, 3), s1=(30, 0))
    assert observe(watch, 1.1 + GIVE_UP_AFTER_S, s0=(10, 9), s1=(40, 0)).hopeless == (0,)


def test_a_slow_stream_is_not_stuck() -> None:
    watch = StuckWatch()
    for tick in range(40):
        assert observe(watch, tick * 0.25, s0=(10 + tick, tick), s1=(tick * 100, 0)) == NOTHING


def test_a_stream_that_waits_without_retransmitting_is_not_stuck() -> None:
    watch = StuckWatch()
    for tick in range(40):
        assert observe(watch, tick * 0.25, s0=(10, 0), s1=(tick * 100, 0)) == NOTHING


def test_when_no_stream_moves_the_path_is_away_and_nothing_is_repeated() -> None:
    watch = StuckWatch()
    observe(watch, 0.0, s0=(10, 0), s1=(10, 0))
    for tick in range(1, 40):
        assert observe(watch, tick * 0.25, s0=(10, tick), s1=(10, tick)) == NOTHING


def test_long_paths_get_more_patience() -> None:
    watch = StuckWatch()
    watch.observe({0: Progress(1, 0, 0.6), 1: Progress(1, 0, 0.6)}, 0.0)
    assert watch.observe({0: Progress(1, 1, 0.6), 1: Progress(2, 0, 0.6)}, 2.0) == NOTHING
    assert watch.observe({0: Progress(1, 1, 0.6), 1: Progress(3, 0, 0.6)}, 2.5).stuck == (0,)
