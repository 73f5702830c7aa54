"""Ranks that die: the others hear it at once, nothing of the version is left, and all go on when it is back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher
from sync_runtime.errors import SyncError
from tests.component.ranks.publishers import Trainer, close_all, objects, opened, publish_all
from tests.support.children import REPOSITORY
from tests.support.deaths import VARIABLE
from tests.support.groups import TRAINER
from tests.support.inside import InsideGroup
from tests.support.noticing import AT_ONCE_S, END_OF_FILE
from tests.support.sharded import load, rank_state, together, train_whole, whole_state

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def start_rank(group: InsideGroup, rank: int, ranks: int, death: str | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.support.rank_program", group.socket("trainer-0"), str(rank), str(ranks)]
    environment = {**os.environ, **({} if death is None else {VARIABLE: death})}
    return subprocess.Popen(words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_publish_together(group: InsideGroup) -> None:
    with start_rank(group, 0, 2) as first, start_rank(group, 1, 2) as second:
        said = [process.communicate(timeout=90)[0] for process in (first, second)]
    assert said[0] == said[1]
    assert [line.split()[1] for line in said[0].splitlines()] == ["1", "2"]
    assert sorted(objects(group)) == ["0-1.fast", "1-2.fast"]


@pytest.mark.parametrize(
    "moment",
    [
        "sync_runtime.local.channel:Channel.put:after:1",
        "sync_runtime.library.device_publish:DevicePublisher.encode:before:1",
    ],
)
def test_a_rank_killed_in_publish_stops_the_others_and_is_waited_for(group: InsideGroup, moment: str) -> None:
    whole = whole_state()
    part = rank_state(whole, 0, 2)
    with start_rank(group, 1, 2, moment) as doomed:
        publisher = opened(group, part, 0, 2, timeout=60.0, patience=60.0)
        train_whole(whole, 1)
        load(part, whole)
        ended: list[float] = []

        def wait() -> None:
            doomed.wait(60)
            ended.append(time.monotonic())

        def fail() -> float:
            with pytest.raises(SyncError, match=f"rank 1 of 2 went away: .*({END_OF_FILE})"):
                publisher.publish(step=1)
            return time.monotonic()

        _, seen = together(wait, fail)
    assert isinstance(seen, float), seen
    assert seen - ended[0] < AT_ONCE_S
    assert objects(group) == {}
    with start_rank(group, 1, 2) as back:
        first = publisher.publish(step=1)
        train_whole(whole, 2)
        load(part, whole)
        second = publisher.publish(step=2)
        publisher.close(0.0)
        said = back.communicate(timeout=60)[0]
    assert [line.split()[2] for line in said.splitlines()] == [first.digest, second.digest]
    assert (first.seq, second.seq, second.lineage) == (1, 2, first.lineage)


def test_a_rank_that_is_away_is_an_error_after_a_bounded_wait(group: InsideGroup) -> None:
    trainer = Trainer(group, patience=1.0)
    trainer.published(1)
    trainer.publishers[1].close(0.0)
    trainer.train(2)
    began = time.monotonic()
    with pytest.raises(SyncError, match=r"ranks|rank 1 of 2 went away"):  # whichever is seen first
        trainer.publishers[0].publish(step=2)
    assert time.monotonic() - began < 10
    together(lambda: trainer.publishers[0].close(0.0))


def test_a_rank_that_opens_with_the_last_version_continues_its_lineage(group: InsideGroup) -> None:
    trainer = Trainer(group, patience=30.0)
    first = trainer.published(1)
    trainer.publishers[1].close(0.0)
    back = opened(group, trainer.parts[1], 1, 2)
    assert isinstance(back, Publisher)
    trainer.publishers[1] = back
    trainer.train(2)
    found = publish_all(trainer.publishers, 2)
    assert [(one.lineage, one.seq) for one in found] == [(first.lineage, 2)] * 2
    close_all(trainer.publishers)
