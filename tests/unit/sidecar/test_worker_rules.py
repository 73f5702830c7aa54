"""When a GPU worker that ended is started again, and what is said of it."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.contract.reports import Trouble
from sync_runtime.local.supervised import EXIT_CANNOT_START, EXIT_GPU_FAILED, EXIT_NO_TORCH
from sync_runtime.sidecar import worker_rules as rules
from sync_runtime.sidecar.worker_rules import Ending, judge


def test_without_torch_nothing_is_tried_again_and_the_remedy_is_named() -> None:
    verdict = judge(Ending(EXIT_NO_TORCH, None, "CRITICAL torch cannot be loaded"), 0)
    assert verdict.again_after_s is None
    reason, sentence = verdict.trouble
    assert reason == rules.NO_TORCH
    assert "spec.runtime.image" in sentence
    assert "CUDA variant" in sentence
    assert "InProcess" in sentence


@pytest.mark.parametrize(
    ("ending", "reason", "words"),
    [
        (Ending(EXIT_GPU_FAILED, 5.0, "an illegal access"), rules.GPU_FAILED, "the GPU failed"),
        (Ending(-signal.SIGKILL, 5.0), rules.KILLED, "killed by SIGKILL"),
        (Ending(-40, 5.0), rules.KILLED, "killed by signal 40"),
        (Ending(EXIT_CANNOT_START, None, "LocalError: another listens"), rules.ENDED, "LocalError: another listens"),
        (Ending(0, 5.0), rules.ENDED, "status 0"),
        (Ending(None, None, "/no/python: No such file"), rules.CANNOT_RUN, "/no/python"),
    ],
)
def test_every_other_end_is_named_and_followed_by_a_start(ending: Ending, reason: str, words: str) -> None:
    verdict = judge(ending, 0)
    assert verdict.trouble[0] == reason
    assert words in verdict.trouble[1]
    assert (verdict.failures, verdict.again_after_s) == (1, rules.FIRST_PAUSE_S)


def test_the_pause_grows_with_failures_and_a_worker_that_was_well_begins_anew() -> None:
    pauses = [judge(Ending(1, None), failures).again_after_s for failures in range(9)]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == rules.LONGEST_PAUSE_S
    short = judge(Ending(1, rules.STEADY_S - 1), 5)
    assert (short.failures, short.again_after_s) == (6, 16.0)
    steady = judge(Ending(1, rules.STEADY_S), 5)
    assert (steady.failures, steady.again_after_s) == (1, rules.FIRST_PAUSE_S)


@given(
    st.builds(Ending, st.none() | st.integers(-64, 255), st.none() | st.floats(0, 1e6), st.text(max_size=1000)),
    st.integers(0, 10**6),
)
def test_every_verdict_fits_into_a_report(ending: Ending, failures: int) -> None:
    verdict = judge(ending, failures)
    Trouble(reason=verdict.trouble[0], message=verdict.trouble[1])
    assert verdict.again_after_s is None or 0 < verdict.again_after_s <= rules.LONGEST_PAUSE_S
