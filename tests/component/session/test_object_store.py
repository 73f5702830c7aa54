"""Trainer to members through an object store, over real sidecars: every digest equals the trainer's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    store = {"url": f"file://{tmp_path}/store", "prefix": "weights"}
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 22, objectStore=store) as made:
        yield made


def test_versions_pass_through_a_store_to_a_relay_and_the_member_behind_it(group: Group) -> None:
    group.start_all()
    trained, near, far = small_model(), small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with (
            Subscriber(near, socket=group.socket("eu-0")) as first,
            Subscriber(far, socket=group.socket("eu-1")) as last,
        ):
            for step in range(1, 4):
                nudge(trained, step)
                version = publisher.publish(step=step)
                for subscriber, model in ((first, near), (last, far)):
                    follow(subscriber, version.seq)
                    assert subscriber.version is not None
                    assert subscriber.version.digest == version.digest
                    assert same_bits(model, trained)
            assert last.scrub()
    assert group.ask("trainer-0", "/v1/links")["links"] == []  # nobody dialled the trainer for weights
    assert group.ask("eu-0", "/v1/status")["report"]["parent"] == "object-store"


def test_a_member_behind_a_relay_that_was_away_catches_up_from_what_the_relay_has(group: Group) -> None:
    group.start_all()
    trained, behind = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(behind, socket=group.socket("eu-1")) as subscriber:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
        group.kill("eu-1")
        for step in range(1, 6):
            nudge(trained, step)
            version = publisher.publish(step=step)
        group.start("eu-1")
        with Subscriber(behind, socket=group.socket("eu-1")) as subscriber:
            follow(subscriber, version.seq)
            assert same_bits(behind, trained)


def test_a_member_with_other_weights_finds_whole_ones_in_the_store(group: Group) -> None:
    group.start_all()
    trained, stranger = small_model(), small_model(seed=99)
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        version = publisher.publish()
        with Subscriber(stranger, socket=group.socket("eu-0")) as subscriber:
            follow(subscriber, version.seq)
            assert same_bits(stranger, trained)


def test_a_trainer_that_starts_again_goes_on_in_the_store(group: Group) -> None:
    group.start_all()
    trained, near = small_model(), small_model()
    with Subscriber(near, socket=group.socket("eu-0")) as subscriber:
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
        group.kill("trainer-0")
        group.start("trainer-0")
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            nudge(trained, 1)
            version = publisher.publish()
            follow(subscriber, version.seq)
            assert subscriber.version is not None
            assert subscriber.version.digest == version.digest
            assert same_bits(near, trained)
