"""The RL benchmark in small: real processes over the emulator, so that what `make bench-rl` runs is known to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.rl_lab import Wan, plain_transfers, wan_of
from tests.bench.rl_replay import Replay, Sizes
from tests.bench.rl_syncgroup import run_loop
from tools.errors import HostError

pytestmark = [pytest.mark.bubble, pytest.mark.timeout(300)]

RATE_BPS = 100_000_000
SIZE_BYTES = 1_000_000
REPLAY = Replay(
    Sizes(SIZE_BYTES, SIZE_BYTES, SIZE_BYTES, SIZE_BYTES),
    step_s=2.0,
    train_s=1.0,
    tokens_per_s=1000.0,
    steps=2,
    regions=2,
    groups_per_step=8,
)


@pytest.fixture(scope="module")
def wan() -> Iterator[Wan]:
    try:
        made = wan_of(REPLAY.regions, RATE_BPS)
        with made as wan:
            yield wan
    except HostError as error:
        pytest.skip(str(error))


def test_every_step_gets_its_groups_and_every_region_the_weights(wan: Wan) -> None:
    found = run_loop(wan, REPLAY, SIZE_BYTES, REPLAY.speeds())
    assert len(found.outcome.started_s) == REPLAY.total_steps
    tokens = REPLAY.group_tokens * REPLAY.groups_per_step
    assert [sum(done) for done in found.outcome.tokens] == [tokens * step for step in range(1, REPLAY.total_steps + 1)]
    assert found.outcome.step_s > 0.9 * REPLAY.step_s, "nobody samples faster than was recorded"
    assert found.account.sent_bytes > SIZE_BYTES * REPLAY.regions * (found.versions - 1)


def test_a_worker_that_is_killed_again_and_again_loses_no_group(wan: Wan) -> None:
    found = run_loop(wan, REPLAY, SIZE_BYTES, REPLAY.speeds(), kill_every_s=3.0)
    assert found.kills
    tokens = REPLAY.group_tokens * REPLAY.groups_per_step
    assert sum(found.outcome.tokens[-1]) == tokens * REPLAY.total_steps


def test_plain_payloads_to_all_regions_share_the_uplink(wan: Wan) -> None:
    found = plain_transfers(wan, 2, 2 * SIZE_BYTES, 2)
    least_s = 2 * SIZE_BYTES * REPLAY.regions * 8 / RATE_BPS
    assert all(max(seconds) > 0.9 * least_s for seconds in found.seconds)
    assert [len(seconds) for seconds in found.seconds] == [REPLAY.regions] * 2
