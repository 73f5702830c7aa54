"""Fixed order: a run over regions with crashes, rollbacks and cut connections ends with the bits of a calm one."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sync_runtime import Publisher, Work
from sync_runtime.library.work import WorkResult
from sync_runtime.library.worker import Task
from tests.component.work import crew
from tests.component.work.crew import ASIA, EU, groups, working
from tests.support.groups import TRAINER
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)
STEPS, GROUPS = 6, 5


def answer(task: Task) -> None:
    """Depends on the group and on every bit of the weights, and on nothing else."""
    task.complete(hashlib.sha256(task.payload + task.version.digest.encode()).digest(), tokens=10)


@pytest.fixture(autouse=True)
def _deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "do", answer)


class Run:
    """A trainer with a checkpoint after every step."""

    def __init__(self, group: InsideGroup) -> None:
        self.group = group
        self.model = small_model()
        self.step = 0
        self.checkpoints: list[str] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.trained_on: dict[int, list[str]] = {}

    def go(self, until: int, crash_after: int | None = None) -> None:
        """Trains; `crash_after` results of the last step the process is gone."""
        socket = self.group.socket("trainer-0")
        with Publisher(self.model, socket=socket) as publisher, Work(socket=socket, order="fixed") as work:
            if self.checkpoints:
                work.load_state_dict(json.loads(self.checkpoints[-1]))
            while self.step < until:
                work.submit(groups(*(f"{self.step}-{at}" for at in range(GROUPS))))
                batch: list[WorkResult] = []
                for result in work.results(timeout=30):
                    batch.append(result)
                    if self.step == until - 1 and len(batch) == crash_after:
                        return
                self.learn(batch)
                publisher.publish(step=self.step)
                work.commit()
                self.checkpoint(work.state_dict())

    def learn(self, batch: list[WorkResult]) -> None:
        self.trained_on[self.step] = [one.id for one in batch]
        digest = hashlib.sha256(b"".join(one.payload for one in batch)).digest()
        nudge(self.model, int.from_bytes(digest[:4], "little"))
        self.step += 1

    def checkpoint(self, state: dict[str, Any]) -> None:
        self.checkpoints.append(json.dumps(state))
        self.weights.append(copy.deepcopy(self.model.state_dict()))

    def roll_back(self, to_step: int) -> None:
        """As a new process that loads an older checkpoint."""
        del self.checkpoints[to_step:], self.weights[to_step:]
        self.model, self.step = small_model(), to_step
        self.model.load_state_dict(self.weights[-1])


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[InsideGroup]]:
    """Two groups that know nothing of each other."""
    # Not of the test's own folder: that has a long name, and those of sockets may not be.
    calm, stormy = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("stormy")
    settings: dict[str, Any] = {"ringBytes": 1 << 20, "maxStaleness": 2}
    with (
        InsideGroup(calm, [TRAINER, EU], **settings) as first,
        InsideGroup(stormy, [TRAINER, EU, ASIA], **settings) as second,
    ):
        first.start_all()
        second.start_all()
        yield [first, second]


def test_crashes_rollbacks_and_cuts_change_no_bit(made: list[InsideGroup]) -> None:
    calm, stormy = Run(made[0]), Run(made[1])
    with working(made[0], "eu-0"):
        calm.go(STEPS)
    group = made[1]
    with working(group, "eu-0", "asia-0"):
        stormy.go(2)
        group.call(lambda: group.sidecars["eu-0"].role.work.dialler.link.close("Renewed", "cut"))  # type: ignore[union-attr]
        stormy.go(4, crash_after=2)
        group.stop("asia-0")
        stormy.roll_back(to_step=1)  # older than what was trained and published meanwhile
        stormy.go(3)
        group.start("asia-0")
        group.stop("trainer-0")
        group.start("trainer-0")
        stormy.go(STEPS)
    assert stormy.trained_on == calm.trained_on
    assert same_bits(stormy.model, calm.model)
