"""What the self-test of an image is, in the same words for all of them: steps, one sentence each, an exit code.

Pure: a step's check is handed in, and so is whoever says the sentences. Knows none of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

PASSED: Final = "ok"
FAILED: Final = "FAILED"
BROKEN_EXIT_CODE: Final = 1


class SelfTestError(Exception):
    """A step found what must not be; its message is the end of the step's sentence."""


class Step(NamedTuple):
    """One thing that an image must be able to do."""

    name: str
    check: Callable[[], str]
    """Does it; returns what was seen, as a sentence. Raises SelfTestError, or what a broken image raises."""


def run_steps(steps: Iterable[Step], say: Callable[[str], None], broken: tuple[type[Exception], ...]) -> int:
    """Every step, also after one that failed; returns the exit code. `broken` are the errors of a broken image."""
    code = 0
    expected: tuple[type[Exception], ...] = (SelfTestError, *broken)
    for step in steps:
        try:
            say(f"{PASSED:<6} {step.name}: {step.check()}")
        except expected as error:
            code = BROKEN_EXIT_CODE
            say(f"{FAILED:<6} {step.name}: {type(error).__name__}: {error}")
    return code


def surroundings(*, read_only: bool, uid: int) -> str:
    """The last step's sentence: whether the steps before it were a proof for a restricted container."""
    if uid == 0:
        raise SelfTestError("this ran as root; run it as another user, as pods do.")
    if read_only:
        return f"all of it ran as user {uid} on a read-only root file system."
    return (
        f"all of it ran as user {uid}, but the root file system is writable: this shows nothing about a read-only one."
    )
