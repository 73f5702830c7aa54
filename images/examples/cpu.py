"""Runs inside the build stage of the examples' image: leaves out what torch would only use on a GPU.

torch's wheel, as PyPI has it for Linux, links to a part of CUDA's libraries and does not start without them; the others
it opens when it finds a GPU. What stays is what it is seen to load here. A torch without CUDA has nothing to leave out.
Standard library only, apart from torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GPU_PACKAGES = "nvidia"
"""The folder among the packages that holds CUDA's libraries."""
SAY_WHAT_IS_LOADED = """
import torch
torch.cuda.is_available()
torch.linalg.inv(torch.eye(2))
with open("/proc/self/maps") as maps:
    print("\\n".join({line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}))
"""


def main() -> int:
    """Leaves it out of the environment that runs this; returns the exit code."""
    for folder in (Path(sys.prefix) / "lib").glob(f"python*/site-packages/{GPU_PACKAGES}"):
        before = size_bytes(folder)
        leave_out(folder, loaded())
        sys.stdout.write(f"of CUDA's {before >> 20} MiB, torch loads {size_bytes(folder) >> 20} MiB on a CPU\n")
    return 0


def loaded() -> frozenset[Path]:
    """The shared libraries that torch loads here, where there is no GPU."""
    done = subprocess.run([sys.executable, "-c", SAY_WHAT_IS_LOADED], check=True, stdout=subprocess.PIPE, text=True)
    return frozenset(Path(line).resolve() for line in done.stdout.splitlines())


def leave_out(folder: Path, kept: frozenset[Path]) -> None:
    """Every file but those that are kept: libraries, headers, programs, code for devices; then empty folders."""
    if not any(path.is_relative_to(folder.resolve()) for path in kept):
        raise SystemExit(f"torch loads nothing from {folder}: is it the torch of these packages?")
    for place, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *(one for one in folders if Path(place, one).is_symlink())):
            if Path(place, name).resolve() not in kept:
                Path(place, name).unlink()
        if not os.listdir(place):
            os.rmdir(place)


def size_bytes(folder: Path) -> int:
    """Of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    sys.exit(main())
