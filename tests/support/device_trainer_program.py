"""A trainer's process with coder `library` that dies at a given moment after its first version, for tests.

python -m tests.support.device_trainer_program SOCKET
"""

from __future__ import annotations

import os
import sys
import time

from sync_runtime import Publisher
from tests.support.deaths import VARIABLE, arm
from tests.support.device_models import tiny_state, train


def main() -> None:
    """Opens, publishes one version, and answers its sidecar until it dies."""
    state = tiny_state()
    publisher = Publisher(state, socket=sys.argv[1], coder="library")
    arm(os.environ[VARIABLE])
    train(state, 1)
    publisher.publish(step=1)
    time.sleep(60)


if __name__ == "__main__":
    main()
