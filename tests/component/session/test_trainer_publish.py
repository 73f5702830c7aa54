"""What a trainer promises while it publishes: it waits for nobody, lets the last version out, keeps within limits."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import delta_key
from sync_runtime.errors import SyncError
from tests.support.following import activated, follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

LEAF = Member("eu-0", "eu", ("trainer-0",))
NEAR = Member("us-0", "us", ("trainer-0",))


def keys(group: Group, name: str) -> list[str]:
    """Objects in a member's spool, without their lineage."""
    return [row["key"].partition("/")[2] for row in group.ask(name, "/v1/versions")["objects"]]


def deltas(group: Group) -> list[str]:
    """Those of the trainer's objects that are deltas."""
    return [key for key in keys(group, "trainer-0") if key.endswith(".fast")]


def test_publish_and_close_wait_for_nobody_longer_than_they_are_told(tmp_path: Path) -> None:
    """A region that reads nothing: its sidecar is stopped in the middle of everything, its sockets stay open."""
    with Group(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as group:
        group.start_all()
        trained, member = small_model(), small_model()
        publisher = Publisher(trained, socket=group.socket("trainer-0"))
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
            os.kill(group.processes["eu-0"].pid, signal.SIGSTOP)
            began = time.monotonic()
            for step in range(1, 9):
                nudge(trained, step)
                version = publisher.publish(step=step)
            assert time.monotonic() - began < 10  # far below any time-out of a link
            began = time.monotonic()
            assert not publisher.close(drain=0.3)
            assert time.monotonic() - began < 5
            os.kill(group.processes["eu-0"].pid, signal.SIGCONT)
            follow(subscriber, version.seq)
            assert same_bits(member, trained)


def test_close_lets_the_last_version_out(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            publisher = Publisher(trained, socket=group.socket("trainer-0"))
            wait_for(lambda: subscriber.version is not None, what="the first version")
            nudge(trained, 0)
            publisher.publish()
            assert publisher.close(drain=20)
            group.stop("trainer-0")  # at once: nothing may be left to send
            follow(subscriber, 1)
            assert same_bits(member, trained)


def test_a_slow_link_gets_tight_objects_and_the_same_bits(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, codec="Tight") as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
                wait_for(lambda: subscriber.version is not None, what="the first version")
                for step in range(1, 5):
                    nudge(trained, step)
                    follow(subscriber, publisher.publish(step=step).seq)
                    assert same_bits(member, trained)
        made, received = keys(group, "trainer-0"), keys(group, "eu-0")
        assert {"0-1.fast", "0-1.tight"} <= set(made)
        assert "0-1.tight" in received
        assert "0-1.fast" not in received
        mirrors = group.folder / "state/trainer-0/spool/mirror"
        wait_for(lambda: len(list(mirrors.iterdir())) == 1, what="one mirror")


def test_a_tight_object_that_cannot_be_made_costs_only_its_bytes(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, codec="Tight") as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
                wait_for(lambda: subscriber.version is not None, what="the first version")
                assert publisher.version is not None
                spool = group.sidecars["trainer-0"].spool
                layout_hash = spool.lineages()[-1].layout_hash
                taken = spool.create(delta_key(publisher.version.lineage, 0, 1, "tight"), layout_hash, 1 << 18)
                for step in (1, 2):
                    nudge(trained, step)
                    follow(subscriber, publisher.publish(step=step).seq)
                    assert same_bits(member, trained)
                taken.abort()
        assert {"0-1.fast", "1-2.tight"} <= set(keys(group, "eu-0"))
        mirrors = group.folder / "state/trainer-0/spool/mirror"
        wait_for(lambda: len(list(mirrors.iterdir())) == 1, what="one mirror")


def test_a_trainer_has_one_publisher_at_a_time(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as group:
        group.start("trainer-0")
        model = small_model()
        for step in range(3):  # one after the other, at once
            with Publisher(model, socket=group.socket("trainer-0")) as publisher:
                with pytest.raises(SyncError, match="another publisher is connected"):
                    Publisher(small_model(), socket=group.socket("trainer-0"), timeout=2)
                nudge(model, step)
                assert publisher.publish(step=step).seq == step + 1


def test_history_stays_within_its_limits_and_a_straggler_gets_whole_weights(tmp_path: Path) -> None:
    limits = {"versions": 4, "bytes": 1 << 30}
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, retention=limits) as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
                nudge(trained, 0)
                follow(subscriber, publisher.publish().seq)
            group.stop("eu-0")
            for step in range(1, 12):
                nudge(trained, step)
                version = publisher.publish(step=step)
            wait_for(lambda: len(deltas(group)) <= 4, what="limits")
            assert f"{version.seq - 1}-{version.seq}.fast" in keys(group, "trainer-0")
            group.start("eu-0")
            with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
                follow(subscriber, version.seq)
                assert same_bits(member, trained)
            assert f"anchor-{version.seq}" in keys(group, "eu-0")


def test_what_a_live_member_stands_on_is_kept_within_the_limits(tmp_path: Path) -> None:
    limits = {"versions": 32, "bytes": 1 << 30}
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20, retention=limits) as group:
        group.start_all()
        trained, member = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
                wait_for(lambda: subscriber.version is not None, what="the first version")
                for step in range(10):
                    nudge(trained, step)
                    version = publisher.publish(step=step)
                follow(subscriber, version.seq)
                assert same_bits(member, trained)
        assert {f"{seq}-{seq + 1}.fast" for seq in range(10)} <= set(deltas(group))


def test_whole_weights_are_made_while_publishing_goes_on(tmp_path: Path) -> None:
    with InsideGroup(tmp_path, [TRAINER, LEAF, NEAR], ringBytes=1 << 20) as group:
        group.start_all()
        trained, stranger = small_model(), small_model(seed=9)
        ended = threading.Event()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:

            def train() -> None:
                step = 0
                while not ended.is_set():
                    step += 1
                    nudge(trained, step)
                    publisher.publish(step=step)
                    time.sleep(0.05)

            trainer = threading.Thread(target=train)
            trainer.start()
            try:
                with Subscriber(stranger, socket=group.socket("eu-0")) as subscriber:
                    follow(subscriber, 1)
                    ended.set()
                    trainer.join()
                    assert publisher.version is not None
                    follow(subscriber, publisher.version.seq)
                    assert same_bits(stranger, trained)
            finally:
                ended.set()
                trainer.join()


def test_a_run_that_goes_back_twice_is_followed_without_whole_weights(tmp_path: Path) -> None:
    """To a version of the first lineage, from the second one: over the fork, back and forth."""
    with InsideGroup(tmp_path, [TRAINER, LEAF], ringBytes=1 << 20) as group:
        group.start_all()
        model, member = small_model(), small_model()
        checkpoints = []
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            with Publisher(model, socket=group.socket("trainer-0")) as publisher:
                for step in range(1, 4):
                    nudge(model, step)
                    publisher.publish(step=step)
                    checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})
                follow(subscriber, 3)
            for back_to, seed in ((1, 20), (0, 30)):
                model.load_state_dict(checkpoints[back_to])
                with Publisher(model, socket=group.socket("trainer-0")) as publisher:
                    assert publisher.version is not None
                    assert (publisher.version.seq, publisher.version.step) == (back_to + 1, back_to + 1)
                    nudge(model, seed)
                    version = publisher.publish(step=seed)
                    wait_for(lambda: activated(subscriber) == version, 30, what="the new lineage")  # noqa: B023
                    assert same_bits(member, model)
        assert not [key for key in keys(group, "eu-0") if "anchor" in key]
