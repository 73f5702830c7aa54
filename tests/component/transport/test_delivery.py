"""Objects arrive whole, whatever happens to streams, buckets and messages on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from sync_runtime.errors import SpoolFullError
from sync_runtime.transport import pace
from sync_runtime.transport.events import (
    BucketFailed,
    BucketKept,
    BucketsAcked,
    ChildGone,
    Event,
    MessageArrived,
    ParentGone,
    PayloadDone,
    StreamLost,
    StreamSample,
)
from sync_runtime.transport.loopback import MemorySink, MemorySource, missing
from sync_runtime.transport.messages import Abort, Begin, Drop, Follow, ManifestEnvelope, Want
from sync_runtime.transport.stream import ReceiveStream
from tests.component.transport.rig import Child, Parent, Recorder, begin, payload, wait_until

pytestmark = pytest.mark.timeout(30)
MakeParent = Callable[..., Parent]
MakeChild = Callable[..., Child]


class SlowSink(MemorySink):
    """Takes its time, so that a test can interfere."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s
        self.crawls_after: int | None = None
        """So many puts on it takes a hundred times as long: a test has time to interfere, however busy the machine."""
        self.puts: list[tuple[str, int]] = []

    def put(self, **bucket: object) -> bool:
        crawls = self.crawls_after is not None and len(self.puts) > self.crawls_after
        time.sleep(self.pause_s * (100 if crawls else 1))
        self.puts.append((str(bucket["key"]), int(str(bucket["index"]))))
        return super().put(**bucket)  # type: ignore[arg-type]


class DamagingSource(MemorySource):
    """What a broken or bent relay does: right name, wrong bytes, so many times per bucket."""

    def __init__(self, data: bytes, sizes: list[int], damages: dict[int, int]) -> None:
        super().__init__(data, sizes)
        self.damages = damages

    def read(self, index: int) -> tuple[int, memoryview, bytes]:
        offset, data, sha256 = super().read(index)
        if self.damages.get(index):
            self.damages[index] -= 1
            bent = bytearray(data)
            bent[len(bent) // 2] ^= 1
            return offset, memoryview(bent), sha256
        return offset, data, sha256


def test_an_object_arrives_whole_with_its_manifest_and_its_measurements(
    make_parent: MakeParent, make_child: MakeChild
) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = parent.link()
    data, source = payload(40)
    message = begin(source=source, size_bytes=len(data))
    transfer = link.begin(message, source, range(len(source)))
    link.complete(transfer, b"envelope")
    done = parent.events.wait(PayloadDone)
    child.events.wait(MessageArrived, lambda event: isinstance(event.message, ManifestEnvelope))  # is not acknowledged
    assert bytes(child.sink.object(message.key).data) == data
    assert (done.size_bytes, done.repeated_bytes, done.buckets, done.key) == (len(data), 0, 40, message.key)
    samples = parent.events.all(StreamSample)
    assert sum(sample.size_bytes for sample in samples) == len(data)
    assert all(len(sample.tcp_info) > 200 and sample.ended_s >= sample.started_s for sample in samples)
    arrived = [event.message for event in child.events.all(MessageArrived)]
    assert [type(one).__name__ for one in arrived] == ["Begin", "ManifestEnvelope"]
    assert arrived[1] == ManifestEnvelope(transfer, b"envelope")
    assert {event.index for event in child.events.all(BucketKept)} == set(range(40))


def test_an_object_travels_while_it_is_still_being_written(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = parent.link()
    data, source = payload(12)
    message = begin()
    transfer = link.begin(message, source)
    for index in range(12):
        link.add_bucket(transfer, index)
        child.events.wait(BucketKept, lambda event, index=index: event.index == index)  # type: ignore[misc]
    assert not parent.events.all(PayloadDone)
    link.complete(transfer, b"envelope")
    assert parent.events.wait(PayloadDone).buckets == 12
    assert bytes(child.sink.object(message.key).data) == data


def test_half_of_the_streams_reset_in_the_middle_lose_nothing(make_parent: MakeParent, make_child: MakeChild) -> None:
    sink = SlowSink(0.005)
    parent = make_parent()
    child = make_child([parent.endpoint], sink=sink)
    link = parent.link()
    wait_until(lambda: link.stats.streams == 4)
    data, source = payload(200, 16 << 10)
    message = begin(source=source, size_bytes=len(data))
    transfer = link.begin(message, source, range(len(source)))
    link.complete(transfer, b"envelope")
    wait_until(lambda: len(sink.puts) > 60)
    for stream in list(child.link()._streams.values())[:2]:
        assert isinstance(stream, ReceiveStream)
        stream.stop()
    done = parent.events.wait(PayloadDone)
    assert bytes(sink.object(message.key).data) == data
    wait_until(lambda: len(parent.events.all(StreamLost)) == 2)
    assert done.repeated_bytes < len(data) / 2  # what the two had in the air and in buffers
    wait_until(lambda: link.stats.streams == 4)  # and they come back


def test_a_bucket_damaged_behind_tls_is_sent_again(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = parent.link()
    data, _ = payload(20)
    source = DamagingSource(data, [64 << 10] * 20, {3: 1, 7: 1})
    message = begin(source=source, size_bytes=len(data))
    link.complete(link.begin(message, source, range(20)), b"envelope")
    done = parent.events.wait(PayloadDone)
    assert bytes(child.sink.object(message.key).data) == data
    assert done.repeated_bytes == 2 * (64 << 10)
    assert child.link().totals.damaged_buckets == 2


def test_a_parent_that_damages_one_bucket_twice_is_left_for_the_next(
    make_parent: MakeParent, make_child: MakeChild
) -> None:
    bad, good = make_parent("rollout-7"), make_parent()
    child = make_child([bad.endpoint, good.endpoint])
    link = bad.link()
    data, _ = payload(4)
    source = DamagingSource(data, [64 << 10] * 4, {2: 9})
    link.complete(link.begin(begin(source=source), source, range(4)), b"envelope")
    assert child.events.wait(ParentGone).reason == "BadParent"
    assert good.link().name == "rollout-0"
    assert bad.events.wait(ChildGone).reason == "BadParent"


def test_after_a_broken_link_only_what_is_missing_is_sent(make_parent: MakeParent, make_child: MakeChild) -> None:
    """Either end restarts: the child keeps its sink, asks with what it has, and gets the rest."""
    sink, number = SlowSink(0.003), 600
    sink.crawls_after = 50
    parent = make_parent()
    child = make_child([parent.endpoint], sink=sink)
    data, source = payload(number, 16 << 10)
    message = begin(source=source, size_bytes=len(data))
    parent.link().begin(message, source, range(len(source)))
    wait_until(lambda: len(sink.puts) > 40)
    child.close()  # the child's restart
    kept = set(sink.object(message.key).buckets)
    assert 40 < len(kept) < number
    sink.crawls_after = None
    second = make_child([parent.endpoint], member="rollout-0", sink=sink)
    second.link().send(Want(key=message.key, have=sink.have(message.key)))
    want = parent.events.wait(MessageArrived, lambda event: isinstance(event.message, Want)).message
    assert isinstance(want, Want)
    rest = missing(len(source), want.have)
    assert set(rest) == set(range(number)) - kept
    before = len(sink.puts)
    parent.link().begin(message, source, rest)
    wait_until(lambda: len(sink.puts) - before > len(rest) // 8)
    port = parent.listener.port
    parent.close()  # the parent's restart
    second.events.wait(ParentGone)
    left = set(range(number)) - set(sink.object(message.key).buckets)
    third = make_parent(port=port)
    link = third.link()
    link.complete(link.begin(message, source, sorted(left)), b"envelope")
    done = third.events.wait(PayloadDone)
    assert bytes(sink.object(message.key).data) == data
    assert done.buckets == len(left) < len(rest)
    assert len(sink.puts) == len(set(sink.puts)) == number, "no bucket came twice"


def test_a_fresh_delta_is_not_held_up_by_an_anchor(make_parent: MakeParent, make_child: MakeChild) -> None:
    sink = SlowSink(0.002)
    parent = make_parent(streams=2)
    make_child([parent.endpoint], sink=sink)
    link = parent.link()
    _, large = payload(2000, 16 << 10)
    _, small = payload(10, 16 << 10)
    anchor, fresh = begin(1, priority=2), begin(2, priority=0)
    link.begin(anchor, large, range(len(large)))
    wait_until(lambda: len(sink.puts) > 10)
    link.complete(link.begin(fresh, small, range(10)), b"envelope")
    parent.events.wait(PayloadDone)
    assert len(sink.object(fresh.key).buckets) == 10
    assert len(sink.object(anchor.key).buckets) < 2000


def test_a_dropped_and_an_aborted_transfer_stop_and_others_go_on(
    make_parent: MakeParent, make_child: MakeChild
) -> None:
    sink = SlowSink(0.002)
    parent = make_parent()
    child = make_child([parent.endpoint], sink=sink)
    link = parent.link()
    _, large = payload(2000, 16 << 10)
    dropped = link.begin(begin(1), large, range(len(large)))
    wait_until(lambda: len(sink.puts) > 10)
    child.link().send(Drop(transfer=dropped, reason="Superseded"))
    parent.events.wait(MessageArrived, lambda event: isinstance(event.message, Drop))
    aborted = link.begin(begin(2), large, range(len(large)))
    link.abort(aborted, "Superseded")
    child.events.wait(MessageArrived, lambda event: isinstance(event.message, Abort))
    data, source = payload(10)
    message = begin(3)
    link.complete(link.begin(message, source, range(10)), b"envelope")
    parent.events.wait(PayloadDone)
    assert bytes(sink.object(message.key).data) == data
    wait_until(lambda: link.stats.unacked_bytes == 0)


def test_a_full_disk_at_the_child_drops_the_object_and_says_so(make_parent: MakeParent, make_child: MakeChild) -> None:
    class FullSink(MemorySink):
        def put(self, **bucket: object) -> bool:
            raise SpoolFullError("no room for another bucket")

    parent = make_parent()
    child = make_child([parent.endpoint], sink=FullSink())
    _, source = payload(4)
    parent.link().begin(begin(), source, range(4))
    assert isinstance(child.events.wait(BucketFailed).error, SpoolFullError)
    drop = parent.events.wait(MessageArrived).message
    assert isinstance(drop, Drop)
    assert drop.reason == "SpoolFull"


def test_a_bucket_that_cannot_be_kept_is_told_after_the_begin_of_its_transfer(
    make_parent: MakeParent, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the session would take the transfer, which is dropped by then, for one that is on its way."""

    class FullSink(MemorySink):
        def put(self, **bucket: object) -> bool:
            raise SpoolFullError("no room for another bucket")

    record = Recorder.__call__

    def late(self: Recorder, event: Event) -> None:
        if isinstance(event, MessageArrived) and isinstance(event.message, Begin):
            time.sleep(0.3)  # a thread that was not given the processor
        record(self, event)

    monkeypatch.setattr(Recorder, "__call__", late)
    parent = make_parent()
    child = make_child([parent.endpoint], sink=FullSink())
    _, source = payload(4)
    parent.link().begin(begin(), source, range(4))
    child.events.wait(BucketFailed)
    told = [event for event in child.events.everything() if isinstance(event, MessageArrived | BucketFailed)]
    assert isinstance(told[0], MessageArrived)


def test_an_object_that_vanishes_at_the_parent_is_aborted_not_silent(
    make_parent: MakeParent, make_child: MakeChild
) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    _, source = payload(4)
    parent.link().begin(begin(), source, [0, 1, 99])
    event = child.events.wait(MessageArrived, lambda event: isinstance(event.message, Abort))
    assert isinstance(event.message, Abort)
    assert event.message.reason == "Gone"


def test_more_streams_are_dialled_and_fewer_are_let_go(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent(streams=2)
    child = make_child([parent.endpoint])
    link = parent.link()
    wait_until(lambda: link.stats.streams == 2)
    link.set_streams(6)
    wait_until(lambda: link.stats.streams == 6)
    link.set_streams(3)
    assert (link.stats.streams, link.stats.active_streams) == (6, 3)
    link.trim_streams()
    wait_until(lambda: link.stats.streams == 3)
    time.sleep(0.5)  # and nobody dials them again
    assert link.stats.streams == 3
    wait_until(lambda: child.link().streams == 3)


def test_messages_keep_their_order(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    child = make_child([parent.endpoint])
    link = child.link()
    for seq in range(300):
        link.send(
            Follow(lineage="0" * 32, seq=seq, digest=None, codecs=["fast"], out_of_service=False, want_anchor=False)
        )
    wait_until(lambda: len(parent.events.all(MessageArrived)) == 300)
    seqs = [event.message.seq for event in parent.events.all(MessageArrived) if isinstance(event.message, Follow)]
    assert seqs == list(range(300))


def test_a_large_message_passes_beside_the_heartbeats(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent(heartbeat_ms=100)
    child = make_child([parent.endpoint])
    envelope = bytes(range(256)) * (16 << 10)
    link = parent.link()
    transfer = link.begin(begin(), None)
    link.complete(transfer, envelope)
    event = child.events.wait(MessageArrived, lambda event: isinstance(event.message, ManifestEnvelope))
    assert event.message == ManifestEnvelope(transfer, envelope)


def test_a_region_gets_every_byte_through_a_relay_that_forwards_at_once(
    make_parent: MakeParent, make_child: MakeChild
) -> None:
    trainer, relay_side = make_parent(), make_parent("rollout-5")
    relay = make_child([trainer.endpoint], member="rollout-5")
    leaf = make_child([relay_side.endpoint], member="rollout-6")
    below = relay_side.link()
    data, source = payload(50)
    message = begin(source=source, size_bytes=len(data))
    forwarded = below.begin(message, relay.sink.object(message.key))

    def forward() -> None:
        for index in range(50):
            event = relay.events.wait(BucketKept, lambda event, index=index: event.index == index)  # type: ignore[misc]
            below.add_bucket(forwarded, event.index)

    thread = threading.Thread(target=forward)
    thread.start()
    link = trainer.link()
    transfer = link.begin(message, source, range(50))
    link.complete(transfer, b"envelope")
    thread.join()
    below.complete(forwarded, b"envelope")
    relay_side.events.wait(PayloadDone)
    assert bytes(leaf.sink.object(message.key).data) == data
    wait_until(lambda: sum(len(event.indices) for event in trainer.events.all(BucketsAcked)) == 50)


def test_a_link_whose_rate_is_remembered_warms_up_and_the_payload_comes_whole(
    make_parent: MakeParent, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "SHORT_RTT_S", 0.0)  # the loopback's round trip is far below it
    parent = make_parent(streams=2)
    child = make_child([parent.endpoint])
    link = parent.link()
    link.remember_rate(1e10)
    wait_until(lambda: child.link().totals.warming_bytes > 0)
    data, source = payload(20)
    message = begin(source=source, size_bytes=len(data))
    link.complete(link.begin(message, source, range(20)), b"envelope")
    parent.events.wait(PayloadDone)
    assert bytes(child.sink.object(message.key).data) == data
    totals = child.link().totals
    assert totals.kept_bytes == len(data)
    assert 0 < totals.warming_bytes <= pace.MAX_WARMING_LINK_BYTES + pace.WARMING_FRAME_BYTES


def test_a_link_that_nothing_is_remembered_of_sends_no_byte_in_vain(
    make_parent: MakeParent, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "SHORT_RTT_S", 0.0)
    parent = make_parent(streams=2)
    child = make_child([parent.endpoint])
    for seq in (1, 2):
        data, source = payload(20)
        message = begin(seq, source=source, size_bytes=len(data))
        parent.link().complete(parent.link().begin(message, source, range(20)), b"envelope")
        wait_until(lambda: parent.link().stats.transfers == 0)
    assert child.link().totals.warming_bytes == 0
