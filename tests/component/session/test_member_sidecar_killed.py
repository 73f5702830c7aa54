"""kill -9 of a member's sidecar, and of a relay's, at every stage of a version: bits are right and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SyncError
from sync_runtime.library.version import Version
from tests.support.deaths import VARIABLE
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
STAGES = {
    "before a bucket is kept": "sync_runtime.bucket.receiver:ObjectReceiver.put:before:1",
    "after a bucket is kept": "sync_runtime.bucket.receiver:ObjectReceiver.put:after:1",
    "when the manifest is there": "sync_runtime.session.receive:verified:after:1",
    "before the commit": "sync_runtime.bucket.receiver:ObjectReceiver.commit:before:1",
    "after the commit": "sync_runtime.bucket.receiver:ObjectReceiver.commit:after:1",
}
ENGINE_STAGES = {
    "before decoding": "sync_runtime.session.mirror.stages:Stages.stage:before:1",
    "when it is decoded": "sync_runtime.session.mirror.stages:Stages.stage:after:1",
    "before the list is handed over": "sync_runtime.session.stager:Stager.hand_over:before:1",
    "when it is staged": "sync_runtime.session.stager:Stager.answered:after:1",
    "before it gives leave": "sync_runtime.session.members:EngineSession._activate:before:1",
    "before the mirror advances": "sync_runtime.session.weights:EngineWeights.commit:before:1",
    "after the mirror advanced": "sync_runtime.session.weights:EngineWeights.commit:after:1",
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as made:
        yield made


def activates(subscriber: Subscriber) -> None:
    """Takes what is staged; errors must be of the kind after which trying again helps."""
    try:
        subscriber.wait(timeout=0.2)
        subscriber.activate()
    except SyncError as error:
        if not error.retry_helps:
            raise


def reaches(subscriber: Subscriber, version: Version) -> None:
    """Activates until a version is live, over deaths of the sidecar."""

    def there() -> bool:
        activates(subscriber)
        return subscriber.version == version

    wait_for(there, 30, what=f"version {version.seq}")


def deadly(group: Group, name: str, stage: str) -> None:
    """Starts a sidecar that will die at a stage."""
    group.environment = {VARIABLE: (STAGES | ENGINE_STAGES)[stage]}
    group.start(name)
    group.environment = {}


def dies(group: Group, name: str) -> None:
    """Waits for its death."""
    process = group.processes[name]
    wait_for(lambda: process.poll() is not None, 20, what=f"the death of {name}")
    assert group.processes.pop(name).wait(10) == -9


@pytest.mark.parametrize("stage", STAGES | ENGINE_STAGES)
def test_a_member_whose_sidecar_dies_goes_on_where_its_digest_says(group: Group, stage: str) -> None:
    group.start("trainer-0")
    deadly(group, "eu-1", stage)
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-1")) as subscriber,
    ):
        nudge(trained, 0)
        publisher.publish(step=1)
        process = group.processes["eu-1"]

        def dead() -> bool:
            activates(subscriber)
            return process.poll() is not None

        wait_for(dead, 20, what="its death")
        dies(group, "eu-1")
        assert same_bits(weights, trained) or same_bits(weights, small_model())  # one version or the other, no mixture
        group.start("eu-1")
        nudge(trained, 1)
        reaches(subscriber, publisher.publish(step=2))
        assert same_bits(weights, trained)
        assert subscriber.scrub()


@pytest.mark.parametrize("stage", STAGES)
def test_a_leaf_whose_relay_dies_gets_its_version_from_the_trainer(group: Group, stage: str) -> None:
    group.start("trainer-0")
    deadly(group, "eu-0", stage)
    group.start("eu-1")
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-1")) as subscriber,
    ):
        wait_for(lambda: group.ask("eu-1", "/v1/status")["report"]["parent"] == "eu-0", what="its relay")
        nudge(trained, 0)
        version = publisher.publish(step=1)
        dies(group, "eu-0")
        reaches(subscriber, version)
        assert same_bits(weights, trained)
        assert group.ask("eu-1", "/v1/status")["report"]["parent"] == "trainer-0"
        group.start("eu-0")
        nudge(trained, 1)
        reaches(subscriber, publisher.publish(step=2))
        assert same_bits(weights, trained)
