"""A scrub that the plan asks for by a number: every member compares its weights once more and reports that number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)

EU = Member("eu-0", "eu", ("trainer-0",), relay=True)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, EU], ringBytes=1 << 20) as made:
        made.start("trainer-0", "eu-0")
        yield made


def request(group: InsideGroup, number: int, revision: int) -> None:
    """A new plan asks for it."""
    lines = [line for line in group.config.read_text().splitlines() if not line.startswith(("scrubReq", "revision"))]
    group.config.write_text("\n".join([f"scrubRequest = {number}", f"revision = {revision}", *lines]) + "\n")
    group.call(group.sidecars["eu-0"].reload)


def answer(group: InsideGroup) -> Any:
    return group.ask("eu-0", "/v1/status")["report"].get("scrubAnswer")


def test_a_requested_scrub_is_done_without_a_word_of_the_users_program(group: InsideGroup) -> None:
    model, member = small_model(), small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Subscriber(member, socket=group.socket("eu-0")) as subscriber,
    ):
        nudge(model, 0)
        follow(subscriber, publisher.publish().seq)
        assert answer(group) is None
        request(group, 1, 2)
        wait_for(lambda: answer(group) == {"request": 1, "result": "Passed"}, what="the answer")
        request(group, 2, 3)
        wait_for(lambda: answer(group) == {"request": 2, "result": "Passed"}, what="the second answer")


def test_a_requested_scrub_finds_a_fault_and_what_is_mended_later_does_not_change_the_answer(
    group: InsideGroup,
) -> None:
    model, member = small_model(), small_model()
    with (
        Publisher(model, socket=group.socket("trainer-0")) as publisher,
        Subscriber(member, socket=group.socket("eu-0")) as subscriber,
    ):
        nudge(model, 0)
        follow(subscriber, publisher.publish().seq)
        with torch.no_grad():
            next(iter(member.parameters()))[3, 4] += 1  # a fault in memory
        request(group, 1, 2)
        wait_for(lambda: answer(group) == {"request": 1, "result": "Failed"}, what="the answer")
        wait_for(lambda: subscriber.staged is not None, what="the repair")
        subscriber.activate()
        assert same_bits(member, model)
        assert subscriber.scrub()
        assert answer(group) == {"request": 1, "result": "Failed"}


def test_an_engine_that_opens_after_the_request_answers_it_by_opening(group: InsideGroup) -> None:
    request(group, 3, 2)
    with (
        Publisher(small_model(), socket=group.socket("trainer-0")),
        Subscriber(small_model(), socket=group.socket("eu-0")),
    ):
        wait_for(lambda: answer(group) == {"request": 3, "result": "Passed"}, what="the answer")
