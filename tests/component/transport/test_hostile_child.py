"""A child that breaks a rule is told, counted and left; others never notice."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from sync_runtime.errors import OldTermError, RefusedError
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import client_context
from sync_runtime.transport import wire
from sync_runtime.transport.events import ChildGone, PayloadDone, Refused
from sync_runtime.transport.listener import Admission, Limits
from sync_runtime.transport.messages import Heartbeat, Hello, Refuse, Streams, Welcome, encode
from sync_runtime.transport.wire import FrameType
from tests.component.transport.raw import Raw, raw_child
from tests.component.transport.rig import Child, Parent, begin, hello, payload, wait_until
from tests.support.identities import Group

pytestmark = pytest.mark.timeout(30)
MakeParent = Callable[..., Parent]
MakeChild = Callable[..., Child]


def frame(kind: int, body: bytes, *, flags: int = 0, zero: int = 0, length: int | None = None) -> bytes:
    return struct.pack("<BBHI", kind, flags, zero, len(body) if length is None else length) + body


BAD_FRAMES = {
    "an unknown type": frame(99, b""),
    "a flag": frame(FrameType.PING, bytes(8), flags=1),
    "a reserved field": frame(FrameType.PING, bytes(8), zero=1),
    "a length above its limit": frame(FrameType.STATUS, b"", length=(64 << 10) + 1),
    "four gigabytes": frame(FrameType.WANT, b"", length=0xFFFFFFFF),
    "a frame of the parent's": encode(Streams(count=3)),
    "a bucket": frame(FrameType.BUCKET, bytes(100)),
    "a second hello": frame(FrameType.HELLO, b"{}"),
    "no JSON": frame(FrameType.FOLLOW, b"\xff\xfe"),
    "other fields": frame(FrameType.DROP, b'{"transfer":1,"reason":"X","extra":1}'),
    "a fraction": frame(FrameType.DROP, b'{"transfer":1.5,"reason":"X"}'),
    "a field twice": frame(FrameType.DROP, b'{"transfer":1,"transfer":1,"reason":"X"}'),
    "deep JSON": frame(FrameType.STATUS, b"[" * 60_000),
    "an ACK for what never began": b"".join(wire.pack_acks(7, (0,))),
    "an ACK that does not add up": frame(FrameType.ACK, struct.pack("<II", 0, 900)),
    "a NACK for what never began": wire.pack_nack(7, 0),
    "a NACK of another size": frame(FrameType.NACK, bytes(9)),
    "a PING of another size": frame(FrameType.PING, bytes(7)),
}


class FencedDoor:
    """A policy that raises what fences raise."""

    def admit(self, identity: object, hello: object) -> Admission:
        raise OldTermError("a newer trainer is there")


@pytest.fixture
def stranger(group: Group) -> Path:
    return group.member("rollout-9")


def admitted(parent: Parent, group: Group, folder: Path) -> Raw:
    raw = raw_child(parent.listener.port, client_context(folder), hello(group, "rollout-9"))
    assert isinstance(raw.read(), Welcome)
    return raw


@pytest.mark.parametrize("what", BAD_FRAMES)
def test_every_kind_of_bad_frame_is_refused_and_counted_and_others_go_on(
    what: str, group: Group, make_parent: MakeParent, make_child: MakeChild, stranger: Path
) -> None:
    parent = make_parent()
    make_child([parent.endpoint])
    link = parent.link()
    raw = admitted(parent, group, stranger)
    raw.send(BAD_FRAMES[what])
    assert raw.refusal().reason == "BadFrame"
    raw.close()
    parent.events.wait(ChildGone, lambda event: event.link.name == "rollout-9")
    wait_until(lambda: parent.listener.refusals == {"BadFrame": 1})
    _, source = payload(4)
    link.complete(link.begin(begin(), source, range(4)), b"envelope")
    parent.events.wait(PayloadDone)


def test_an_ack_for_a_bucket_that_was_not_sent_is_refused(
    group: Group, make_parent: MakeParent, stranger: Path
) -> None:
    parent = make_parent()
    raw = admitted(parent, group, stranger)
    parent.link().begin(begin(), None)
    raw.send(*wire.pack_acks(0, (3,)))
    assert raw.refusal().reason == "BadFrame"
    raw.close()


def test_a_peer_that_dribbles_does_not_last(make_parent: MakeParent, endings: ExitStack) -> None:
    parent = make_parent(limits=Limits(handshake_s=0.6))
    connection = endings.enter_context(socket.create_connection(("127.0.0.1", parent.listener.port), 5))
    began_s = time.monotonic()
    client_hello = bytes.fromhex("1603010200 010001fc0303") + bytes(32)
    with pytest.raises(ConnectionError):  # noqa: PT012 it breaks when it breaks
        for byte in client_hello:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)
    assert time.monotonic() - began_s < 3
    assert parent.events.wait(Refused).reason == "HandshakeTimeout"


def test_a_peer_that_is_silent_after_tcp_or_after_tls_does_not_last(
    make_parent: MakeParent, stranger: Path, endings: ExitStack
) -> None:
    parent = make_parent(limits=Limits(handshake_s=0.5))
    plain = endings.enter_context(socket.create_connection(("127.0.0.1", parent.listener.port), 5))
    secure = raw_child(parent.listener.port, client_context(stranger))
    endings.callback(secure.close)
    assert plain.recv(1) == b""
    assert secure.refusal().reason == "HandshakeTimeout"
    wait_until(lambda: parent.listener.refusals == {"HandshakeTimeout": 2})


def test_more_unproven_connections_than_allowed_are_closed_at_once(
    make_parent: MakeParent, make_child: MakeChild, endings: ExitStack
) -> None:
    parent = make_parent(limits=Limits(unproven=2, handshake_s=1.0))
    loris = [endings.enter_context(socket.create_connection(("127.0.0.1", parent.listener.port), 5)) for _ in range(5)]
    parent.events.wait(Refused, lambda event: event.reason == "TooMany")
    wait_until(lambda: parent.listener.refusals.get("TooMany") == 3)
    assert [connection.recv(1) for connection in loris[2:]] == [b""] * 3
    wait_until(lambda: parent.listener.refusals.get("HandshakeTimeout") == 2)
    child = make_child([parent.endpoint])  # the door is not blocked for those who speak
    assert child.link()


def test_plain_tcp_is_refused(make_parent: MakeParent, endings: ExitStack) -> None:
    parent = make_parent()
    connection = endings.enter_context(socket.create_connection(("127.0.0.1", parent.listener.port), 5))
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert parent.events.wait(Refused).reason == "NotTls"


def test_older_tls_is_refused(make_parent: MakeParent, stranger: Path, endings: ExitStack) -> None:
    parent = make_parent()
    context = client_context(stranger)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connection = endings.enter_context(socket.create_connection(("127.0.0.1", parent.listener.port), 5))
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(connection)
    assert parent.events.wait(Refused).reason == "OldTls"


def test_a_certificate_of_another_group_is_refused(make_parent: MakeParent, tmp_path: Path) -> None:
    parent = make_parent()
    other = Group(tmp_path / "other", "00000000-0000-4000-8000-000000000000")
    folder = other.member("rollout-9")
    context = client_context(folder)
    context.verify_mode = ssl.CERT_NONE  # it does not care whom it talks to
    raw_child(parent.listener.port, context, hello(other, "rollout-9")).close()
    assert parent.events.wait(Refused).reason == "UnknownCa"


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"group": "11111111-0000-4000-8000-000000000000"}, "WrongGroup"),
        ({"member": "rollout-1"}, "WrongMember"),
        ({"region": "us-east"}, "WrongMember"),
        ({"role": "trainer"}, "WrongRole"),
        ({"protocols": [7, 8]}, "NoCommonProtocol"),
        ({"kind": "data", "token": "0" * 32}, "UnknownToken"),
        ({"kind": "data"}, "BadFrame"),
        ({"token": "0" * 32}, "BadFrame"),
    ],
)
def test_a_hello_that_is_not_what_the_certificate_says_is_refused(
    lie: dict[str, object], reason: str, group: Group, make_parent: MakeParent, stranger: Path
) -> None:
    parent = make_parent()
    said = hello(group, "rollout-9").model_copy(update=lie)
    raw = raw_child(parent.listener.port, client_context(stranger), said)
    assert raw.refusal().reason == reason
    raw.close()
    wait_until(lambda: parent.listener.refusals == {reason: 1})


def test_a_first_frame_that_is_no_hello_is_refused(make_parent: MakeParent, stranger: Path) -> None:
    parent = make_parent()
    raw = raw_child(parent.listener.port, client_context(stranger), encode(Streams(count=1)))
    assert raw.refusal().reason == "BadFrame"
    raw.close()


def test_the_token_of_another_member_opens_no_stream(
    group: Group, make_parent: MakeParent, make_child: MakeChild, stranger: Path
) -> None:
    parent = make_parent()
    make_child([parent.endpoint])
    token = parent.link().token
    said = hello(group, "rollout-9").model_copy(update={"kind": "data", "token": token})
    raw = raw_child(parent.listener.port, client_context(stranger), said)
    assert raw.refusal().reason == "UnknownToken"
    raw.close()


def test_more_streams_than_allowed_are_refused(
    group: Group, make_parent: MakeParent, stranger: Path, endings: ExitStack
) -> None:
    parent = make_parent()
    raw = admitted(parent, group, stranger)
    endings.callback(raw.close)
    said = hello(group, "rollout-9").model_copy(update={"kind": "data", "token": parent.link().token})
    context = client_context(stranger)
    for _ in range(wire.MAX_STREAMS):
        stream = raw_child(parent.listener.port, context, said)
        endings.callback(stream.close)
        assert isinstance(stream.read(), Welcome)
    one_more = raw_child(parent.listener.port, context, said)
    endings.callback(one_more.close)
    assert one_more.refusal().reason == "TooMany"


def test_more_children_than_allowed_are_refused_with_leave_to_try_again(
    group: Group, make_parent: MakeParent, make_child: MakeChild, stranger: Path
) -> None:
    parent = make_parent(limits=Limits(children=1))
    make_child([parent.endpoint])
    parent.link()
    raw = raw_child(parent.listener.port, client_context(stranger), hello(group, "rollout-9"))
    refusal = raw.refusal()
    raw.close()
    assert (refusal.reason, refusal.retry) == ("TooMany", True)


def test_whom_the_policy_refuses_is_told_the_reason(group: Group, make_parent: MakeParent, stranger: Path) -> None:
    parent = make_parent()
    parent.door.refusal = RefusedError("OldTerm", "a newer trainer is there", retry=False)
    raw = raw_child(parent.listener.port, client_context(stranger), hello(group, "rollout-9"))
    refusal = raw.refusal()
    raw.close()
    assert (refusal.reason, refusal.retry) == ("OldTerm", False)
    assert "a newer trainer" in refusal.message


def test_a_fence_that_stands_against_a_child_is_told_by_its_name(
    group: Group, make_parent: MakeParent, stranger: Path
) -> None:
    parent = make_parent()
    parent.listener._policy = FencedDoor()
    raw = raw_child(parent.listener.port, client_context(stranger), hello(group, "rollout-9"))
    assert raw.refusal().reason == "OldTerm"
    raw.close()
    wait_until(lambda: parent.listener.refusals == {"OldTerm": 1})


def test_a_second_connection_of_a_member_replaces_the_first(
    group: Group, make_parent: MakeParent, stranger: Path
) -> None:
    parent = make_parent()
    first = admitted(parent, group, stranger)
    second = admitted(parent, group, stranger)
    assert first.refusal().reason == "Replaced"
    first.close()
    parent.events.wait(ChildGone)
    assert [link.name for link in parent.listener.children] == ["rollout-9"]
    second.close()


@pytest.mark.parametrize("kind", ["control", "work"])
def test_a_connection_that_a_member_has_left_does_not_end_the_one_that_it_uses(
    group: Group, make_parent: MakeParent, stranger: Path, endings: ExitStack, kind: str
) -> None:
    """It gave up waiting for a busy parent and dialled again; the parent comes to the first one later."""
    parent = make_parent()
    begun, go_on = threading.Event(), threading.Event()
    endings.callback(go_on.set)
    admit = parent.door.admit

    def busy(identity: MemberIdentity, said: Hello) -> Admission:
        if not begun.is_set():
            begun.set()
            go_on.wait(10)
        return admit(identity, said)

    parent.door.admit = busy  # type: ignore[method-assign,assignment]
    said = hello(group, "rollout-9").model_copy(update={"kind": kind})
    left = raw_child(parent.listener.port, client_context(stranger), said)
    endings.callback(left.close)
    assert begun.wait(10)
    used = raw_child(parent.listener.port, client_context(stranger), said)
    endings.callback(used.close)
    assert isinstance(used.read(), Welcome)
    go_on.set()
    assert left.refusal().reason == "Replaced"
    used.send(wire.pack_ping(FrameType.PING, 5))
    while (answer := used.read()) != Heartbeat(FrameType.PONG, 5):
        assert not isinstance(answer, Refuse)


def test_a_child_that_is_silent_is_let_go(group: Group, make_parent: MakeParent, stranger: Path) -> None:
    parent = make_parent(heartbeat_ms=100)
    raw = admitted(parent, group, stranger)
    gone = parent.events.wait(ChildGone)
    assert gone.reason == "Silent"
    raw.close()


def test_a_child_that_writes_on_a_data_stream_loses_it(
    group: Group, make_parent: MakeParent, stranger: Path, endings: ExitStack
) -> None:
    parent = make_parent()
    raw = admitted(parent, group, stranger)
    endings.callback(raw.close)
    link = parent.link()
    said = hello(group, "rollout-9").model_copy(update={"kind": "data", "token": link.token})
    stream = raw_child(parent.listener.port, client_context(stranger), said)
    endings.callback(stream.close)
    assert isinstance(stream.read(), Welcome)
    wait_until(lambda: link.stats.streams == 1)
    stream.send(b"anything")
    wait_until(lambda: link.stats.streams == 0)
