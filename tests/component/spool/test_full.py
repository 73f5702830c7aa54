"""A full disk: a clear error, nothing left behind, and everything goes on when there is room again."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY
from tests.support.mounts import own_mounts

PROGRAM = [sys.executable, "-m", "tests.component.spool.full_program"]
DISK_BYTES = 3 << 20
FILE_BYTES = 1 << 20


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


@pytest.mark.timeout(60)
def test_a_file_that_cannot_grow_is_a_full_spool(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, str(tmp_path / "spool"), "small"],
        cwd=REPOSITORY,
        preexec_fn=_limit_files,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(60)
def test_a_full_file_system_leaves_nothing_behind(tmp_path: Path) -> None:
    namespace = own_mounts()
    mount = f'mount -t tmpfs -o size={DISK_BYTES} spool "$1" && shift && exec "$@"'
    command = [*namespace, "sh", "-c", mount, "sh", str(tmp_path), *PROGRAM, str(tmp_path / "spool"), "disk"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
