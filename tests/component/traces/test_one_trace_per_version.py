"""One trace per version, in a real Jaeger and in a plain receiver: processes whose clocks are hours apart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from sync_runtime import Publisher, Subscriber
from sync_runtime.bucket.keys import delta_key
from sync_runtime.contract import traces
from sync_runtime.telemetry.waterfall import Trace, TraceSpan, rows_of, to_text
from tests.support import backends, skew
from tests.support.backends import Backend
from tests.support.following import follow
from tests.support.groups import TRAINER, Group, Member
from tests.support.models import nudge, small_model

pytestmark = pytest.mark.timeout(120)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="traces need the OTLP exporter")

OUT = "SYNCGROUP_TRACE_OUT"
HOUR_S = 3600
CLOCKS_S = {"eu-0": HOUR_S, "eu-1": -HOUR_S}
"""How far clocks are ahead of the others'."""
MEMBERS = [
    TRAINER,
    Member("eu-0", "eu", ("trainer-0",), relay=True),
    Member("eu-1", "eu", ("eu-0",)),
    Member("eu-2", "eu", ("eu-0",)),
    Member("eu-3", "eu", ("eu-0",)),
]
"""eu-3 is not sampled: it is sent to like the others, and makes no spans."""
CAUSE = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
PUBLISHING = Counter([traces.VERSION, traces.EXTRACT, traces.ENCODE, traces.SIGN, traces.SPOOL, traces.SEND])
TAKING = Counter(
    [
        traces.MEMBER, traces.RECEIVE, traces.VERIFY, traces.DECODE, traces.STAGE, traces.APPLY, traces.ACTIVATE,
        traces.SCRUB,
    ]
)  # fmt: skip
WHOLE = {
    "trainer-0": PUBLISHING,
    "eu-0": TAKING + Counter([traces.SEND, traces.SEND, traces.SEND, traces.RELAY]),
    "eu-1": TAKING,
    "eu-2": TAKING,
}
ROUNDING_NS = 2_000_000
"""Jaeger counts microseconds, and a stage's begin is its end less a measured duration."""


@dataclass
class World:
    """Three versions: the first two as they should be, under the third eu-2's weights were damaged."""

    versions: list[Trace]
    payload_bytes: list[int]
    lineage: str


@pytest.fixture(scope="module", params=["sink", "jaeger"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backends.sink() if request.param == "sink" else backends.started(tmp_path_factory) as found:
        yield found


@pytest.fixture(scope="module")
def world(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> World:
    with Group(tmp_path_factory.mktemp("group"), MEMBERS, ringBytes=1 << 20, sampledMembers=["eu-1", "eu-2"]) as group:
        group.config.with_name("group.toml.cause").write_text(f"00-{CAUSE[0]}-{CAUSE[1]}-01")
        for name in group.members:
            group.environment = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": backend.otlp,
                "OTEL_METRICS_EXPORTER": "none",
                skew.VARIABLE: str(CLOCKS_S.get(name, 0)),
            }
            group.start(name)
        lineage, sizes = _publish(group)
        uid = group.ask("trainer-0", "/v1/status")["report"]["groupUid"]
        # Not at the end of the sidecars: a trace is whole while they run on.
        versions = [backends.whole_trace(backend, uid, seq, _is_whole) for seq in (1, 2, 3)]
    if OUT in os.environ:  # for the picture in docs/tracing.md
        backends.save(backend, versions[-1], Path(os.environ[OUT]))
    return World(versions, sizes, lineage)


def _publish(group: Group) -> tuple[str, list[int]]:
    trained = small_model()
    models = {name: small_model() for name in group.members if name != "trainer-0"}
    with Publisher(trained, socket=group.socket("trainer-0")) as publisher:
        subscribers = {name: Subscriber(model, socket=group.socket(name)) for name, model in models.items()}
        for step in (1, 2, 3):
            nudge(trained, step)
            version = publisher.publish(step=10 * step)
            for name, subscriber in subscribers.items():
                follow(subscriber, version.seq)
                if step == 3 and name == "eu-2":
                    _damage(models[name])
                assert subscriber.scrub() == (step < 3 or name != "eu-2")
        for subscriber in subscribers.values():
            subscriber.close()
    stored = {one["key"]: one["bytes"] for one in group.ask("trainer-0", "/v1/versions")["objects"]}
    return version.lineage, [stored[delta_key(version.lineage, seq - 1, seq).text] for seq in (1, 2, 3)]


def _damage(model: torch.nn.Module) -> None:
    """A bit flips in live weights, as a broken GPU may do it."""
    with torch.no_grad():
        weights = next(model.parameters())
        weights.view(-1)[7] += 1


def _is_whole(trace: Trace) -> bool:
    found = _counted(trace)
    return found.keys() == WHOLE.keys() and all(WHOLE[member] <= found[member] for member in WHOLE)


def _counted(trace: Trace) -> dict[str, Counter[str]]:
    return {member: Counter(span.name for span in own) for member, own in _by_member(trace).items()}


def _by_member(trace: Trace) -> dict[str, list[TraceSpan]]:
    found: dict[str, list[TraceSpan]] = {}
    for span in trace.spans:
        found.setdefault(span.member, []).append(span)
    return found


def _parts(trace: Trace) -> dict[str, TraceSpan]:
    """Each member's span over its part."""
    return {span.member: span for span in trace.spans if span.name in (traces.VERSION, traces.MEMBER)}


def test_every_span_is_there_once_per_member_and_hop_under_one_root(world: World) -> None:
    assert len({trace.trace_id for trace in world.versions}) == 3
    for number, trace in enumerate(world.versions, 1):
        assert [span.name for span in trace.spans if not span.parent_id] == [traces.VERSION]
        assert trace.root.attributes[traces.ATTR_SEQ] == number
        assert trace.root.attributes[traces.ATTR_STEP] == 10 * number
        assert trace.root.attributes[traces.ATTR_LINEAGE] == world.lineage
        found = _counted(trace)
        if number == 3:  # right bits for the damaged block may be staged too, if there is time
            found["eu-2"] -= found["eu-2"] - WHOLE["eu-2"] & Counter([traces.STAGE])
        assert found == WHOLE


def test_the_tree_is_the_way_that_the_version_took_whatever_the_clocks_say(world: World) -> None:
    for trace in world.versions:
        parts = _parts(trace)
        assert parts["eu-0"].parent_id == parts["trainer-0"].span_id
        assert parts["eu-1"].parent_id == parts["eu-2"].parent_id == parts["eu-0"].span_id
        for span in trace.spans:
            assert span is parts[span.member] or span.parent_id == parts[span.member].span_id


def test_bytes_are_those_of_the_payload_on_every_hop(world: World) -> None:
    for trace, size in zip(world.versions, world.payload_bytes, strict=True):
        moved = [span for span in trace.spans if span.name in (traces.ENCODE, traces.SEND, traces.RECEIVE)]
        assert [span.attributes[traces.ATTR_BYTES] for span in moved] == [size] * 8
        sends = {(span.member, span.attributes[traces.ATTR_PEER]) for span in moved if span.name == traces.SEND}
        assert sends == {("trainer-0", "eu-0"), ("eu-0", "eu-1"), ("eu-0", "eu-2"), ("eu-0", "eu-3")}
        for span in moved:
            if span.name == traces.SEND:
                assert span.attributes[traces.ATTR_REPEATED_BYTES] == 0
                assert int(span.attributes[traces.ATTR_STREAMS]) >= 1
                assert span.attributes[traces.ATTR_CODEC] == "fast"
                assert span.attributes[traces.ATTR_TO_REGION] == "eu"


def test_durations_nest(world: World) -> None:
    for trace in world.versions:
        parts = _parts(trace)
        for span in trace.spans:
            part = parts[span.member]
            assert part.start_ns - ROUNDING_NS <= span.start_ns <= span.end_ns, span.name
            # A part ends after a while without news; a scrub that comes still later joins it all the same.
            is_late = span.name == traces.SCRUB and span.start_ns >= part.end_ns - ROUNDING_NS
            assert is_late or span.end_ns <= part.end_ns + ROUNDING_NS, span.name
        for member in ("eu-0", "eu-1", "eu-2"):
            stages = {span.name: span for span in trace.spans if span.member == member}
            order = [traces.RECEIVE, traces.DECODE, traces.ACTIVATE, traces.SCRUB]
            ends = [stages[name].end_ns for name in order]
            assert ends == sorted(ends)
            assert stages[traces.APPLY].duration_ns <= stages[traces.ACTIVATE].duration_ns + ROUNDING_NS


def test_the_picture_puts_wrong_clocks_right(world: World) -> None:
    for trace in world.versions:
        spread_ns = max(span.end_ns for span in trace.spans) - min(span.start_ns for span in trace.spans)
        assert spread_ns > 2 * HOUR_S * 10**9  # the backend keeps what it was told
        rows = rows_of(trace)
        assert max(row.end_ns for row in rows) < 60 * 10**9
        wrong = {row.span.member: round(-row.clock_off_ns / 1e9 / HOUR_S) for row in rows if row.clock_off_ns}
        assert wrong == {"eu-0": 1, "eu-1": -1}
        assert any("clock 3600 s ahead" in line for line in to_text(trace, width=160))


def test_a_member_whose_weights_were_damaged_shows_in_the_trace(world: World) -> None:
    failed = {(trace.root.attributes[traces.ATTR_SEQ], span.member, span.name): span for trace in world.versions
              for span in trace.spans if span.error}  # fmt: skip
    assert set(failed) == {(3, "eu-2", traces.SCRUB)}
    (span,) = failed.values()
    assert span.attributes[traces.ATTR_ERROR_TYPE] == "ScrubFailed"
    assert "live weights are not version 3" in span.error


def test_the_first_version_under_a_plan_is_linked_to_what_made_the_plan(world: World) -> None:
    linked = [[span.member for span in trace.spans if CAUSE in span.links] for trace in world.versions]
    assert sorted(linked[0]) == ["eu-0", "eu-1", "eu-2", "trainer-0"]
    assert linked[1:] == [[], []]


def test_every_span_says_who_made_it(world: World) -> None:
    for span in world.versions[0].spans:
        assert span.resource["service.name"] == traces.RUNTIME_SERVICE
        assert span.resource["service.instance.id"] == span.member
        assert span.resource["cloud.region"] == span.region == ("us" if span.member == "trainer-0" else "eu")
        assert span.resource[traces.ATTR_GROUP] == "demo"
