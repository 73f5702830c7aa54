"""A peer that leaves in the middle of its handshake leaves no open socket behind, and is counted."""

from __future__ import annotations

import gc
import socket
import struct
import time
import warnings
from collections.abc import Callable

import pytest

from sync_runtime.errors import RefusedError
from sync_runtime.transport.handshake import greet
from tests.component.transport.rig import Parent
from tests.support.identities import Group

_RESET = struct.pack("ii", 1, 0)


def reset(connection: socket.socket) -> None:
    """Ends a connection without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


def test_a_connection_that_was_reset_before_tls_began_is_closed_at_once(
    group: Group, make_parent: Callable[..., Parent]
) -> None:
    context = make_parent().watch.current().server
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dialled = socket.create_connection(listening.getsockname(), timeout=5)
        accepted, _ = listening.accept()
        reset(dialled)
        time.sleep(0.05)  # the reset is here before the handshake is begun
        descriptor = accepted.fileno()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", ResourceWarning)
            with pytest.raises(RefusedError) as refused:
                greet(accepted, context, time.monotonic() + 5)
            assert refused.value.reason == "HandshakeFailed"
            with pytest.raises(OSError, match="Bad file descriptor"):
                socket.socket(fileno=descriptor)
            del refused
            gc.collect()
        assert [str(one.message) for one in seen if issubclass(one.category, ResourceWarning)] == []


def test_peers_that_leave_at_any_moment_are_counted_and_others_still_get_in(
    group: Group, make_parent: Callable[..., Parent], make_child: Callable[..., object]
) -> None:
    parent = make_parent()
    for said in (b"", b"\x16", b"\x16\x03\x01\x00\x20"):
        with socket.create_connection(("127.0.0.1", parent.listener.port), timeout=5) as peer:
            peer.sendall(said)
            reset(peer)
    end_s = time.monotonic() + 5
    while sum(parent.listener.refusals.values()) < 3 and time.monotonic() < end_s:
        time.sleep(0.01)
    assert sum(parent.listener.refusals.values()) == 3
    make_child([parent.endpoint])
    parent.link()
