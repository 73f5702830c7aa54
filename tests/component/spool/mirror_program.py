"""`mirror_program.py FOLDER ROUNDS SEED`: kills a process in the middle of a mirror's commits and asks what is left.

The child commits the way from one version to the other and back without end; after its death the mirror must prove to
be one of the two, bit for bit, or say that it is neither. Prints how often it was what. Commits are short: where no
round met the middle of one, more follow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from sync_runtime.bucket.keys import VersionRef
from sync_runtime.offline import Delta, diff, digest, invert, layout_of
from sync_runtime.session.mirror import Mirror, Stages
from tests.support.states import next_state, same_bits, weights

LINEAGE = "aa" * 16
MOST = 10
"""Times the rounds that were asked for, at most."""
HERE, THERE = VersionRef(LINEAGE, 0), VersionRef(LINEAGE, 1)


def main(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    dice = random.Random(seed)  # noqa: S311 -- which moment, not a secret
    here = {f"layer.{at}.weight": weights((512, 256), at) for at in range(8)}
    there = next_state(here, seed=5, per_mille=300)
    layout = layout_of(here)
    names = {digest(here, layout=layout): here, digest(there, layout=layout): there}
    forward = diff(here, there, layout=layout, threads=1)
    ways = forward, invert(forward, threads=1)
    found: Counter[str] = Counter()
    for at in range(MOST * rounds):
        if at >= rounds and found["mixture"]:
            break
        mirror = Mirror.create(folder, layout)
        mirror.append(b"".join(here[tensor.name].matrix.tobytes() for tensor in layout.tensors))
        _one_life(mirror, ways, dice.uniform(0, dice.choice((0.001, 0.01))))
        left = Mirror.reopen(mirror.path, layout)
        state = {tensor.name: left.bound()[place] for place, tensor in enumerate(layout.tensors)}
        proven = left.prove(names)
        if proven is None:
            if any(same_bits(state, known) for known in names.values()):
                raise SystemExit("the mirror is a version and does not know it")
            found["mixture"] += 1
        else:
            if not same_bits(state, names[proven]):
                raise SystemExit("the mirror says it is a version that it is not")
            found["version"] += 1
        left.remove()
    return dict(found)


def _one_life(mirror: Mirror, ways: tuple[Delta, Delta], wait_s: float) -> None:
    forward, back = ways
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            stages = Stages(mirror, HERE, forward.base.digest, threads=1)
            while True:
                for delta, ref in ((forward, THERE), (back, HERE)):
                    stages.stage(delta, ref)
                    os.write(writer, b".")
                    stages.commit(ref)
        finally:
            os._exit(3)  # it works until it is killed
    os.close(writer)
    os.read(reader, 1)
    time.sleep(wait_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))) + "\n")
