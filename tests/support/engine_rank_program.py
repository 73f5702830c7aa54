"""One rank of an engine as a process of its own, for tests; it may be armed to die while it stages.

python -m tests.support.engine_rank_program SOCKET RANK RANKS SEQ
"""

from __future__ import annotations

import os
import sys
import time

os.environ["TRITON_INTERPRET"] = "1"

from sync_runtime import Subscriber
from sync_runtime.tensors import layout
from tests.support.deaths import VARIABLE, arm
from tests.support.sharded import SMALL_ELEMENTS, rank_state, whole_state

FOLLOW_S = 60.0


def main() -> None:
    """Opens with the first state and activates until a version is live; says which, and its digest."""
    layout.SMALL_ELEMENTS = SMALL_ELEMENTS
    rank, ranks, seq = (int(word) for word in sys.argv[2:5])
    held = rank_state(whole_state(), rank, ranks)
    subscriber = Subscriber(held, socket=sys.argv[1], coder="library", rank=rank, world_size=ranks, patience=30.0)
    if VARIABLE in os.environ:
        arm(os.environ[VARIABLE])
    end = time.monotonic() + FOLLOW_S
    while time.monotonic() < end and (subscriber.version is None or subscriber.version.seq < seq):
        subscriber.activate()
    version = subscriber.version
    sys.stdout.write("nothing\n" if version is None else f"{version.seq} {version.digest}\n")
    sys.stdout.flush()
    subscriber.close()


if __name__ == "__main__":
    main()
