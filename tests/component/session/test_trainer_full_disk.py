"""A full disk under the trainer's spool: a clear error, nothing left behind, and training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mounts import run_with_small_disk

DISK_BYTES = 2 << 20


@pytest.mark.timeout(120)
def test_a_full_disk_costs_the_version_and_nothing_else(tmp_path: Path) -> None:
    run_with_small_disk("tests.component.session.full_disk_program", tmp_path, "state/trainer-0", DISK_BYTES)
