"""kill -9 of a sidecar that serves a folder, at every step of a swap: readers find a whole version, then the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import VARIABLE
from tests.support.groups import TRAINER, Group, wait_for
from tests.support.served_runs import LEAF, Run, content, same, saved

pytestmark = pytest.mark.timeout(120)
_FOLDER = "sync_runtime.offline.served.folder:ServedFolder"
STAGES = {
    "before a byte is written": ("sync_runtime.offline.served.copies:write_staged:before:1", 0),
    "before it is known to be whole": ("sync_runtime.offline.served.copies:write_note:before:3", 0),
    "before the link moves": (f"{_FOLDER}._point_to:before:2", 0),
    "after the link moved": (f"{_FOLDER}.switch:after:1", 1),
}
"""Where it dies, and which version is served then. Notes: of the base, of its copy, of the version."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_sidecar_killed_in_a_swap_serves_on_from_the_last_whole_version(tmp_path: Path, stage: str) -> None:
    death, served = STAGES[stage]
    with Group(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as group:
        run = Run(tmp_path, group)
        versions = {0: content(tmp_path / "base")}
        group.environment = {VARIABLE: death}
        group.start("eu-0")
        group.environment = {}
        run.reaches(0)
        run.publish(1)
        versions[1] = saved(run.model, tmp_path / "first")
        process = group.processes["eu-0"]
        wait_for(lambda: process.poll() is not None, 30, what="its death")
        assert group.processes.pop("eu-0").wait(10) == -9
        assert content(run.path) == versions[served]
        group.start("eu-0")
        run.reaches(1)
        assert content(run.path) == versions[1]
        run.reaches(run.publish(2))
        assert same(run.loaded(), run.model)
        run.publisher.close(0.0)
