"""One rank of a trainer as a process of its own, for tests; it may be armed to die in its first publish.

python -m tests.support.rank_program SOCKET RANK RANKS
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from sync_runtime import Publisher
from sync_runtime.tensors import layout
from tests.support.deaths import VARIABLE, arm
from tests.support.sharded import SMALL_ELEMENTS, load, rank_state, train_whole, whole_state


def main() -> None:
    """Opens, publishes two versions, and says which."""
    layout.SMALL_ELEMENTS = SMALL_ELEMENTS
    rank, ranks = int(sys.argv[2]), int(sys.argv[3])
    whole = whole_state()
    held = rank_state(whole, rank, ranks)
    publisher = Publisher(held, socket=sys.argv[1], coder="library", rank=rank, world_size=ranks)
    if VARIABLE in os.environ:
        arm(os.environ[VARIABLE])
    for step in (1, 2):
        train_whole(whole, step)
        load(held, whole)
        version = publisher.publish(step=step)
        sys.stdout.write(f"{version.lineage} {version.seq} {version.digest}\n")
        sys.stdout.flush()
    publisher.close()


if __name__ == "__main__":
    main()
