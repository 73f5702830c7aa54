"""The CPU codec's loops, compiled for the runtime's image: a sidecar in a pod then starts in a moment, not in many.

    python -m tests.support.runtime_loops      compiles into $NUMBA_CACHE_DIR what members of a small group need

A group without Kubernetes does what groups do: publish, relay, catch up, join with other weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.cache import exclusive, replacing
from tools.devcluster import hostpython, runtimeimage

TIMEOUT_S = 600.0


def ensure() -> None:
    """Compiles them for this checkout, unless that was done."""
    code = runtimeimage.checkout()
    loops = code / runtimeimage.LOOPS
    with exclusive(code.parent / ".loops-lock"):
        if loops.exists():
            return
        with replacing(loops) as staged:
            staged.mkdir()
            path = os.pathsep.join([str(code), str(hostpython.REPOSITORY)])
            environment = os.environ | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(staged)}
            command = [sys.executable, "-m", "tests.support.runtime_loops"]
            for last in (False, True):  # torch's MKL was seen to find its own library missing, once in many runs
                done = subprocess.run(
                    command, cwd=code, env=environment, check=False, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S
                )
                if done.returncode == 0:
                    break
                if last:
                    raise subprocess.CalledProcessError(done.returncode, command)


def main() -> None:
    """A trainer, a relay, a member behind it that is late, and one that comes with other weights."""
    from sync_runtime import Publisher, Subscriber
    from tests.support.following import follow
    from tests.support.groups import TRAINER, Group, Member
    from tests.support.models import nudge, small_model

    relay = Member("relay-0", "eu", ("trainer-0",), relay=True)
    late = Member("late-0", "eu", ("relay-0",))
    other = Member("other-0", "eu", ("relay-0",))
    with tempfile.TemporaryDirectory() as folder, Group(Path(folder), [TRAINER, relay, late, other]) as group:
        group.start("trainer-0", "relay-0")
        model = small_model()
        with Publisher(model, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(small_model(), socket=group.socket("relay-0")) as subscriber:
                for number in range(4):
                    nudge(model, number)
                    follow(subscriber, publisher.publish().seq, TIMEOUT_S)
                group.start("late-0", "other-0")
                for name, seed in (("late-0", 0), ("other-0", 1)):
                    with Subscriber(small_model(seed), socket=group.socket(name)) as joined:
                        follow(joined, 4, TIMEOUT_S)


if __name__ == "__main__":
    main()
