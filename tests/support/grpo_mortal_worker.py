"""A rollout worker of the GRPO example that dies by kill -9 in the middle of its n-th task, for tests.

python -m tests.support.grpo_mortal_worker N [OPTIONS of examples.grpo.worker]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from examples.grpo import rollout, worker


def main(arguments: list[str]) -> int:
    """An ordinary worker up to then."""
    left = int(arguments[0])

    def roll_out(generate: Any, request: rollout.Request) -> rollout.Rollout:
        nonlocal left
        left -= 1
        made = rollout.roll_out(generate, request)
        if left == 0:  # the answer is there and was told to nobody
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    worker.roll_out = roll_out  # type: ignore[assignment,attr-defined]
    return worker.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
