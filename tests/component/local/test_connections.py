"""Both ends of the local protocol over a real socket: who gets in, what crosses, who notices whose end."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync_runtime.errors import LocalError, LocalProtocolError, SidecarLostError, SpoolFullError
from sync_runtime.local import messages as m
from sync_runtime.local.channel import Channel, connect
from sync_runtime.local.faults import to_error
from sync_runtime.local.link import LibraryLink
from sync_runtime.local.ring import MIN_RING_BYTES
from sync_runtime.local.schema import pack
from sync_runtime.session.local_server import LocalLimits
from tests.support.local import RecordingHandler, ServerThread, serving

pytestmark = pytest.mark.timeout(30)
D = "ab" * 16
HELLO = m.Hello((1,), "publisher", 0, 1, os.getpid(), "sidecar", "test")
SMALL = LocalLimits(ring_bytes=MIN_RING_BYTES)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run" / "sidecar.sock")


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()


@pytest.fixture
def server(path: str, handler: RecordingHandler) -> Iterator[ServerThread]:
    with serving(path, handler, SMALL) as running:
        yield running


@pytest.fixture
def channel(server: ServerThread) -> Iterator[Channel]:
    opened = connect(server.path, HELLO, 5.0)
    yield opened
    opened.close()


def next_message(channel: Channel) -> m.Message:
    """The next message but credit, which is kept."""
    while True:
        for message in channel.receive(5.0):
            if not isinstance(message, m.Credit):
                return message
            channel.credited(message)


def write(channel: Channel, data: bytes) -> None:
    """A stream's bytes, as credit comes."""
    rest = memoryview(data)
    while len(rest) > 0:
        taken = channel.put(rest)
        rest = rest[taken:]
        if not taken:
            for message in channel.receive(5.0):
                assert isinstance(message, m.Credit)
                channel.credited(message)


def test_a_welcome_names_group_member_and_term(channel: Channel) -> None:
    assert channel.welcome == m.Welcome(1, MIN_RING_BYTES, "group", "member-0", 7)


def test_a_stream_larger_than_the_ring_arrives_whole(channel: Channel, handler: RecordingHandler) -> None:
    data = os.urandom(9 * MIN_RING_BYTES + 5)
    channel.send(m.Publish(1, "", "fast"))
    write(channel, data)
    channel.send(m.End())
    handler.wait(lambda: handler.said and handler.said[-1] == m.End())
    assert handler.said == [m.Publish(1, "", "fast"), data, m.End()]


def test_a_stream_comes_back_larger_than_the_ring(
    server: ServerThread, channel: Channel, handler: RecordingHandler
) -> None:
    data = os.urandom(5 * MIN_RING_BYTES + 3)
    handler.wait(lambda: handler.links)
    begin = m.Stage(D, 1, D, None, m.VersionRef(D, 0), "list", len(data))

    sending = server.start(handler.links[0].stream(begin, [data[:100], data[100:], b""], m.End()))
    found, ended = b"", False
    while not ended:
        for message in channel.receive(5.0):
            if isinstance(message, m.Data):
                with channel.take(message) as part:
                    found += bytes(part)
                channel.done(message.size)
            ended = ended or isinstance(message, m.End)
    sending.result(5.0)
    assert found == data


def test_a_refusal_in_the_middle_of_a_stream_is_told_and_the_rest_thrown_away(path: str) -> None:
    class FullDisk(RecordingHandler):
        async def data(self, library: LibraryLink, data: memoryview) -> None:
            raise SpoolFullError("the spool has no room")

    full = FullDisk()
    with serving(path, full, SMALL):
        channel = connect(path, HELLO, 5.0)
        channel.send(m.Publish(1, "", "fast"))
        channel.put(memoryview(bytes(10)))
        error = next_message(channel)
        assert isinstance(error, m.Error)
        assert error.request == "PUBLISH"
        assert isinstance(to_error(error), SpoolFullError)
        write(channel, bytes(2 * MIN_RING_BYTES))  # credit goes on
        channel.send(m.Cancel("refused"))
        channel.send(m.Close(0))
        full.wait(lambda: full.said[-1] == m.Close(0))
        assert full.said == [m.Publish(1, "", "fast"), m.Close(0)]
        channel.close()


@pytest.mark.parametrize(
    "messages",
    [
        [m.Data(0, 10)],
        [m.End()],
        [m.Cancel("why")],
        [m.Publish(1, "", "fast"), m.Publish(2, "", "fast")],
        [m.Publish(1, "", "fast"), m.Data(5, 10)],
        [m.Credit(1)],
        [HELLO, m.Data(0, 1)],
    ],
    ids=["data", "end", "cancel", "twice", "place", "credit", "after hello"],
)
def test_what_is_out_of_turn_ends_the_connection_with_a_reason(
    messages: list[m.Message], channel: Channel, handler: RecordingHandler
) -> None:
    for message in messages:
        channel.send(message)
    found = next_message(channel)
    assert isinstance(found, m.Error)
    assert found.request == "LINK"
    assert found.kind == "LocalProtocolError"
    handler.wait(lambda: handler.gone)


def test_bytes_that_are_no_frame_end_the_connection(server: ServerThread, handler: RecordingHandler) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(server.path)
        raw.settimeout(5.0)
        raw.sendall(pack(HELLO))
        assert raw.recv(4096)
        raw.sendall(b"\xff" * 64)
        while raw.recv(4096):
            pass
    handler.wait(lambda: handler.gone)
    assert "type 255" in handler.gone[0]


@pytest.mark.parametrize(
    ("hello", "sentence"),
    [
        (m.Hello((98, 99), "publisher", 0, 1, 1, "sidecar", ""), "update the older one"),
        (m.Hello((1,), "publisher", 4, 2, 1, "sidecar", ""), "rank 4"),
    ],
)
def test_a_library_that_cannot_be_served_hears_why(hello: m.Hello, sentence: str, server: ServerThread) -> None:
    with pytest.raises(LocalProtocolError, match=sentence):
        connect(server.path, hello, 5.0)


def test_another_user_is_refused_by_the_kernels_word(path: str, handler: RecordingHandler) -> None:
    with serving(path, handler, LocalLimits(uids=frozenset({os.getuid() + 1}))):
        with pytest.raises(LocalError, match="may not use this sidecar"):
            connect(path, HELLO, 5.0)
        assert not handler.links
    with serving(path, handler, LocalLimits(uids=frozenset(), any_uid=True)):
        connect(path, HELLO, 5.0).close()


def test_several_ranks_are_served_at_once(server: ServerThread, handler: RecordingHandler) -> None:
    hellos = [m.Hello((1,), "publisher", rank, 3, 1, "sidecar", "") for rank in range(3)]
    channels = [connect(server.path, hello, 5.0) for hello in hellos]
    assert [channel.welcome.member for channel in channels] == ["member-0", "member-1", "member-2"]
    handler.wait(lambda: len(handler.links) == 3)
    channels[1].close()
    handler.wait(lambda: handler.gone)
    channels[0].send(m.Close(1))
    channels[2].send(m.Close(2))
    handler.wait(lambda: len(handler.said) == 2)
    channels[0].close()
    channels[2].close()


def test_nobody_at_the_socket_is_a_lost_sidecar(path: str) -> None:
    with pytest.raises(SidecarLostError, match="no sidecar answers"):
        connect(path, HELLO, 1.0)


def test_the_library_notices_the_sidecars_end_at_once(server: ServerThread, channel: Channel) -> None:
    server.close()
    began = time.monotonic()
    with pytest.raises(SidecarLostError):
        channel.receive(5.0)
    assert time.monotonic() - began < 4.0
    with pytest.raises(SidecarLostError):
        channel.send(m.Close(0))
    channel.close()
    with pytest.raises(SidecarLostError):
        channel.put(memoryview(b"x"))


PROGRAM = """
import os, sys, time
from sync_runtime.local import messages as m
from sync_runtime.local.channel import connect
channel = connect(sys.argv[1], m.Hello((1,), "publisher", 0, 1, os.getpid(), "sidecar", ""), 5.0)
channel.send(m.Publish(1, "", "fast"))
channel.put(memoryview(b"half"))
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_the_sidecar_notices_a_killed_library_at_once(
    how: str, server: ServerThread, handler: RecordingHandler
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.path, how], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        handler.wait(lambda: b"half" in handler.said)
        began = time.monotonic()
        program.kill()
        handler.wait(lambda: handler.gone)
        assert time.monotonic() - began < 5.0
        assert handler.links[0].is_lost
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def test_a_socket_file_of_a_dead_sidecar_is_replaced_and_a_living_ones_is_not(
    path: str, handler: RecordingHandler
) -> None:
    Path(path).parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with serving(path, handler):
        with pytest.raises(LocalError, match="another sidecar listens"):
            ServerThread(path, handler)
        connect(path, HELLO, 5.0).close()
    assert not Path(path).exists()


def test_a_library_that_says_nothing_is_hung_up_on(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_runtime.session.local_server.HELLO_TIMEOUT_S", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(server.path)
        silent.settimeout(5.0)
        assert silent.recv(10) == b""
