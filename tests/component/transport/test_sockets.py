"""What real sockets of this kernel take."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sync_runtime.transport import sockets
from tests.component.transport.rig import wait_until

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    listener = sockets.listening_socket("127.0.0.1", 0, 1)
    dialled = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    yield dialled, accepted
    for one in (dialled, accepted, listener):
        one.close()


def test_the_congestion_control_that_is_reported_is_the_one_in_use(pair: Pair) -> None:
    facts = sockets.prepare(pair[0])
    assert facts.congestion_control == sockets.set_congestion_control(pair[0], "no-such-thing")
    assert facts.congestion_control != "no-such-thing"


def test_an_accepted_socket_is_under_the_same_control_from_its_first_packet(pair: Pair) -> None:
    asked = sockets.set_congestion_control(pair[0], sockets.CONGESTION_CONTROL)
    assert sockets.set_congestion_control(pair[1], "no-such-thing") == asked


def test_a_restarted_control_is_the_one_before(pair: Pair) -> None:
    name = sockets.prepare(pair[0]).congestion_control
    sockets.restart_congestion_control(pair[0], name)
    assert sockets.set_congestion_control(pair[0], "no-such-thing") == name


def acked_bytes(connection: socket.socket) -> int:
    found = sockets.progress_of(sockets.read_tcp_info(connection))
    return found.acked_bytes if found else 0


def test_progress_is_read_from_the_kernel(pair: Pair) -> None:
    before = sockets.progress_of(sockets.read_tcp_info(pair[0]))
    pair[0].sendall(bytes(10_000))
    assert len(pair[1].recv(10_000, socket.MSG_WAITALL)) == 10_000
    assert before
    wait_until(lambda: acked_bytes(pair[0]) - before.acked_bytes == 10_000)  # by the kernel, when it comes to it
    after = sockets.progress_of(sockets.read_tcp_info(pair[0]))
    assert after
    assert after.retransmits == 0
    assert 0 < after.rtt_s < 1


def test_an_older_kernel_says_less_and_a_closed_socket_nothing(pair: Pair) -> None:
    assert sockets.progress_of(sockets.read_tcp_info(pair[0])[:104]) is None
    pair[0].close()
    assert sockets.read_tcp_info(pair[0]) == b""
    assert sockets.progress_of(b"") is None


def test_little_unsent_data_waits_in_the_kernel(pair: Pair) -> None:
    """A sender of a receiver that does not read blocks after little more than what the receiver's buffer takes."""
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    assert sockets.set_unsent_limit(pair[0], 64 << 10)
    pair[0].settimeout(0.3)
    sent = 0
    with pytest.raises(TimeoutError):  # noqa: PT012 it blocks when it blocks
        while sent < 64 << 20:
            sent += pair[0].send(bytes(16 << 10))
    assert sent < 8 << 20


def test_pacing_is_taken_and_lifted(pair: Pair) -> None:
    assert sockets.set_pacing(pair[0], 1_000_000)
    assert sockets.set_pacing(pair[0], None)
