"""What to do when a GPU worker has ended: start it again, how soon, and what to say. Pure.

One that worked for a while is started again at once; one that falls over again and again is given ever more time, so
that a broken GPU costs no CPU. Without torch nothing but another image helps, so it is not tried again.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from sync_runtime.local.supervised import EXIT_GPU_FAILED, EXIT_NO_TORCH

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A worker that listened for so long was well: its end is the first one again."""
MAX_LAST_WORDS: Final = 100
"""A report's sentence is short, and ours says what to do."""

STARTING: Final = "GpuWorkerStarting"
NO_TORCH: Final = "GpuWorkerNoTorch"
GPU_FAILED: Final = "GpuWorkerGpuFailed"
KILLED: Final = "GpuWorkerKilled"
ENDED: Final = "GpuWorkerEnded"
CANNOT_RUN: Final = "GpuWorkerCannotRun"

Trouble = tuple[str, str]
"""A word and a sentence."""


@dataclass(frozen=True)
class Ending:
    """How a worker ended."""

    status: int | None
    """Its exit status, negative for a signal; None: the program could not be run at all."""
    listened_s: float | None
    """For how long owners could dial it; None: never."""
    last_words: str = ""
    """The last line that it wrote."""


@dataclass(frozen=True)
class Verdict:
    """What follows."""

    trouble: Trouble
    failures: int
    """In a row, this one included."""
    again_after_s: float | None
    """None: it is not started again."""


def judge(ending: Ending, failures: int) -> Verdict:
    """What follows from an ending after so many failures in a row."""
    if ending.status == EXIT_NO_TORCH:
        sentence = (
            "the GPU worker cannot load torch: set spec.runtime.image to the CUDA variant of the runtime's image, or "
            "spec.sync.gpuAccess to InProcess"
        )
        return Verdict((NO_TORCH, sentence), failures + 1, None)
    if ending.listened_s is not None and ending.listened_s >= STEADY_S:
        failures = 0
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 16))
    return Verdict(_trouble(ending), failures + 1, pause_s)


def _trouble(ending: Ending) -> Trouble:
    said = f": {ending.last_words[:MAX_LAST_WORDS]}" if ending.last_words else ""
    if ending.status is None:
        return CANNOT_RUN, f"the GPU worker cannot be run{said}"
    if ending.status == EXIT_GPU_FAILED:
        return GPU_FAILED, f"the GPU failed in the GPU worker, which is started again{said}"
    if ending.status < 0:
        return KILLED, f"the GPU worker was killed by {_signal_name(-ending.status)} and is started again{said}"
    return ENDED, f"the GPU worker ended with status {ending.status} and is started again{said}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals, which have no names
        return f"signal {number}"
