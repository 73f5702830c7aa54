"""What may happen to a member between two versions: bits are right, and what is refused is counted."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import LocalProtocolError
from sync_runtime.library.copying import CopySubscriber
from sync_runtime.session import incoming
from sync_runtime.transport import dialler
from syncgroup.cli import main
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(60)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))
HOUR_S = 3600


@pytest.fixture
def group(tmp_path: Path) -> Iterator[InsideGroup]:
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20) as made:
        yield made


def parent_of(group: InsideGroup, name: str) -> str | None:
    found: str | None = group.ask(name, "/v1/status")["report"].get("parent")
    return found


def peers_of(group: InsideGroup, name: str) -> list[str]:
    return [link["peer"] for link in group.ask(name, "/v1/links")["links"]]


def test_a_relay_that_comes_back_gets_its_leaf_back(group: InsideGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialler, "LOOK_AROUND_S", 1.0)
    group.start("trainer-0", "eu-1")
    wait_for(lambda: parent_of(group, "eu-1") == "trainer-0", what="the second parent")
    group.start("eu-0")
    wait_for(lambda: parent_of(group, "eu-1") == "eu-0", what="the first parent")
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-1")) as subscriber,
    ):
        nudge(trained, 0)
        follow(subscriber, publisher.publish().seq)
        assert same_bits(weights, trained)
        wait_for(lambda: peers_of(group, "trainer-0") == ["eu-0"], what="the end of the other link")


def test_a_second_subscriber_is_refused_and_the_first_goes_on(group: InsideGroup) -> None:
    group.start("trainer-0", "eu-0")
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-0")) as subscriber,
    ):
        with pytest.raises(LocalProtocolError, match="another subscriber is connected"):
            Subscriber(small_model(), socket=group.socket("eu-0"), timeout=10)
        nudge(trained, 0)
        follow(subscriber, publisher.publish().seq)
        assert same_bits(weights, trained)


def test_an_engine_that_restarts_at_once_is_let_in(group: InsideGroup) -> None:
    group.start("trainer-0", "eu-0")
    weights = small_model()
    with Publisher(small_model(), socket=group.socket("trainer-0")):
        for _ in range(5):
            with Subscriber(weights, socket=group.socket("eu-0"), timeout=10) as subscriber:
                wait_for(lambda s=subscriber: s.version is not None, what="its version")


def test_versions_that_pile_up_are_activated_as_one(group: InsideGroup) -> None:
    group.start("trainer-0", "eu-0")
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-0")) as subscriber,
    ):
        for step in range(8):  # each supersedes the one that is being received, decoded or staged
            nudge(trained, step)
            version = publisher.publish(step=step)
        wait_for(lambda: subscriber.staged == version, what="the newest version")
        assert same_bits(weights, small_model())
        assert subscriber.activate() == version
        assert same_bits(weights, trained)
        assert subscriber.scrub()


def test_a_version_is_activated_before_its_sidecar_has_heard_that_it_is_staged(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.start("trainer-0", "eu-0")
    trained, weights = small_model(), small_model()

    def late(_: CopySubscriber) -> None:
        time.sleep(0.3)  # a thread that was not given the processor, between staging and saying so

    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-0")) as subscriber,
    ):
        monkeypatch.setattr(CopySubscriber, "share", late)
        for step in range(3):
            nudge(trained, step)
            version = publisher.publish(step=step)
            wait_for(lambda: subscriber.staged == version, what="the version")  # noqa: B023
            assert subscriber.activate() == version
            assert same_bits(weights, trained)


def test_a_member_that_joins_in_the_middle_of_a_version_is_level_with_the_next(group: InsideGroup) -> None:
    group.start("trainer-0", "eu-0")
    trained, weights = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        for step in range(4):
            nudge(trained, step)
            if step == 2:
                group.start("eu-1")
            version = publisher.publish(step=step)
        with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
            follow(subscriber, version.seq)
            assert subscriber.version == version
            assert same_bits(weights, trained)


def test_a_straggler_beyond_retention_is_sent_whole_weights(tmp_path: Path) -> None:
    settings = {"ringBytes": 1 << 20, "retention": {"versions": 2}}
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], **settings) as group:
        group.start("trainer-0", "eu-0", "eu-1")
        trained, weights = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
                nudge(trained, 0)
                follow(subscriber, publisher.publish().seq)
            group.stop("eu-1")
            for step in range(1, 8):
                nudge(trained, step)
                version = publisher.publish(step=step)
            for name in ("trainer-0", "eu-0"):
                group.run(group.sidecars[name].retain())
            group.start("eu-1")
            with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
                follow(subscriber, version.seq)
                assert same_bits(weights, trained)
                assert subscriber.scrub()
        keys = [row["key"] for row in group.ask("eu-1", "/v1/versions")["objects"]]
        assert any("/anchor-" in key for key in keys)


def test_certificates_that_are_renewed_cost_no_version(group: InsideGroup) -> None:
    group.start_all()
    trained, weights = small_model(), small_model()
    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-1")) as subscriber,
    ):
        for step in range(4):
            if step == 1:
                assert main(["certs", "renew", str(group.folder / "certs")]) == 0
                for name in group.sidecars:
                    group.run(group.sidecars[name].role.keep_house())
            nudge(trained, step)
            version = publisher.publish(step=step)
            follow(subscriber, version.seq)
            assert subscriber.version == version
            assert same_bits(weights, trained)


def test_a_stale_plan_changes_nothing_and_is_counted(group: InsideGroup) -> None:
    text = group.config.read_text()
    group.config.write_text(f"revision = 5\n{text}")
    group.start_all()
    wait_for(lambda: parent_of(group, "eu-1") == "eu-0", what="its relay")
    stale = text.replace('parents = ["eu-0", "trainer-0"]', 'parents = ["trainer-0"]')
    assert stale != text
    group.config.write_text(f"revision = 4\n{stale}")
    group.call(group.sidecars["eu-1"].reload)
    assert group.sidecars["eu-1"].plans.stale == 1
    assert group.ask("eu-1", "/v1/status")["planRevision"] == 5
    assert parent_of(group, "eu-1") == "eu-0"


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_jumps_by_an_hour_stops_nothing(
    group: InsideGroup, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    group.start_all()
    trained, weights = small_model(), small_model()
    real_time, real_ns, real_datetime = time.time, time.time_ns, datetime.datetime

    def shifted(zone: datetime.tzinfo | None = None) -> datetime.datetime:
        return real_datetime.now(zone) + datetime.timedelta(seconds=jump_s)

    with (
        Publisher(trained, socket=group.socket("trainer-0")) as publisher,
        Subscriber(weights, socket=group.socket("eu-1")) as subscriber,
    ):
        for step in range(4):
            if step == 1:
                monkeypatch.setattr(time, "time", lambda: real_time() + jump_s)
                monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump_s * 10**9)
                clock = SimpleNamespace(now=shifted)
                monkeypatch.setattr(incoming, "datetime", SimpleNamespace(datetime=clock, UTC=datetime.UTC))
            if step == 2:
                group.stop("eu-0")  # new handshakes under the new clock
            if step == 3:
                group.start("eu-0")
            nudge(trained, step)
            follow(subscriber, publisher.publish(step=step).seq)
            assert same_bits(weights, trained)
