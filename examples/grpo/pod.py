"""Trainer or worker in a pod: `python -m examples.grpo.pod trainer|worker [OPTIONS]`.

The operator mounts the library into the pod and says where; the image holds torch, transformers and this example.
"""

from __future__ import annotations

import os
import sys

# In front of whatever the image holds: sidecar and library are of one release then.
sys.path.insert(0, os.environ["SYNCGROUP_LIBRARY"])


def main(arguments: list[str]) -> int:
    """Runs the program of the role."""
    if arguments[:1] == ["trainer"]:
        from . import trainer  # noqa: PLC0415 a worker needs nothing of it

        return trainer.main(arguments[1:])
    if arguments[:1] == ["worker"]:
        from . import worker  # noqa: PLC0415 nor a trainer of this

        return worker.main(arguments[1:])
    sys.stderr.write("usage: python -m examples.grpo.pod trainer|worker [OPTIONS]\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
