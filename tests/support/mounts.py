"""Small disks for tests: a mount namespace of a process's own."""

from __future__ import annotations

import shutil
import subprocess

import pytest


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
