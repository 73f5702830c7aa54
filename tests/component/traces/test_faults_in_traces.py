"""What goes wrong on the way is in the version's trace, with our own words for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import delta_key
from sync_runtime.contract import traces
from sync_runtime.session.shelf import offer
from sync_runtime.telemetry.waterfall import Trace
from tests.support import backends
from tests.support.backends import Backend
from tests.support.following import follow
from tests.support.groups import TRAINER, Member, wait_for
from tests.support.hostile_relay import HostileRelay, Liar
from tests.support.inside import InsideGroup
from tests.support.models import nudge, same_bits, small_model

pytestmark = pytest.mark.timeout(90)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")

RELAY = Member("eu-0", "eu", ("trainer-0",), relay=True)
LEAF = Member("eu-1", "eu", ("eu-0", "trainer-0"))


@pytest.fixture(params=["sink", "jaeger"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backends.sink() if request.param == "sink" else backends.started(tmp_path_factory) as found:
        yield found


def test_a_relay_that_damages_buckets_shows_where_and_as_what(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.otlp)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with InsideGroup(tmp_path, [TRAINER, RELAY, LEAF], ringBytes=1 << 20, sampledMembers=["eu-1"]) as group:
        group.environment = os.environ
        group.start("trainer-0")
        trained, weights = small_model(), small_model()
        with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
            nudge(trained, 0)
            lineage = publisher.publish(step=1).lineage
            with hostile(group, lineage) as relay:
                group.start("eu-1")
                with Subscriber(weights, socket=group.socket("eu-1")) as subscriber:
                    follow(subscriber, 1)
                # Its own sends may meet the closed connection before it has read why: the trace has the reason.
                wait_for(lambda: len(relay.ends) == 1, what="the end that the relay sees")
            assert same_bits(weights, trained)
            uid = group.sidecars["trainer-0"].settings.group_uid
            trace = backends.whole_trace(backend, uid, 1, is_whole)
    (failed,) = (span for span in trace.spans if span.error)
    assert (failed.member, failed.name) == ("eu-1", traces.RECEIVE)
    assert failed.attributes[traces.ATTR_ERROR_TYPE] == "BadParent"
    good = [span for span in trace.spans if span.name == traces.RECEIVE and not span.error]
    assert [span.attributes[traces.ATTR_PEER] for span in good] == ["trainer-0"]


def hostile(group: InsideGroup, lineage: str) -> HostileRelay:
    """A relay that flips a bit of every bucket behind TLS, and offers under the version's own trace."""
    trainer = group.sidecars["trainer-0"]
    key = delta_key(lineage, 0, 1)
    stored = trainer.spool.stored(key)
    assert stored is not None
    layout = trainer.spool.layout(stored.facts.layout_hash)
    assert layout is not None
    chain = (group.folder / "certs/trainer-0/tls.crt").read_text()
    rows = sorted(trainer.versions.lineages[lineage].digests.items())
    line = trainer.traces.join("", lineage, 1)

    def attack(relay: HostileRelay) -> None:
        relay.greet(chain, layout, rows, 1)
        begin = offer(key, stored, relay.versions).model_copy(update={"trace": line})
        transfer = relay.link.begin(
            begin, Liar(stored, lambda data: bytes([data[0] ^ 1]) + data[1:], claims_truth=True)
        )
        for index in range(stored.num_buckets):
            relay.link.add_bucket(transfer, index)
        relay.link.complete(transfer, stored.envelope)

    return HostileRelay(group.folder / "certs/eu-0", group.ports["eu-0"], trainer.versions, attack)


def is_whole(trace: Trace) -> bool:
    names = {(span.member, span.name) for span in trace.spans}
    return {("trainer-0", traces.VERSION), ("eu-1", traces.MEMBER), ("eu-1", traces.ACTIVATE)} <= names
