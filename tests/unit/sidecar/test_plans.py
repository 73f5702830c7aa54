"""The plan's file under a running sidecar: what is read, and when it is read again."""

from __future__ import annotations

import os
from pathlib import Path

from sync_runtime.sidecar.plans import PlanWatch
from sync_runtime.standalone import load_group, settings_of
from tests.support.groups import TRAINER, Group, Member

EU = Member("eu-0", "eu", ("trainer-0",))


def test_a_file_that_was_met_half_written_is_read_again_though_its_date_is_the_same(tmp_path: Path) -> None:
    config = Group(tmp_path, [TRAINER, EU]).config
    plans = PlanWatch(settings_of(load_group(config), "eu-0", config))
    before = config.read_text()
    config.write_text("")  # what an editor does first
    os.utime(config, ns=(7, 7))
    assert not plans.look()
    assert isinstance(plans.problem, str)
    config.write_text(f"revision = 5\n{before}")
    os.utime(config, ns=(7, 7))
    assert plans.look()
    assert plans.plan.revision == 5
