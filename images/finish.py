"""Runs inside the build stage of every image: leaves out what nobody runs, compiles, and makes times equal.

    python finish.py                                 after the dependencies: all of the environment that runs it
    python finish.py --loops PACKAGE [PACKAGE …]     after our own: these alone, so that a change of code costs seconds

Bytecode is believed without a look at its source, since times in an image mean nothing. `--loops` also compiles the CPU
codec's loops, which a sidecar would otherwise do in every pod. Standard library only, apart from what is installed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

LEFT_OUT = frozenset({"tests", "__pycache__"})
LOOPS = Path(sys.prefix) / "loops"
COMPILE_LOOPS = "from sync_runtime.offline.selfcheck import codec_sentence; codec_sentence()"


def main(arguments: list[str] | None = None) -> int:
    """Finishes the environment; returns the exit code."""
    parser = argparse.ArgumentParser(description="Leave out, compile, make times equal.")
    parser.add_argument("--loops", action="store_true", help="also compile the loops of the CPU codec")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="all that is installed if there is none")
    options = parser.parse_args(arguments)
    everything = Path(sys.prefix) / "lib"
    for place in places(everything, options.packages):
        leave_out(place)
        # Its result tells of files that do not compile, such as templates in packages of others: they stay so.
        compileall.compile_dir(
            place, quiet=2, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    level_times(everything)
    if options.loops:
        compile_loops()
    return 0


def places(everything: Path, packages: list[str]) -> list[Path]:
    """The folders of these packages, or the one that holds them all."""
    if not packages:
        return [everything]
    found = {name: list(everything.glob(f"python*/site-packages/{name}")) for name in packages}
    missing = sorted(name for name, places in found.items() if not places)
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    return [place for places in found.values() for place in places]


def leave_out(folder: Path) -> None:
    """The tests that packages bring along, and bytecode that they brought."""
    for place, folders, _ in os.walk(folder):
        for name in LEFT_OUT.intersection(folders):
            shutil.rmtree(Path(place) / name)
            folders.remove(name)


def level_times(folder: Path) -> None:
    """Whole seconds, the same everywhere: numba believes a loop by its source's time, and layers keep no fractions.

    A file that is touched is copied whole into the layer in hand, so those of layers below are left as they are.
    """
    for place, _, files in os.walk(folder):
        for path in (Path(place) / name for name in files):
            if path.lstat().st_mtime_ns != 0:
                os.utime(path, (0, 0), follow_symlinks=False)


def compile_loops() -> None:
    """Into a folder of the image; `start.py` hands them to numba."""
    LOOPS.mkdir()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(LOOPS), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", COMPILE_LOOPS], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
