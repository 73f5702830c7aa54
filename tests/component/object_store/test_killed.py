"""kill -9 before and after every single write of a publisher: nothing half is visible, nothing published is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY
from tests.support.s3 import BUCKET, s3_server


@pytest.mark.timeout(180)
def test_a_publisher_that_dies_at_any_write_to_a_folder_leaves_whole_versions(tmp_path: Path) -> None:
    _check(_run(tmp_path))


@pytest.mark.timeout(180)
def test_a_publisher_that_dies_at_any_write_to_s3_leaves_whole_versions(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        _check(_run(tmp_path, server.url, str(server.credentials), "group", str(server.folder / BUCKET / "group")))


def _run(*arguments: object) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.component.object_store.kill_program", *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout)
    return found


def _check(found: dict[str, int]) -> None:
    assert found["deaths"] > 40, found  # or not every write was met
    assert found["acknowledged"] > 10, found
    assert found["garbage"] == 0, found
