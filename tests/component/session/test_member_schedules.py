"""Random fault schedules, a few of them; `python -m tests.component.session.schedules` runs as many as one likes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.component.session.schedules import play

MANY = int(os.environ.get("SYNCGROUP_SCHEDULES", "0"))
"""How many more are wanted; 100 over 200 versions take hours, so a normal run has none of them."""
MANY_VERSIONS = 200


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2, 6])
def test_after_random_faults_every_member_has_the_trainers_bits(tmp_path: Path, seed: int) -> None:
    assert play(tmp_path, seed, versions=15).published == 15


@pytest.mark.skipif(not MANY, reason="set SYNCGROUP_SCHEDULES to the number of long schedules that you want")
@pytest.mark.timeout(180)
def test_after_random_kills_of_real_processes_every_member_has_the_trainers_bits(tmp_path: Path) -> None:
    assert play(tmp_path, seed=3, versions=8, processes=True).published == 8


@pytest.mark.skipif(not MANY, reason="set SYNCGROUP_SCHEDULES to the number of long schedules that you want")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(MANY))
def test_after_many_random_faults_every_member_has_the_trainers_bits(tmp_path: Path, seed: int) -> None:
    assert play(tmp_path, seed, versions=MANY_VERSIONS).published == MANY_VERSIONS
