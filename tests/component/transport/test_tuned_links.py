"""A link with its meter and its controller: what is measured moves streams and is remembered."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sync_runtime.contract.plan import BucketPlan, LinkPlan, StreamPlan
from sync_runtime.links.memory import LinkKey, LinkMemory
from sync_runtime.links.meter import LinkEnds
from sync_runtime.session.links import COLD_STREAMS, TunedLink
from sync_runtime.transport.events import PayloadDone
from sync_runtime.tuning.state import LinkState
from tests.component.transport.rig import Child, Parent, begin, payload, wait_until

pytestmark = pytest.mark.timeout(30)
ENDS = LinkEnds("hub", "us-east", "spoke", "eu-west", "rollout-0")
KEY = LinkKey("hub", "us-east", "spoke", "eu-west")
MakeParent = Callable[..., Parent]
MakeChild = Callable[..., Child]


def bounds(most: int = 64) -> LinkPlan:
    return LinkPlan(
        from_cluster="hub",
        from_region="us-east",
        codec="Fast",
        streams=StreamPlan(seed=2, min=1, max=most),
        bucket_bytes=BucketPlan(seed=256 << 10, min=64 << 10, max=1 << 20),
    )


def test_payloads_are_measured_and_remembered(make_parent: MakeParent, make_child: MakeChild, tmp_path: Path) -> None:
    parent = make_parent(streams=1)
    make_child([parent.endpoint])
    memory = LinkMemory(tmp_path / "links.json")
    tuned = TunedLink(parent.link(), ENDS, bounds(), memory)
    wait_until(lambda: tuned.link.stats.streams == 2)
    data, source = payload(60)
    for seq in (1, 2):
        tuned.before_payload(len(data))
        transfer = tuned.link.begin(begin(seq), source, range(len(source)))
        tuned.link.complete(transfer, b"envelope")
        parent.events.wait(PayloadDone, lambda event, transfer=transfer: event.transfer == transfer)  # type: ignore[misc]
    for event in parent.events.everything():
        tuned.on_event(event)
    tuned.tick(time.monotonic())
    report = tuned.report()
    assert report.payloads == 2
    assert report.rate_bits_per_second
    assert report.congestion_control == tuned.link.stats.congestion_control
    state = memory.get(KEY)
    assert state
    assert state.payloads == 2
    assert memory.save() is None


def remembered(tmp_path: Path) -> LinkMemory:
    """A long fast link, known from before."""
    memory = LinkMemory(tmp_path / "links.json")
    memory.put(
        KEY,
        LinkState(
            streams=4,
            settled=True,
            capacity_bytes_per_second=60_000_000,
            rtt_micros=100_000,
            min_rtt_micros=100_000,
            payload_bytes=60_000_000,
            payloads=9,
            congestion_control="bbr",
        ),
    )
    return memory


def test_a_remembered_long_link_starts_with_many_streams_and_gives_them_up_by_halves(
    make_parent: MakeParent, make_child: MakeChild, tmp_path: Path
) -> None:
    parent = make_parent(streams=1)
    make_child([parent.endpoint])
    tuned = TunedLink(parent.link(), ENDS, bounds(), remembered(tmp_path))
    wait_until(lambda: tuned.link.stats.streams == COLD_STREAMS)
    _, source = payload(300, 64 << 10)
    found = []
    for seq in range(1, 6):
        found.append(tuned.link.stats.active_streams)
        transfer = tuned.link.begin(begin(seq), source, range(len(source)))
        tuned.link.complete(transfer, b"envelope")
        done = parent.events.wait(PayloadDone, lambda event, transfer=transfer: event.transfer == transfer)  # type: ignore[misc]
        tuned.on_event(done)
    assert found[0] == COLD_STREAMS
    assert found == sorted(found, reverse=True)
    assert 4 < found[1] < COLD_STREAMS
    assert found[-1] == 4


def test_the_plan_bounds_even_a_cold_start(make_parent: MakeParent, make_child: MakeChild, tmp_path: Path) -> None:
    parent = make_parent(streams=1)
    make_child([parent.endpoint])
    tuned = TunedLink(parent.link(), ENDS, bounds(most=6), remembered(tmp_path))
    wait_until(lambda: tuned.link.stats.streams == 6)
    tuned.set_bounds(bounds(most=3))
    assert tuned.link.stats.active_streams == 3
