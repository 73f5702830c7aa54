"""A worker's process that takes one task and never completes it, for tests that kill it.

python -m tests.support.worker_program SOCKET
"""

from __future__ import annotations

import sys
import time

from sync_runtime import Subscriber, Worker
from tests.support.models import small_model


def main() -> None:
    """Opens, takes a task, says so, and sleeps."""
    subscriber = Subscriber(small_model(), socket=sys.argv[1])
    task = Worker(subscriber, socket=sys.argv[1]).take(timeout=60, activate=True)
    assert task is not None
    sys.stdout.write(f"took {task.id}\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main()
