"""Small disks for tests: a mount namespace of a process's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY


def own_mounts() -> list[str]:
    """A command that runs another in a user and mount namespace of its own; skips where there is none."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("a small disk needs the program unshare")
    namespace = [program, "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"a small disk needs a user namespace: {tried.stderr.strip()}")
    return namespace


def run_with_small_disk(program: str, folder: Path, disk: str, size_bytes: int) -> None:
    """Run a module of ours on `folder`, of which the part `disk` is a disk of its own of that size; it must succeed."""
    (folder / disk).mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={size_bytes} spool "$1" && shift && exec "$@"'
    inside = [str(folder / disk), sys.executable, "-m", program, str(folder)]
    command = [*own_mounts(), "sh", "-c", mount, "sh", *inside]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
