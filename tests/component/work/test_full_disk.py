"""A full disk under the work ledger: a clear error, results that wait at their worker, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY
from tests.support.mounts import own_mounts

DISK_BYTES = 2 << 20


@pytest.mark.timeout(120)
def test_a_full_disk_loses_neither_prompts_nor_results(tmp_path: Path) -> None:
    disk = tmp_path / "state/trainer-0"
    disk.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={DISK_BYTES} spool "$1" && shift && exec "$@"'
    program = [sys.executable, "-m", "tests.component.work.full_disk_program", str(tmp_path)]
    command = [*own_mounts(), "sh", "-c", mount, "sh", str(disk), *program]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
