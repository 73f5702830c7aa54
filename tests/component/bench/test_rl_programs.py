"""The trainer and the workers of the RL benchmark at sidecars inside the test's process: no regions, no emulator."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench import rl_trainer, rl_worker
from tests.support.groups import TRAINER, Member
from tests.support.inside import InsideGroup

pytestmark = pytest.mark.timeout(120)

SIZE_BYTES = 100_000
GROUPS, TOKENS, STEPS = 6, 30, 4
SPEEDS = {"rollout-b": 600.0, "rollout-c": 300.0}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    members = [Member(name, name[-1], ("trainer-0",)) for name in SPEEDS]
    with InsideGroup(tmp_path, [TRAINER, *members], ringBytes=1 << 20, maxStaleness=1) as made:
        made.start_all()
        yield made


@contextmanager
def workers(group: InsideGroup) -> Iterator[None]:
    stop = threading.Event()
    configs = [
        {"member": name, "size_bytes": SIZE_BYTES, "tokens_per_s": speed, "socket": group.socket(name)}
        for name, speed in SPEEDS.items()
    ]
    threads = [threading.Thread(target=rl_worker.run, args=(config, stop), name="worker") for config in configs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


def test_steps_come_with_all_their_groups_and_publish_a_version_each(
    group: InsideGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "size_bytes": SIZE_BYTES,
        "socket": group.socket("trainer-0"),
        "groups_per_step": GROUPS,
        "group_tokens": TOKENS,
        "ahead_steps": 2,
        "total_steps": STEPS,
        "train_s": 0.05,
    }
    with workers(group):
        rl_trainer.run(config, lambda: True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    started = [line for line in lines if "started" in line]
    assert [sum(line["tokens"].values()) for line in started] == [
        GROUPS * TOKENS * step for step in range(1, STEPS + 1)
    ]
    assert set(started[-1]["tokens"]) == set(SPEEDS), "both workers did something"
    assert [len(line["lags"]) for line in started] == [GROUPS] * STEPS
    assert all(0 <= lag <= 2 for line in started for lag in line["lags"])
    assert len([line for line in lines if "published" in line]) == STEPS
    assert not [line for line in lines if "refused" in line]


def test_a_trainer_that_is_not_told_to_start_ends(group: InsideGroup, capsys: pytest.CaptureFixture[str]) -> None:
    rl_trainer.run({"size_bytes": SIZE_BYTES, "socket": group.socket("trainer-0")}, lambda: "")
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert line["ready"]
    assert line["size_bytes"] == pytest.approx(SIZE_BYTES, rel=0.05)
