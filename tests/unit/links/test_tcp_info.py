from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_runtime.links.tcp_info import TCP_INFO_BYTES, TCP_INFO_OPTION, largest_send_buffer_bytes, parse_tcp_info

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is read as Linux lays it out")


def made(**fields: int) -> bytes:
    """A struct of a new kernel with some fields set."""
    places = {"mss": (16, "I"), "rtt": (68, "I"), "retrans": (100, "I"), "acked": (120, "Q"), "min_rtt": (148, "I")}
    places |= {"busy": (168, "Q"), "rwnd": (176, "Q"), "sent": (200, "Q"), "retransmitted": (208, "Q")}
    data = bytearray(248)
    for name, value in fields.items():
        offset, form = places[name]
        struct.pack_into("=" + form, data, offset, value)
    return bytes(data)


def test_fields_are_found_at_their_places() -> None:
    info = parse_tcp_info(made(mss=1448, rtt=100_000, retrans=7, acked=2**40, min_rtt=90_000, busy=5_000_000, sent=10))
    assert (info.mss_bytes, info.total_retransmits, info.acked_bytes, info.sent_bytes) == (1448, 7, 2**40, 10)
    assert (info.rtt_s, info.min_rtt_s, info.busy_s) == pytest.approx((0.1, 0.09, 5.0))


@pytest.mark.parametrize(("length", "known"), [(0, 0), (104, 5), (160, 9), (192, 13), (216, 15), (248, 15), (600, 15)])
def test_an_older_kernel_leaves_fields_unknown(length: int, known: int) -> None:
    info = parse_tcp_info(bytes(length))
    fields = [getattr(info, name) for name in info.__slots__]
    assert sum(field is not None for field in fields) == known


def test_a_round_trip_never_measured_is_unknown() -> None:
    assert parse_tcp_info(made(min_rtt=0xFFFFFFFF)).min_rtt_s is None


@given(st.binary(max_size=TCP_INFO_BYTES))
def test_any_bytes_are_read_without_complaint(data: bytes) -> None:
    info = parse_tcp_info(data)
    assert all(value is None or value >= 0 for value in (getattr(info, name) for name in info.__slots__))


@linux_only
def test_the_kernel_says_how_large_send_buffers_grow() -> None:
    assert largest_send_buffer_bytes() >= 64 * 1024


@pytest.mark.parametrize("text", ["", "1 2", "a b c", "\xff"])
def test_a_kernel_that_does_not_say_it_leaves_it_unknown(text: str, tmp_path: Path) -> None:
    (tmp_path / "tcp_wmem").write_text(text, encoding="latin-1")
    assert largest_send_buffer_bytes(tmp_path / "tcp_wmem") == 0
    assert largest_send_buffer_bytes(tmp_path / "missing") == 0


@linux_only
def test_a_real_stream_says_what_went_over_it() -> None:
    size_bytes = 3_000_000
    with socket.create_server(("127.0.0.1", 0)) as server:

        def swallow() -> None:
            connection, _ = server.accept()
            with connection:
                time.sleep(0.1)  # the kernel counts what a stream waits for in ticks of some milliseconds
                left = size_bytes
                while left > 0 and (data := connection.recv(1 << 20)):
                    left -= len(data)
                connection.sendall(b"!")

        reader = threading.Thread(target=swallow)
        reader.start()
        with socket.create_connection(server.getsockname(), timeout=5) as client:
            before = parse_tcp_info(client.getsockopt(socket.IPPROTO_TCP, TCP_INFO_OPTION, TCP_INFO_BYTES))
            client.sendall(bytes(size_bytes))
            assert client.recv(1) == b"!"
            after = parse_tcp_info(client.getsockopt(socket.IPPROTO_TCP, TCP_INFO_OPTION, TCP_INFO_BYTES))
        reader.join(timeout=5)
    assert before.acked_bytes is not None
    assert after.acked_bytes is not None
    assert before.acked_bytes <= 1
    assert after.acked_bytes >= size_bytes
    assert after.sent_bytes is not None
    assert after.sent_bytes >= size_bytes
    assert after.rtt_s is not None
    assert after.min_rtt_s is not None
    assert 0 < after.min_rtt_s <= 1
    assert 0 < after.rtt_s <= 1
    assert after.busy_s is not None
    assert after.rwnd_limited_s is not None
    assert 0.05 < after.rwnd_limited_s <= after.busy_s < 5
    assert after.mss_bytes is not None
    assert 500 <= after.mss_bytes <= 65536
