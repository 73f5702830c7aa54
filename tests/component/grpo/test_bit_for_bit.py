"""GRPO over real sidecars, workers in three regions: the weights are those of the run in one process, bit for bit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.grpo.model import load, make_deterministic
from examples.grpo.settings import TINY, Settings
from examples.grpo.sources import InProcess
from examples.grpo.training import Training, masters_sum
from tests.component.grpo.programs import Programs, programs
from tests.support.groups import TRAINER, Group, Member, wait_for

pytestmark = pytest.mark.timeout(300)

RUN = replace(TINY, steps=6, groups=6, samples=8)
WORKERS = ("us-1", "eu-0", "eu-1", "asia-0")
MEMBERS = [
    TRAINER,
    Member("us-1", "us", ("trainer-0",)),
    Member("eu-0", "eu", ("trainer-0",), relay=True),
    Member("eu-1", "eu", ("eu-0", "trainer-0")),
    Member("asia-0", "asia", ("trainer-0",)),
]


@pytest.fixture(scope="module")
def expected() -> str:
    """The sum of the masters after the run in one process."""
    return local_sum(RUN)


def local_sum(settings: Settings) -> str:
    make_deterministic()
    policy = load(settings)
    Training(policy, settings, InProcess(policy.model)).run(lambda _: None)
    return masters_sum(policy)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Programs]:
    with Group(tmp_path, MEMBERS, ringBytes=1 << 22, maxStaleness=0) as group:
        group.start_all()
        with programs(group, RUN) as made:
            yield made


def test_with_a_worker_killed_in_the_middle_of_a_task(run: Programs, expected: str) -> None:
    mortal = run.worker("eu-1", dies_in_task=9)  # in the second step; alone, so that the ninth task is surely its own
    trainer = run.trainer()
    assert mortal.process.wait(120) == -signal.SIGKILL
    assert len([line for line in mortal.told() if "task" in line]) == 8
    others = [run.worker(name) for name in WORKERS if name != "eu-1"]
    assert trainer.finish(240)["sum"] == expected
    done = [line["task"] for program in (mortal, *others) for line in program.told() if "seq" in line]
    assert len(done) == len(set(done)) == RUN.steps * RUN.groups  # each was counted once
    assert expected != masters_sum(load(RUN))


def test_with_a_trainer_killed_and_started_again(run: Programs, expected: str) -> None:
    for name in WORKERS[:2]:
        run.worker(name)
    first = run.trainer()
    wait_for(lambda: len(first.told()) >= 2, 120, what="two steps")
    first.kill()
    assert run.trainer().finish(240)["sum"] == expected
