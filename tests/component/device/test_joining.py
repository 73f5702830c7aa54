"""Weights that only libraries have: joiners of unknown weights and stragglers get whole ones through real sidecars."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.library import device_publish
from sync_runtime.library.device_anchors import anchor_chunks
from sync_runtime.local.link import LibraryLink
from sync_runtime.session.publish import anchors
from sync_runtime.session.publish.asking import Answer, Asking
from sync_runtime.tensors.blocks import BlockMap
from sync_runtime.tensors.places import Places
from tests.support.children import REPOSITORY
from tests.support.deaths import VARIABLE
from tests.support.device_models import same_state, tiny_state, train
from tests.support.following import follow, heard_of
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
CODER: Final = "library"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as made:
        yield made


def anchors_of(group: InsideGroup, name: str) -> list[str]:
    keys = [row["key"].partition("/")[2] for row in group.ask(name, "/v1/versions")["objects"]]
    return [key for key in keys if key.startswith("anchor")]


def pause_after_the_first_block(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Every batch is one block; the first event tells that one is out, the second lets the others follow."""
    first_is_out, go_on = threading.Event(), threading.Event()
    original = Asking.fetch

    async def fetch_slowly(self: Asking, library: LibraryLink, blocks: BlockMap, numbers: Sequence[int]) -> Answer:
        answer = await original(self, library, blocks, numbers)
        if not first_is_out.is_set():
            first_is_out.set()
            await asyncio.to_thread(go_on.wait, 30)
        return answer

    monkeypatch.setattr(anchors, "BATCH_BYTES", 1)
    monkeypatch.setattr(Asking, "fetch", fetch_slowly)
    return first_is_out, go_on


def test_a_joiner_of_unknown_weights_becomes_bit_identical(group: InsideGroup) -> None:
    group.start_all()
    weights, stranger = tiny_state(), tiny_state(9)
    with Publisher(weights, socket=group.socket("trainer-0"), coder=CODER) as publisher:
        train(weights, 1)
        publisher.publish(step=1)
        heard_of(group, "eu-0", 1)  # otherwise the relay asks for the whole weights of version 0
        with Subscriber(stranger, socket=group.socket("eu-1"), coder=CODER) as subscriber:
            follow(subscriber, 1)
            assert same_state(stranger, weights)
            train(weights, 2)
            follow(subscriber, publisher.publish(step=2).seq)
            assert same_state(stranger, weights)
            assert subscriber.scrub()
    assert anchors_of(group, "trainer-0") == anchors_of(group, "eu-0") == anchors_of(group, "eu-1") == ["anchor-1"]


def test_members_with_and_without_a_gpu_join_the_same_trainer(group: InsideGroup) -> None:
    group.start_all()
    weights, strangers = tiny_state(), (tiny_state(8), tiny_state(9))
    with Publisher(weights, socket=group.socket("trainer-0"), coder=CODER) as publisher:
        train(weights, 1)
        publisher.publish(step=1)
        with (
            Subscriber(strangers[0], socket=group.socket("eu-0"), coder="sidecar") as one,
            Subscriber(strangers[1], socket=group.socket("eu-1"), coder=CODER) as other,
        ):
            follow(one, 1)
            follow(other, 1)
            assert same_state(strangers[0], weights)
            assert same_state(strangers[1], weights)


def test_a_member_with_a_gpu_joins_a_trainer_without_one(group: InsideGroup) -> None:
    group.start_all()
    weights, stranger = tiny_state(), tiny_state(9)
    with Publisher(weights, socket=group.socket("trainer-0"), coder="sidecar") as publisher:
        train(weights, 1)
        publisher.publish(step=1)
        with Subscriber(stranger, socket=group.socket("eu-1"), coder=CODER) as subscriber:
            follow(subscriber, 1)
            assert same_state(stranger, weights)


def test_blocks_of_a_later_version_are_brought_back_to_the_one_that_is_made(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.start("trainer-0", "eu-0")
    first_is_out, go_on = pause_after_the_first_block(monkeypatch)
    weights, stranger = tiny_state(), tiny_state(9)
    with Publisher(weights, socket=group.socket("trainer-0"), coder=CODER) as publisher:
        train(weights, 1)
        publisher.publish(step=1)
        with Subscriber(stranger, socket=group.socket("eu-0"), coder=CODER) as subscriber:
            assert first_is_out.wait(30)
            for step in (2, 3):
                train(weights, step)
                publisher.publish(step=step)
            go_on.set()
            follow(subscriber, 3)
            assert same_state(stranger, weights)
    assert anchors_of(group, "eu-0") == ["anchor-1"]


def test_a_publisher_that_closes_still_gives_its_blocks_to_whoever_waits(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.start("trainer-0", "eu-0")
    first_is_out, go_on = pause_after_the_first_block(monkeypatch)
    weights, stranger = tiny_state(), tiny_state(9)
    with Subscriber(stranger, socket=group.socket("eu-0"), coder=CODER) as subscriber:
        publisher = Publisher(weights, socket=group.socket("trainer-0"), coder=CODER)
        assert first_is_out.wait(30)
        threading.Timer(0.2, go_on.set).start()
        assert publisher.close(drain=20)
        follow(subscriber, 0)
        assert same_state(stranger, weights)


def test_a_library_that_dies_in_the_middle_of_blocks_leaves_nothing_and_its_successor_serves(
    group: InsideGroup,
) -> None:
    group.start("trainer-0", "eu-0")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        VARIABLE: "sync_runtime.library.device_anchors:block_bits:after:2",
    }
    command = [sys.executable, "-m", "tests.support.device_trainer_program", group.socket("trainer-0")]
    trainer = subprocess.Popen(command, cwd=REPOSITORY, env=environment)
    try:
        stranger = tiny_state(9)
        with Subscriber(stranger, socket=group.socket("eu-0"), coder=CODER) as subscriber:
            assert trainer.wait(60) == -signal.SIGKILL
            assert anchors_of(group, "trainer-0") == []
            spool = group.folder / "state/trainer-0/spool/objects"
            wait_for(lambda: not list(spool.glob("*anchor*")), what="an empty spool")
            assert subscriber.version is None
            weights = tiny_state()
            train(weights, 1)  # what it had published, as its checkpoint has it
            with Publisher(weights, socket=group.socket("trainer-0"), coder=CODER) as publisher:
                assert publisher.version is not None
                assert publisher.version.seq == 1
                follow(subscriber, 1)
                assert same_state(stranger, weights)
    finally:
        if trainer.poll() is None:
            trainer.kill()
            trainer.wait()


@pytest.mark.parametrize("wrong", ["other blocks", "other bits", "too few", "too many"])
def test_blocks_that_are_not_what_was_asked_for_are_never_served(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    group.start("trainer-0", "eu-0")
    weights, stranger = tiny_state(), tiny_state(9)
    lies = [0]

    def lying(
        blocks: BlockMap, state: Mapping[str, torch.Tensor], *, seq: int, numbers: list[int], places: Places
    ) -> Iterable[memoryview]:
        if lies[0] >= 2:
            return anchor_chunks(blocks, state, seq=seq, numbers=numbers, places=places)
        lies[0] += 1
        if wrong == "other bits":
            state = {**state, "w": state["w"] + 1}
            return anchor_chunks(blocks, state, seq=seq, numbers=numbers, places=places)
        if wrong == "other blocks":
            return anchor_chunks(blocks, state, seq=seq, numbers=[0] * len(numbers), places=places)
        made = list(anchor_chunks(blocks, state, seq=seq, numbers=numbers, places=places))
        return made[:-1] if wrong == "too few" else [*made, *made, *made]

    monkeypatch.setattr(device_publish, "anchor_chunks", lying)
    with Publisher(weights, socket=group.socket("trainer-0"), coder=CODER) as publisher:
        train(weights, 1)
        publisher.publish(step=1)
        with Subscriber(stranger, socket=group.socket("eu-0"), coder=CODER) as subscriber:
            wait_for(lambda: lies[0] >= 1, what="a lie")
            train(weights, 2)
            publisher.publish(step=2)  # the publisher goes on meanwhile
            follow(subscriber, 2)
            assert lies[0] == 2
            assert same_state(stranger, weights)
            assert subscriber.scrub()
            assert "is gone" not in caplog.text  # nobody had to hang up for it


def test_a_straggler_beyond_retention_is_out_of_service_until_whole_weights_are_there(tmp_path: Path) -> None:
    settings = {"ringBytes": 1 << 20, "retention": {"versions": 2}}
    with InsideGroup(tmp_path, [TRAINER, RELAY], **settings) as group:
        group.start("trainer-0", "eu-0")
        trained, weights = tiny_state(), tiny_state()
        with Publisher(trained, socket=group.socket("trainer-0"), coder=CODER) as publisher:
            with Subscriber(weights, socket=group.socket("eu-0"), coder=CODER) as subscriber:
                train(trained, 1)
                follow(subscriber, publisher.publish().seq)
            group.stop("eu-0")
            for step in range(2, 8):
                train(trained, step)
                version = publisher.publish(step=step)
            group.run(group.sidecars["trainer-0"].retain())
            group.start("eu-0")
            with Subscriber(weights, socket=group.socket("eu-0"), coder=CODER) as subscriber:
                follow(subscriber, version.seq)
                assert same_state(weights, trained)
                assert subscriber.scrub()
        assert anchors_of(group, "eu-0") == [f"anchor-{version.seq}"]
