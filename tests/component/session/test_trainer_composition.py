"""A sidecar as a whole: its control API, a plan and certificates that change under it, and its end."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.errors import SidecarLostError
from syncgroup.cli import main
from tests.support.following import activated, follow
from tests.support.groups import TRAINER, Group, Member, wait_for
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(120)

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("trainer-0",))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20, streams={"min": 2, "max": 6}) as made:
        yield made


def http(group: Group, name: str, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    connection = HTTPConnection("127.0.0.1", group.controls[name], timeout=5)
    with closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_control_api_tells_how_it_is(group: Group) -> None:
    group.start("trainer-0", "eu-0")
    assert http(group, "trainer-0", "/livez")[0] == 200
    status, body = http(group, "trainer-0", "/readyz")
    assert (status, "no publisher is open" in body) == (503, True)
    trained, member = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-0")) as subscriber:
            for step in range(1, 4):
                nudge(trained, step)
                version = publisher.publish(step=step)
                follow(subscriber, version.seq)
            assert http(group, "trainer-0", "/readyz")[0] == http(group, "eu-0", "/readyz")[0] == 200
            _check_readings(group, version.seq)
    assert http(group, "trainer-0", "/nowhere")[0] == 404


def _check_readings(group: Group, seq: int) -> None:
    status = group.ask("trainer-0", "/v1/status")
    assert status["report"]["version"]["seq"] == status["head"]["seq"] == seq
    assert [child["member"] for child in status["children"]] == ["eu-0"]
    member = group.ask("eu-0", "/v1/status")
    assert (member["report"]["state"], member["report"]["parent"]) == ("Serving", "trainer-0")
    [link] = group.ask("trainer-0", "/v1/links")["links"]
    assert link["peer"] == "eu-0"
    assert link["ackedBytes"] > 0
    assert link["bounds"]["streams"] == {"seed": 6, "min": 2, "max": 6}  # the child's plan, told by the child
    assert 2 <= link["streams"] <= 6
    assert link["decisions"]
    objects = group.ask("trainer-0", "/v1/versions")["objects"]
    assert sorted(row["key"].partition("/")[2] for row in objects) == [f"{at}-{at + 1}.fast" for at in range(seq)]
    with socket.create_connection(("127.0.0.1", group.ports["trainer-0"]), 5) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        wait_for(lambda: group.ask("trainer-0", "/v1/refusals").get("NotTls"), what="a counted refusal")
    metrics = http(group, "trainer-0", "/metrics")[1].splitlines()
    assert f"syncgroup_head_seq {seq}" in metrics
    assert 'syncgroup_refusals_total{reason="NotTls"} 1' in metrics


def test_a_sidecar_that_drains_takes_no_new_children(group: Group) -> None:
    group.start("trainer-0")
    assert http(group, "trainer-0", "/v1/drain", "POST")[0] == 200
    group.start("eu-0")
    wait_for(lambda: group.ask("trainer-0", "/v1/refusals").get("ShuttingDown"), what="a refused child")


def test_a_new_plan_names_other_parents_and_a_stale_one_is_counted(group: Group) -> None:
    group.start_all()
    wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") == "trainer-0", what="the first parent")
    text = group.config.read_text()
    leaf = text.index('name = "eu-1"')
    moved = text[:leaf] + text[leaf:].replace('["trainer-0"]', '["eu-0", "trainer-0"]')
    group.config.write_text(f"revision = 5\n{moved}")
    wait_for(lambda: group.ask("eu-1", "/v1/status")["report"].get("parent") == "eu-0", what="the new parent")
    assert group.ask("eu-1", "/v1/status")["planRevision"] == 5
    group.config.write_text(f"revision = 4\n{text}")
    assert http(group, "eu-1", "/v1/reload", "POST")[0] == 200
    status = group.ask("eu-1", "/v1/status")
    assert (status["planRevision"], status["stalePlans"], status["report"]["parent"]) == (5, 1, "eu-0")
    group.config.write_text("not TOML at all = = =")
    assert http(group, "eu-1", "/v1/reload", "POST")[0] == 200
    assert "is not TOML" in group.ask("eu-1", "/v1/status")["planProblem"]


def test_certificates_are_renewed_under_a_running_group(group: Group) -> None:
    group.start("trainer-0", "eu-1")
    trained, member = small_model(), small_model()
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        with Subscriber(member, socket=group.socket("eu-1")) as subscriber:
            nudge(trained, 0)
            follow(subscriber, publisher.publish().seq)
            before = {name: group.ask(name, "/v1/status")["report"]["certificateExpiryTime"] for name in group.controls}
            assert main(["certs", "renew", str(group.folder / "certs"), "--days", "700"]) == 0
            for step in range(1, 20):  # versions go on through the change
                nudge(trained, step)
                version = publisher.publish(step=step)
                time.sleep(0.1)
            for name, expiry in before.items():
                wait_for(lambda name=name, expiry=expiry: _expiry(group, name) > expiry, what="new certificates")
            follow(subscriber, version.seq)
            assert same_bits(member, trained)
            wait_for(lambda: group.log("eu-1").count("receiving from") >= 2, what="a link with the new certificate")
            nudge(trained, 50)
            last = publisher.publish()
            wait_for(lambda: activated(subscriber) == last, 30, what="a version over the new link")
            assert same_bits(member, trained)


def _expiry(group: Group, name: str) -> str:
    return str(group.ask(name, "/v1/status")["report"]["certificateExpiryTime"])


def test_sigterm_ends_every_sidecar_within_a_second(group: Group) -> None:
    group.start_all()
    trained, member = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket("trainer-0"))
    subscriber = Subscriber(member, socket=group.socket("eu-1"))
    nudge(trained, 0)
    follow(subscriber, publisher.publish().seq)
    for name in ("trainer-0", "eu-0", "eu-1"):
        began = time.monotonic()
        assert group.stop(name) == 0
        assert time.monotonic() - began < 5  # a second where cores are free
    subscriber.close()
    publisher.close(drain=0)


def test_sigterm_in_the_middle_of_a_publish_loses_nothing(group: Group) -> None:
    group.start("trainer-0", "eu-1")
    trained, member = small_model(), small_model()
    publisher = Publisher(trained, socket=group.socket("trainer-0"), patience=30)
    durable = [publisher.version]
    stop = threading.Event()

    def train() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            nudge(trained, step)
            try:
                durable.append(publisher.publish(step=step))
            except SidecarLostError:
                continue

    with Subscriber(member, socket=group.socket("eu-1")) as subscriber:
        trainer = threading.Thread(target=train)
        trainer.start()
        try:
            for _ in range(3):
                time.sleep(0.3)
                os.kill(group.processes["trainer-0"].pid, signal.SIGTERM)
                began = time.monotonic()
                assert group.processes.pop("trainer-0").wait(10) == 0
                assert time.monotonic() - began < 5  # a second where cores are free
                group.start("trainer-0")
        finally:
            stop.set()
            trainer.join()
        last = durable[-1]
        assert last is not None
        assert {one.lineage for one in durable if one is not None} == {last.lineage}
        seqs = [one.seq for one in durable if one is not None]
        assert seqs == sorted(set(seqs))
        follow(subscriber, last.seq)
        assert same_bits(member, trained)
    publisher.close()
