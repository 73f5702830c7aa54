"""kill -9 of an engine's process at every stage of a version, and what its sidecar and its successor make of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from tests.support.deaths import VARIABLE
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-1", "eu", ("trainer-0",))
STAGES = {
    "while a version is staged": "sync_runtime.library.intake:Intake._add:before:1",
    "when it is staged": "sync_runtime.library.intake:Intake._add:after:1",
    "before it asks for leave": "sync_runtime.library.subscribing:SubscribeSession._activate:before:1",
    "in the middle of the pause": "sync_runtime.library.copying:scatter:before:1",
    "at the end of the pause": "sync_runtime.library.copying:scatter:after:1",
    "before a scrub": "sync_runtime.library.subscribing:SubscribeSession._begin_scrub:before:1",
    "in the middle of a scrub": "sync_runtime.library.subscribing:SubscribeSession._end_scrub:before:1",
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        yield made


@pytest.mark.parametrize("stage", STAGES)
def test_an_engine_that_dies_is_noticed_and_its_successor_is_brought_level(group: InsideGroup, stage: str) -> None:
    group.start_all()
    trained, weights = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        publisher.publish(step=1)
        command = [sys.executable, "-m", "tests.support.member_program", group.socket("eu-1")]
        engine = subprocess.Popen(command, env={**os.environ, VARIABLE: STAGES[stage]})
        assert engine.wait(60) == -9
        wait_for(lambda: group.ask("eu-1", "/v1/status")["report"]["state"] == "Starting", 5, what="its end")
        assert not list((group.folder / "state/eu-1/spool/mirror").iterdir())
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            follow(subscriber, 1)
            assert same_bits(weights, trained)
            nudge(trained, 1)
            follow(subscriber, publisher.publish(step=2).seq)
            assert same_bits(weights, trained)
            assert subscriber.scrub()
