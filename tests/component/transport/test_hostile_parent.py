"""A parent that breaks a rule is left for the next one; messages that are early, late or doubled do no harm."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from sync_runtime.contract.plan import Endpoint
from sync_runtime.identity.tls import server_context
from sync_runtime.transport import wire
from sync_runtime.transport.events import BucketKept, DialFailed, MessageArrived, ParentConnected, ParentGone
from sync_runtime.transport.messages import Abort, Ack, Begin, Head, Message, Nack
from sync_runtime.transport.wire import BucketHead, FrameType
from tests.component.transport.raw import Raw, RawParent
from tests.component.transport.rig import INCARNATION, LINEAGE, Child, Parent, begin, sha256
from tests.support.identities import Group

pytestmark = pytest.mark.timeout(30)
DATA = bytes(range(256)) * 256
MakeParent = Callable[..., Parent]
MakeChild = Callable[..., Child]
Link = tuple[Raw, Raw, Child]


def bucket(transfer: int = 0, index: int = 0, offset: int = 0, data: bytes = DATA, name: bytes | None = None) -> bytes:
    head = BucketHead(transfer, index, offset, name or sha256(data), len(data))
    return wire.pack_bucket_head(head) + data


def opening(transfer: int = 0, size_bytes: int | None = None, buckets: int | None = None) -> Begin:
    return begin().model_copy(update={"transfer": transfer, "bytes": size_bytes, "buckets": buckets})


def next_but_pings(raw: Raw) -> Message:
    while (message := raw.read()).TYPE in (FrameType.PING, FrameType.PONG):
        pass
    return message


@pytest.fixture
def raw_parent(group: Group) -> Iterator[RawParent]:
    parent = RawParent(server_context(group.member("rollout-7")), "rollout-7")
    yield parent
    parent.close()


@pytest.fixture
def link(raw_parent: RawParent, make_child: MakeChild, endings: ExitStack) -> Link:
    """(control, data, child)."""
    child = make_child([endpoint_of(raw_parent)])
    control, data = raw_parent.accept_link()
    endings.callback(control.close)
    endings.callback(data.close)
    return control, data, child


def endpoint_of(parent: RawParent) -> Endpoint:
    return Endpoint(member="rollout-7", cluster="hub", region="eu-west", host="127.0.0.1", port=parent.port)


def test_a_bucket_that_overtakes_its_begin_waits_for_it(link: Link) -> None:
    control, data, child = link
    data.send(bucket())
    time.sleep(0.2)
    assert not child.events.all(BucketKept)
    control.send(opening())
    assert next_but_pings(control) == Ack(0, (0,))
    assert child.events.wait(BucketKept).size_bytes == len(DATA)


def test_a_bucket_that_comes_twice_is_acknowledged_twice_and_kept_once(link: Link) -> None:
    control, data, child = link
    control.send(opening())
    data.send(bucket(), bucket())
    acked: list[int] = []
    while len(acked) < 2:
        message = next_but_pings(control)
        assert isinstance(message, Ack)
        acked += message.indices
    assert acked == [0, 0]
    assert child.link().totals.repeated_bytes == len(DATA)
    assert len(child.events.all(BucketKept)) == 1


def test_buckets_of_an_aborted_transfer_go_nowhere(link: Link) -> None:
    control, data, child = link
    control.send(opening(0), Abort(transfer=0, reason="Superseded"), opening(1))
    child.events.wait(MessageArrived, lambda event: getattr(event.message, "transfer", 0) == 1)
    data.send(bucket(0), bucket(1))
    assert next_but_pings(control) == Ack(1, (0,))


def test_repeated_announcements_are_all_told_in_their_order(link: Link) -> None:
    control, _, child = link
    heads = [
        Head(
            lineage=LINEAGE, seq=seq, digest="0" * 32, step=None, term=1, incarnation=INCARNATION,
            published_unix_ns=1, trace="",
        )
        for seq in (3, 3, 2)
    ]  # fmt: skip
    control.send(*heads)
    child.events.wait(MessageArrived, lambda event: event.message == heads[2])
    assert [event.message for event in child.events.all(MessageArrived)] == heads


def test_a_damaged_bucket_is_refused_by_name(link: Link) -> None:
    control, data, _ = link
    control.send(opening())
    data.send(bucket(index=4, name=bytes(32)))
    assert next_but_pings(control) == Nack(0, 4)


BAD_STREAMS: dict[str, tuple[Begin, bytes]] = {
    "a bucket behind the object's end": (opening(0, size_bytes=len(DATA) - 1), bucket()),
    "a bucket that the object does not have": (opening(0, buckets=2), bucket(index=2)),
    "a bucket of index two million": (opening(), bucket(index=2 << 20)),
    "a bucket beyond any object": (opening(), bucket(offset=(1 << 63) - 5)),
    "a control frame": (opening(), wire.pack_ping(FrameType.PING, 1)),
    "a bucket without bytes": (
        opening(), struct.pack("<BBHI", FrameType.BUCKET, 0, 0, wire.BUCKET_HEAD_BYTES) + bytes(wire.BUCKET_HEAD_BYTES)
    ),
    "a frame of warming above the limit": (
        opening(), struct.pack("<BBHI", FrameType.WARMING, 0, 0, wire.MAX_WARMING_FRAME_BYTES + 1)
    ),
    "more warming than a link may have": (
        opening(),
        wire.pack_frame(FrameType.WARMING, bytes(wire.MAX_WARMING_FRAME_BYTES))
        * (wire.MAX_WARMING_BYTES // wire.MAX_WARMING_FRAME_BYTES + 1),
    ),
    "a bucket above the limit": (
        opening(), struct.pack("<BBHI", FrameType.BUCKET, 0, 0, wire.MAX_BUCKET_BYTES + wire.BUCKET_HEAD_BYTES + 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_STREAMS)
def test_every_bad_frame_on_a_data_stream_ends_the_link(what: str, link: Link) -> None:
    control, data, child = link
    start, bad = BAD_STREAMS[what]
    control.send(start)
    with suppress(OSError):  # it may hang up before it has read all
        data.send(bad)
    assert child.events.wait(ParentGone).reason == "BadFrame"
    assert control.refusal().reason == "BadFrame"


BAD_CONTROL: dict[str, list[Begin | bytes]] = {
    "the same transfer again": [opening(), opening()],
    "a manifest of nothing": [wire.pack_manifest(4, b"envelope")],
    "a frame of the child's": [wire.pack_nack(0, 0)],
    "a bucket": [bucket()],
    "streams above the limit": [struct.pack("<BBHI", FrameType.STREAMS, 0, 0, 12) + b'{"count":65}'],
}


@pytest.mark.parametrize("what", BAD_CONTROL)
def test_every_bad_frame_on_the_control_connection_ends_the_link(what: str, link: Link) -> None:
    control, _, child = link
    control.send(*BAD_CONTROL[what])
    assert child.events.wait(ParentGone).reason == "BadFrame"
    assert control.refusal().reason == "BadFrame"


def test_after_a_bad_frame_the_next_parent_is_dialled(
    raw_parent: RawParent, make_parent: MakeParent, make_child: MakeChild, endings: ExitStack
) -> None:
    good = make_parent()
    child = make_child([endpoint_of(raw_parent), good.endpoint])
    control, data = raw_parent.accept_link()
    endings.callback(control.close)
    endings.callback(data.close)
    control.send(bucket())
    child.events.wait(ParentConnected, lambda event: event.welcome.member == "trainer-0")


def test_a_parent_of_the_wrong_name_is_refused(make_parent: MakeParent, make_child: MakeChild) -> None:
    parent = make_parent()
    wrong = parent.endpoint.model_copy(update={"member": "trainer-1"})
    child = make_child([wrong])
    failed = child.events.wait(DialFailed)
    assert (failed.reason, failed.retry) == ("WrongMember", False)


def test_a_silent_parent_is_left(group: Group, make_child: MakeChild, endings: ExitStack) -> None:
    parent = RawParent(server_context(group.member("rollout-7")), "rollout-7")
    endings.callback(parent.close)
    parent._welcome = parent._welcome.model_copy(update={"heartbeat_ms": 100})
    child = make_child([endpoint_of(parent)])
    control, data = parent.accept_link()
    endings.callback(control.close)
    endings.callback(data.close)
    assert child.events.wait(ParentGone).reason == "Silent"
