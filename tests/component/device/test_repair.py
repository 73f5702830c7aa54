"""A bent weight on a member whose library codes: the scrub finds it, and only its block travels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import parse_key
from sync_runtime.local.messages import Coder
from sync_runtime.session import scrub
from tests.support.device_models import same_state, tiny_state, train
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
CODER: Final = "library"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def repairs_of(group: InsideGroup, name: str) -> list[int]:
    """How many blocks each repair had that a member received."""
    stored = group.sidecars[name].spool.objects()
    return [one.manifest.num_blocks for one in stored if one.key.is_anchor and one.key.part is not None]


def whole_of(group: InsideGroup, name: str) -> list[str]:
    keys = [parse_key(row["key"]) for row in group.ask(name, "/v1/versions")["objects"]]
    return [key.text for key in keys if key.is_anchor and key.part is None]


def bend(weights: dict[str, torch.Tensor], name: str = "w") -> None:
    weights[name].view(torch.int16).view(-1)[5] ^= 64


def mended(subscriber: Subscriber) -> bool:
    """Activates what is staged, and looks again."""
    subscriber.activate()
    return subscriber.staged is None and not subscriber.poisoned and subscriber.scrub()


@pytest.mark.parametrize("trainer_coder", ["library", "sidecar"])
def test_only_the_block_of_a_bent_weight_travels(group: InsideGroup, trainer_coder: Coder) -> None:
    trained, weights = tiny_state(), tiny_state()
    with (
        Publisher(trained, socket=group.socket("trainer-0"), coder=trainer_coder) as publisher,
        Subscriber(weights, socket=group.socket("eu-1"), coder=CODER) as subscriber,
    ):
        train(trained, 1)
        follow(subscriber, publisher.publish(step=1).seq)
        bend(weights)
        assert not subscriber.scrub()
        wait_for(lambda: mended(subscriber), what="a repair")
        assert same_state(weights, trained)
        assert repairs_of(group, "eu-1") == repairs_of(group, "eu-0") == [1]
        assert whole_of(group, "eu-1") == []
        train(trained, 2)
        follow(subscriber, publisher.publish(step=2).seq)
        assert same_state(weights, trained)
        assert subscriber.scrub()


def test_a_second_bent_weight_brings_its_own_block_alone(group: InsideGroup) -> None:
    """The library's books are right again after a repair."""
    trained, weights = tiny_state(), tiny_state()
    with (
        Publisher(trained, socket=group.socket("trainer-0"), coder=CODER) as publisher,
        Subscriber(weights, socket=group.socket("eu-1"), coder=CODER) as subscriber,
    ):
        train(trained, 1)
        follow(subscriber, publisher.publish(step=1).seq)
        for name in ("w", "b"):
            bend(weights, name)
            assert not subscriber.scrub()
            wait_for(lambda: mended(subscriber), what="a repair")
            assert same_state(weights, trained)
        assert repairs_of(group, "eu-1") == [1, 1]
        assert whole_of(group, "eu-1") == []


def test_a_block_that_a_relay_has_is_served_by_it_alone(group: InsideGroup) -> None:
    trained, near, far = tiny_state(), tiny_state(), tiny_state()
    with (
        Subscriber(near, socket=group.socket("eu-0"), coder=CODER) as relay,
        Subscriber(far, socket=group.socket("eu-1"), coder=CODER) as leaf,
    ):
        with Publisher(trained, socket=group.socket("trainer-0"), coder=CODER) as publisher:
            train(trained, 1)
            publisher.publish(step=1)
            follow(relay, 1)
            follow(leaf, 1)
            bend(near)
            assert not relay.scrub()
            wait_for(lambda: mended(relay), what="the relay's repair")
        group.stop("trainer-0")
        bend(far)
        assert not leaf.scrub()
        wait_for(lambda: mended(leaf), what="the leaf's repair")
        assert same_state(near, trained)
        assert same_state(far, trained)


def test_versions_that_come_while_a_block_is_wrong_are_staged_over_its_repair(group: InsideGroup) -> None:
    trained, weights = tiny_state(), tiny_state()
    with (
        Publisher(trained, socket=group.socket("trainer-0"), coder=CODER) as publisher,
        Subscriber(weights, socket=group.socket("eu-1"), coder=CODER) as subscriber,
    ):
        train(trained, 1)
        follow(subscriber, publisher.publish(step=1).seq)
        bend(weights)
        assert not subscriber.scrub()
        for step in (2, 3, 4):  # the trainer's snapshot is past the member's version when the block is asked for
            train(trained, step)
            version = publisher.publish(step=step)
        wait_for(lambda: subscriber.staged == version, what="the newest version")
        assert subscriber.activate() == version
        assert same_state(weights, trained)
        assert subscriber.scrub()
        assert not subscriber.poisoned
        assert repairs_of(group, "eu-1") == [1]
        assert whole_of(group, "eu-1") == []


def test_blocks_that_nobody_has_are_replaced_by_whole_weights(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "REPAIR_TRIES", 1)
    monkeypatch.setattr("sync_runtime.session.publish.anchors.repair_key", lambda *_: None)  # a maker that refuses all
    trained, weights = tiny_state(), tiny_state()
    with (
        Publisher(trained, socket=group.socket("trainer-0"), coder=CODER) as publisher,
        Subscriber(weights, socket=group.socket("eu-1"), coder=CODER) as subscriber,
    ):
        train(trained, 1)
        follow(subscriber, publisher.publish(step=1).seq)
        bend(weights)
        assert not subscriber.scrub()
        wait_for(lambda: subscriber.version is None, what="being out of service")
        follow(subscriber, 1)
        assert same_state(weights, trained)
        assert repairs_of(group, "eu-1") == []
        assert len(whole_of(group, "eu-1")) == 1
