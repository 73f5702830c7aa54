"""Trainer to members over real sidecars, sockets and TLS: every digest equals the trainer's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from tests.support.following import follow, heard_of
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 22) as made:
        yield made


def test_versions_reach_a_relay_and_the_member_behind_it(group: Group) -> None:
    group.start_all()
    trained, near, far = small_model(), small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with (
            Subscriber(near, socket=group.socket("eu-0")) as first,
            Subscriber(far, socket=group.socket("eu-1")) as last,
        ):
            for step in range(1, 5):
                nudge(trained, step)
                version = publisher.publish(step=step)
                for subscriber, model in ((first, near), (last, far)):
                    follow(subscriber, version.seq)
                    assert subscriber.version == version
                    assert same_bits(model, trained)
            assert last.scrub()
    sent = {link["peer"]: link for link in group.ask("trainer-0", "/v1/links")["links"]}
    assert set(sent) == {"eu-0"}  # the region received every byte once


def test_a_member_that_was_away_gets_one_merged_object(group: Group) -> None:
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
        heard_of(group, "eu-0", version.seq)  # otherwise the relay takes an older version for the newest
        group.start("eu-1")
        with Subscriber(behind, socket=group.socket("eu-1")) as subscriber:
            follow(subscriber, version.seq)
            assert same_bits(behind, trained)
    keys = [row["key"].partition("/")[2] for row in group.ask("eu-1", "/v1/versions")["objects"]]
    assert "1-6.fast" in keys


def test_a_member_with_other_weights_is_sent_whole_ones(group: Group) -> None:
    group.start_all()
    trained, stranger = small_model(), small_model(seed=99)
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        nudge(trained, 0)
        version = publisher.publish()
        with Subscriber(stranger, socket=group.socket("eu-1")) as subscriber:
            assert subscriber.version is None
            follow(subscriber, version.seq)
            assert same_bits(stranger, trained)
            nudge(trained, 1)
            follow(subscriber, publisher.publish().seq)
            assert same_bits(stranger, trained)


def test_a_trainer_that_restarts_at_its_newest_version_continues_the_lineage(group: Group) -> None:
    group.start("trainer-0")
    model = small_model()
    with Publisher(model, socket=group.socket("trainer-0")) as publisher:
        nudge(model, 0)
        before = publisher.publish()
    group.kill("trainer-0")
    group.start("trainer-0")
    with Publisher(model, socket=group.socket("trainer-0")) as publisher:
        assert publisher.version is not None
        assert (publisher.version.lineage, publisher.version.seq) == (before.lineage, before.seq)
        nudge(model, 1)
        assert publisher.publish().seq == before.seq + 1


def test_a_trainer_that_goes_back_to_an_older_checkpoint_starts_a_lineage_that_members_follow(group: Group) -> None:
    group.start_all()
    model, member = small_model(), small_model()
    with Subscriber(member, socket=group.socket("eu-1")) as subscriber:
        with Publisher(model, socket=group.socket("trainer-0")) as publisher:
            nudge(model, 0)
            publisher.publish()
            checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
            for step in (1, 2):
                nudge(model, step)
                newest = publisher.publish()
            follow(subscriber, newest.seq)
        model.load_state_dict(checkpoint)
        with Publisher(model, socket=group.socket("trainer-0")) as publisher:
            assert publisher.version is not None
            assert publisher.version.lineage != newest.lineage
            nudge(model, 7)
            forked = publisher.publish()

            def there() -> bool:
                subscriber.wait(timeout=0.5)
                subscriber.activate()
                return subscriber.version == forked

            wait_for(there, 30, what="the new lineage")
            assert same_bits(member, model)


def test_a_failed_scrub_repairs_what_differs(group: Group) -> None:
    group.start_all()
    model, member = small_model(), small_model()
    with Publisher(model, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            nudge(model, 0)
            follow(subscriber, publisher.publish().seq)
            with torch.no_grad():
                next(iter(member.parameters()))[3, 4] += 1  # a fault in memory
            assert not subscriber.scrub()
            assert subscriber.poisoned
            wait_for(lambda: subscriber.staged is not None, what="the repair")
            subscriber.activate()
            assert same_bits(member, model)
            assert subscriber.scrub()
