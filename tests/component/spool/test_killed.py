"""kill -9 at any moment: what was committed is there and right, what was not is invisible or resumable."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import REPOSITORY


@pytest.mark.timeout(120)
def test_two_hundred_sudden_deaths_lose_nothing_and_show_nothing_half(quick_folder: Path) -> None:
    seed = _seed()
    done = _run("tests.component.spool.kill_program", quick_folder, 200, seed)
    assert done.returncode == 0, f"SYNCGROUP_TEST_SEED={seed}: {done.stderr}"
    seen = json.loads(done.stdout)["seen"]
    # The rounds must have met every kind of moment, or they prove nothing.
    assert all(seen.get(word, 0) > 20 for word in ("committed", "removed", "resumed", "partial")), seen


@pytest.mark.timeout(120)
def test_a_mirror_killed_in_the_middle_of_a_commit_knows_what_it_is_or_that_it_does_not(quick_folder: Path) -> None:
    seed = _seed()
    done = _run("tests.component.spool.mirror_program", quick_folder, 40, seed)
    assert done.returncode == 0, f"SYNCGROUP_TEST_SEED={seed}: {done.stderr}"
    seen = json.loads(done.stdout)
    assert seen.get("mixture", 0) > 0, seen  # or no round met the middle of a commit


def _seed() -> int:
    return int(os.environ.get("SYNCGROUP_TEST_SEED", secrets.randbelow(1 << 30)))


def _run(program: str, folder: Path, rounds: int, seed: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", program, str(folder), str(rounds), str(seed)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
