"""One end of a connection, with bytes as a hostile or dying other end sends them."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from sync_runtime.errors import LocalError, LocalProtocolError
from sync_runtime.library import export_messages as x
from sync_runtime.library.export_errors import WorkerLostError
from sync_runtime.library.export_schema import pack
from sync_runtime.library.export_wire import Wire

EXPORT_HEADER = struct.pack("<BBHI", 16, 0, 0, 1 << 20)


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    wire = Wire(ours, WorkerLostError)
    yield wire, other
    wire.end(WorkerLostError("the test is over"))
    other.close()


def test_what_came_before_the_end_of_a_connection_is_handed_out_first(ends: tuple[Wire, socket.socket]) -> None:
    wire, other = ends
    answer = x.Scrubbed(5, passed=True)
    other.sendall(pack(answer) + pack(x.Failure(x.LINK_ID, "LocalError", "it ends", retry=False)))
    assert wire.receive(5.0) == [answer]
    with pytest.raises(LocalError, match="it ends"):
        wire.receive(5.0)
    assert not wire.has_ended
    wire.end(WorkerLostError("over"))
    assert wire.has_ended


def test_before_the_greeting_no_frame_is_large(ends: tuple[Wire, socket.socket]) -> None:
    wire, other = ends
    other.sendall(EXPORT_HEADER)
    with pytest.raises(LocalProtocolError, match="the limit is 4096"):
        wire.first(5.0)


def test_after_the_greeting_frames_have_their_own_limits(ends: tuple[Wire, socket.socket]) -> None:
    wire, other = ends
    other.sendall(pack(x.Welcome(1)))
    assert wire.first(5.0) == x.Welcome(1)
    other.sendall(EXPORT_HEADER)
    assert wire.receive(5.0) == []


def test_a_greeting_that_trickles_in_has_one_deadline(ends: tuple[Wire, socket.socket]) -> None:
    wire, other = ends
    is_over = threading.Event()

    def trickle() -> None:
        for byte in pack(x.Welcome(1))[:-1]:
            if is_over.wait(0.15):
                return
            other.send(bytes([byte]))

    thread = threading.Thread(target=trickle)
    began = time.monotonic()
    thread.start()
    try:
        with pytest.raises(WorkerLostError):
            wire.first(0.2)
        assert time.monotonic() - began < 2.0  # the bytes alone take longer, and each comes in time
    finally:
        is_over.set()
        thread.join()


def test_whoever_sends_after_the_end_hears_why_it_ended(ends: tuple[Wire, socket.socket]) -> None:
    wire, _ = ends
    wire.end(LocalProtocolError("it broke the rules"))
    with pytest.raises(LocalProtocolError, match="it broke the rules"):
        wire.send(x.Activate(1))
