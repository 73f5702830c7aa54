"""An engine's process that dies at a given moment of its first version, for tests.

python -m tests.support.member_program SOCKET
"""

from __future__ import annotations

import os
import sys

from sync_runtime import Subscriber
from tests.support.deaths import VARIABLE, arm
from tests.support.models import small_model


def main() -> None:
    """Opens, waits for a version, activates it, scrubs."""
    model = small_model()
    arm(os.environ[VARIABLE])  # before: a version may be there and staged as soon as it is open
    subscriber = Subscriber(model, socket=sys.argv[1])
    subscriber.wait(timeout=60)
    subscriber.activate()
    subscriber.scrub()
    subscriber.wait(timeout=60)


if __name__ == "__main__":
    main()
