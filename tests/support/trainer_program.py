"""A trainer's process that dies at a given moment of its first publish, for tests.

python -m tests.support.trainer_program SOCKET
"""

from __future__ import annotations

import os
import sys

from sync_runtime import Publisher
from tests.support.deaths import VARIABLE, arm
from tests.support.models import nudge, small_model


def main() -> None:
    """Opens, takes one step, publishes."""
    model = small_model()
    if sys.argv[2] == "open":
        arm(os.environ[VARIABLE])
    publisher = Publisher(model, socket=sys.argv[1])
    if sys.argv[2] == "publish":
        arm(os.environ[VARIABLE])
    nudge(model, 0)
    publisher.publish(step=1)
    publisher.close()


if __name__ == "__main__":
    main()
