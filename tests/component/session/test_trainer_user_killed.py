"""kill -9 of the user's process at every stage of a version: what was not complete leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from tests.support.children import REPOSITORY
from tests.support.deaths import VARIABLE
from tests.support.following import activated, follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-0", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as made:
        made.start_all()
        yield made


def die(group: InsideGroup, moment: str, doing: str = "publish") -> None:
    """A trainer that is killed at this moment of its first publish, or of its opening."""
    command = [sys.executable, "-m", "tests.support.trainer_program", group.socket("trainer-0"), doing]
    environment = {**os.environ, VARIABLE: moment}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def listing(group: InsideGroup) -> list[str]:
    """The files of the trainer's spool, but for what was learned of links; of mirrors, named by lot, their number."""
    spool = group.folder / "state/trainer-0/spool"
    paths = [path for path in spool.rglob("*") if path.is_file() and path.name != "links.json"]
    files = [str(path.relative_to(spool)) for path in paths if path.parent.name != "mirror"]
    return [*sorted(files), f"{len(paths) - len(files)} mirrors"]


def left_as(group: InsideGroup, before: list[str]) -> None:
    """Waits until the spool is as it was."""
    end = time.monotonic() + 10
    while listing(group) != before and time.monotonic() < end:
        time.sleep(0.02)
    assert listing(group) == before


@pytest.mark.parametrize(
    "moment",
    [
        "sync_runtime.library.connection:Connection.stream:before:1",
        "sync_runtime.local.ring:RingWriter.put:before:3",
    ],
    ids=["before the state is copied", "while the state is copied"],
)
def test_a_version_whose_process_died_before_it_was_complete_leaves_nothing(group: InsideGroup, moment: str) -> None:
    trained, member = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        opened = publisher.version
    before = listing(group)
    die(group, moment)
    left_as(group, before)
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        assert publisher.version == opened  # the lineage goes on from the last durable version
        nudge(trained, 5)
        version = publisher.publish(step=1)
        assert opened is not None
        assert (version.lineage, version.seq) == (opened.lineage, opened.seq + 1)
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            follow(subscriber, version.seq)
            assert same_bits(member, trained)


def test_a_process_that_died_while_it_opened_leaves_nothing(group: InsideGroup) -> None:
    trained = small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        opened = publisher.version
    before = listing(group)
    die(group, "sync_runtime.local.ring:RingWriter.put:before:4", "open")
    left_as(group, before)
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        assert publisher.version == opened


@pytest.mark.parametrize(
    "moment",
    [
        "sync_runtime.library.connection:Connection.answer:before:1",
        "sync_runtime.library.copying:CopyPublisher.published:before:1",
    ],
    ids=["before the answer", "after the answer"],
)
def test_a_version_that_was_complete_becomes_durable_without_its_process(group: InsideGroup, moment: str) -> None:
    trained, member = small_model(), small_model()
    die(group, moment)
    nudge(trained, 0)  # the checkpoint after that step
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        assert publisher.version is not None
        assert (publisher.version.seq, publisher.version.step) == (1, 1)
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            follow(subscriber, 1)
            assert same_bits(member, trained)


def test_a_process_that_comes_back_with_the_checkpoint_before_begins_a_lineage_there(group: InsideGroup) -> None:
    trained, member = small_model(), small_model()
    die(group, "sync_runtime.library.copying:CopyPublisher.published:before:1")
    with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
        follow(subscriber, 1)
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            assert publisher.version is not None
            assert (publisher.version.seq, publisher.version.step) == (0, None)
            nudge(trained, 5)
            version = publisher.publish(step=1)
            wait_for(lambda: activated(subscriber) == version, 30, what="the new lineage")
            assert same_bits(member, trained)
