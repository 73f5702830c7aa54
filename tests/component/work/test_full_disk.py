"""A full disk under the work ledger: a clear error, results that wait at their worker, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mounts import run_with_small_disk

DISK_BYTES = 2 << 20


@pytest.mark.timeout(120)
def test_a_full_disk_loses_neither_prompts_nor_results(tmp_path: Path) -> None:
    run_with_small_disk("tests.component.work.full_disk_program", tmp_path, "state/trainer-0", DISK_BYTES)
