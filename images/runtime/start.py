#!/opt/syncgroup/bin/python
"""`syncgroup` in the runtime's image: the same program, with the compiled loops of its codec where numba may use them.

numba writes where it reads, and the image's root is read-only. Loops that were compiled for another kind of CPU are
compiled anew by it; where there is no room for them, in every process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

from syncgroup.cli import main

LOOPS = "/opt/syncgroup/loops"
CODING = ("sidecar", "delta")
"""The subcommands that code."""

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in CODING:
        with contextlib.suppress(OSError):
            shutil.copytree(LOOPS, os.environ["NUMBA_CACHE_DIR"], dirs_exist_ok=True)
    sys.exit(main())
