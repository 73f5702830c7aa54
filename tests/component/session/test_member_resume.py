"""A sidecar that comes back asks only for what is missing; one that is told to stop does so at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from tests.support.deaths import VARIABLE
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-0", "eu", ("trainer-0",))
KEPT_BEFORE_DEATH = 4
STOP_S = 1.0
LOADED_S = 2.0
"""What a busy test machine may add."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    buckets = {"min": 65536, "max": 65536}
    with Group(tmp_path, [TRAINER, LEAF], ringBytes=1 << 22, bucketBytes=buckets) as made:
        yield made


def wide_model() -> torch.nn.Module:
    """Large enough for an object of many buckets."""
    torch.manual_seed(0)
    return torch.nn.Linear(1024, 1024).bfloat16()


def test_a_sidecar_that_died_in_the_middle_of_an_object_asks_for_the_rest_of_it(group: Group) -> None:
    group.start("trainer-0")
    group.environment = {VARIABLE: f"sync_runtime.bucket.receiver:ObjectReceiver.put:after:{KEPT_BEFORE_DEATH}"}
    group.start("eu-0")
    group.environment = {}
    trained, weights = wide_model(), wide_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-0"), timeout=30) as subscriber,
    ):
        nudge(trained, 0, share=0.5)
        version = publisher.publish(step=1)
        process = group.processes["eu-0"]
        wait_for(lambda: process.poll() is not None, what="its death")
        assert group.processes.pop("eu-0").wait(10) == -9
        group.start("eu-0")
        wait_for(lambda: subscriber.staged == version, what="the version")
        assert subscriber.activate() == version
        assert same_bits(weights, trained)
        (row,) = group.ask("eu-0", "/v1/versions")["objects"]
        (link,) = group.ask("trainer-0", "/v1/links")["links"]
        assert row["bytes"] > 8 * 65536
        # Buckets of 64 KiB, the last ones smaller: at least three whole ones were kept and not sent again.
        assert link["sentBytes"] <= row["bytes"] - (KEPT_BEFORE_DEATH - 1) * 65536
        assert link["repeatedBytes"] == 0


@pytest.mark.parametrize("name", ["trainer-0", "eu-0"])
def test_a_sidecar_that_is_told_to_stop_does_so_at_once(group: Group, name: str) -> None:
    group.start_all()
    trained, weights = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket("trainer-0"))
    subscriber = Subscriber(weights, socket=group.socket("eu-0"))
    try:
        nudge(trained, 0)
        follow(subscriber, publisher.publish().seq)
        began_s = time.monotonic()
        assert group.stop(name) == 0
        assert time.monotonic() - began_s < STOP_S + LOADED_S
    finally:
        publisher.close()
        subscriber.close()
