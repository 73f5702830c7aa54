"""Trainer to members through an object store, over real sidecars: every digest equals the trainer's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.contract import traces
from sync_runtime.telemetry.waterfall import Trace
from tests.support import backends
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model
from tests.support.s3 import s3_server, write_credentials

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


def _store(group: Group, name: str) -> dict[str, Any]:
    found: dict[str, Any] = group.ask(name, "/v1/status")["report"].get("store") or {}
    return found


def _trouble(group: Group, name: str) -> str:
    return str((_store(group, name).get("trouble") or {}).get("reason", ""))


def test_a_real_s3_server_that_changes_its_keys_is_told_of_and_followed_again(tmp_path: Path) -> None:
    data = tmp_path / "s3"
    data.mkdir()
    with contextlib.ExitStack() as servers:
        server = servers.enter_context(s3_server(data))
        settings = {"objectStore": {"url": server.url, "prefix": "weights"}, "storeSecret": str(server.credentials)}
        with InsideGroup(tmp_path, [TRAINER, RELAY], ringBytes=1 << 22, **settings) as group:
            group.start_all()
            trained, near = small_model(), small_model()
            with (
                Publisher(trained, socket=group.socket("trainer-0")) as publisher,
                Subscriber(near, socket=group.socket("eu-0")) as subscriber,
            ):
                nudge(trained, 1)
                follow(subscriber, publisher.publish().seq)
                assert same_bits(near, trained)
                wait_for(lambda: _store(group, "trainer-0").get("seq") == 1, what="the trainer tells of it")
                wait_for(lambda: _store(group, "eu-0").get("objects"), what="the relay tells of it")
                assert group.ask("eu-0", "/metrics")["syncgroup_store_up"] == 1.0
                servers.close()
                servers.enter_context(s3_server(data, port=server.port, access="others", secret="other-secret"))
                write_credentials(server.credentials)  # the old ones, as members still have them
                nudge(trained, 2)
                version = publisher.publish()
                for name in ("trainer-0", "eu-0"):
                    wait_for(lambda name=name: _trouble(group, name) == "StoreDenied", 60.0, what=f"{name} says so")
                write_credentials(server.credentials, "others", "other-secret")
                for name in ("trainer-0", "eu-0"):
                    wait_for(lambda name=name: not _trouble(group, name), 60.0, what=f"{name} is well again")
                follow(subscriber, version.seq)
                assert same_bits(near, trained)


def _is_joined(trace: Trace) -> bool:
    names = {(span.member, span.name) for span in trace.spans}
    return {("trainer-0", traces.PUT), ("eu-0", traces.FETCH), ("eu-0", traces.RECEIVE)} <= names


def test_a_version_that_passes_through_a_store_is_one_trace(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")
    store = {"url": f"file://{tmp_path}/store", "prefix": "weights"}
    members = [TRAINER, RELAY]
    with backends.sink() as backend, Group(tmp_path, members, ringBytes=1 << 22, objectStore=store) as group:
        group.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": backend.otlp, "OTEL_METRICS_EXPORTER": "none"}
        group.start_all()
        trained, near = small_model(), small_model()
        with (
            Publisher(trained, socket=group.socket("trainer-0")) as publisher,
            Subscriber(near, socket=group.socket("eu-0")) as subscriber,
        ):
            nudge(trained, 1)
            follow(subscriber, publisher.publish().seq)
            uid = group.ask("trainer-0", "/v1/status")["report"]["groupUid"]
            whole = backends.whole_trace(backend, uid, 1, _is_joined)
    put = next(span for span in whole.spans if span.name == traces.PUT)
    assert put.attributes[traces.ATTR_PEER] == "object-store"
