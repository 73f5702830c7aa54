"""The GRPO example learns: in one process, and over sidecars with prompts handed out ahead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.grpo.model import load, make_deterministic
from examples.grpo.settings import TINY
from examples.grpo.sources import InProcess
from examples.grpo.training import Figures, Training
from tests.component.grpo.programs import programs
from tests.support.groups import TRAINER, Group, Member, wait_for

pytestmark = pytest.mark.timeout(300)

MEMBERS = [TRAINER, Member("eu-0", "eu", ("trainer-0",)), Member("asia-0", "asia", ("trainer-0",))]
STALE = 3


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_reward_rises() -> None:
    make_deterministic()
    settings = replace(TINY, steps=45, largest=2)
    policy = load(settings)
    told: list[Figures] = []
    Training(policy, settings, InProcess(policy.model)).run(told.append)
    rewards = [one.reward for one in told]
    assert mean(rewards[:5]) < 0.2
    assert mean(rewards[-10:]) > 0.6


def test_ahead_of_the_trainer_workers_answer_from_weights_that_are_fresh_enough(tmp_path: Path) -> None:
    settings = replace(TINY, steps=8, groups=4, samples=8, ahead=2)
    with Group(tmp_path, MEMBERS, ringBytes=1 << 22, maxStaleness=STALE) as group:
        group.start_all()
        with programs(group, settings, deterministic=False) as run:
            workers = [run.worker(name, rest_s=0.5) for name in ("eu-0", "asia-0")]
            trainer = run.trainer()
            last = trainer.finish(240)
            rested = {"seq": last["seq"], "digest": last["digest"], "sum": last["wire_sum"]}
            for worker in workers:
                wait_for(lambda worker=worker: rested in worker.told(), 60, what="a worker with the trainer's bits")
    steps = trainer.told()[:-1]
    assert [line["step"] for line in steps] == list(range(1, settings.steps + 1))
    assert any(line["lag"] > 0 for line in steps)
    assert all(line["lag"] <= STALE + settings.ahead for line in steps)
    assert sum(line["sent_bytes"] for line in steps) > 0
    for name in ("figures.jsonl", "run.png", "run.html"):
        assert (tmp_path / "run" / name).stat().st_size > 0
