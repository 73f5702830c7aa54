"""Random damage without end: `python -m tests.hostile.fuzz [--count 1000000] [--seed N]`.

Not guided by coverage: the decoders are compiled, and their objects are small enough for chance to reach every field.
A crash, a foreign exception or a wrong state ends the run with its bytes. With NUMBA_BOUNDSCHECK=1 (and its own
NUMBA_CACHE_DIR) an index outside an array is such an exception too, instead of silence.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.hostile.mutations import CODECS, Target, random_mutations

BATCH = 10_000


def main() -> int:
    """Fuzz the codecs in turn; one line per batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    targets = [Target(codec) for codec in CODECS]
    tried = taken = 0
    while tried < options.count:
        target = targets[tried // BATCH % len(targets)]
        for damaged in random_mutations(target.object, BATCH, options.seed + tried):
            try:
                taken += target.survives(damaged)
            except BaseException:
                sys.stderr.write(f"seed {options.seed}, {target.delta.manifest.codec}: {damaged.hex()}\n")
                raise
        tried += BATCH
        sys.stderr.write(f"{tried} tried, {taken} taken and right\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
