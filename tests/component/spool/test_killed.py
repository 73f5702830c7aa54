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

PROGRAM = "tests.component.spool.kill_program"
ROUNDS = 200


@pytest.mark.timeout(120)
def test_two_hundred_sudden_deaths_lose_nothing_and_show_nothing_half(quick_folder: Path) -> None:
    seed = int(os.environ.get("SYNCGROUP_TEST_SEED", secrets.randbelow(1 << 30)))
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, str(quick_folder), str(ROUNDS), str(seed)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"SYNCGROUP_TEST_SEED={seed}: {done.stderr}"
    seen = json.loads(done.stdout)["seen"]
    # The rounds must have met every kind of moment, or they prove nothing.
    assert all(seen.get(word, 0) > 20 for word in ("committed", "removed", "resumed", "partial")), seen
