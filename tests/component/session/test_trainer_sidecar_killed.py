"""kill -9 of the trainer's sidecar at every stage of a version: nothing half made stays, and its lineage goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SidecarLostError
from tests.support.deaths import VARIABLE
from tests.support.following import activated, follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-0", "eu", ("trainer-0",))
STAGES = {
    "while the state is copied": "sync_runtime.session.publish.writing:Writing.take:before:2",
    "while blocks are compared": "sync_runtime.offline.staging:Comparison.sparse:before:1",
    "before the first bucket is kept": "sync_runtime.bucket.writer:ObjectWriter._keep_one:before:1",
    "after the first bucket": "sync_runtime.bucket.writer:ObjectWriter._keep_one:after:1",
    "before the commit": "sync_runtime.bucket.writer:ObjectWriter.commit:before:1",
    "in the commit": "sync_runtime.bucket.writer:commit_object:before:1",
    "after the commit": "sync_runtime.bucket.writer:ObjectWriter.commit:after:1",
    "after children were told": "sync_runtime.session.relay:Distributor.completed:after:1",
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        yield made


@pytest.mark.parametrize("stage", STAGES)
def test_a_sidecar_that_dies_loses_nothing_and_its_lineage_goes_on(group: Group, stage: str) -> None:
    group.environment = {VARIABLE: STAGES[stage]}
    group.start("trainer-0")
    group.environment = {}
    group.start("eu-0")
    trained, member = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket("trainer-0"), patience=30)
    with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
        opened = publisher.version
        nudge(trained, 0)
        with pytest.raises(SidecarLostError):
            publisher.publish(step=1)
        assert group.processes.pop("trainer-0").wait(10) == -9
        group.start("trainer-0")
        nudge(trained, 1)  # training went on meanwhile
        version = publisher.publish(step=2)
        assert opened is not None
        assert version.lineage == opened.lineage
        follow(subscriber, version.seq)
        assert subscriber.version == version
        assert same_bits(member, trained)
        assert subscriber.scrub()
    publisher.close()
    wait_for(lambda: _leftovers(group) == [], what="the end of what is tidied up beside")


def test_a_publisher_with_other_weights_than_the_mirror_opens_with_them(group: Group) -> None:
    """The predecessor's mirror is gone: the library is told so and opens with its weights at the next publish."""
    group.start("trainer-0", "eu-0")
    trained, member = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket("trainer-0"), patience=30)
    with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
        nudge(trained, 0)
        first = publisher.publish(step=1)
        follow(subscriber, first.seq)
        group.kill("trainer-0")
        for path in (group.folder / "state/trainer-0/spool/mirror").iterdir():
            path.unlink()
        group.start("trainer-0")
        nudge(trained, 1)
        version = publisher.publish(step=2)
        assert version.lineage != first.lineage
        wait_for(lambda: activated(subscriber) == version, 30, what="the new lineage")
        assert same_bits(member, trained)
    publisher.close()


def _leftovers(group: Group) -> list[str]:
    """Files of the trainer's spool that belong to no committed object, and mirrors beside the one in use."""
    spool = group.folder / "state/trainer-0/spool"
    keys = {row["key"] for row in group.ask("trainer-0", "/v1/versions")["objects"]}
    names = sorted(path.name for path in (spool / "objects").iterdir())
    odd = [name for name in names if len(names) != 2 * len(keys)]
    mirrors = sorted(path.name for path in (spool / "mirror").iterdir())
    return [*odd, *mirrors[1:]]
