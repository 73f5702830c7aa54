"""Options of the TCP sockets under a link, and what their kernel tells of them.

Linux first: an option that this kernel, container or user may not set is left as it is, and `SocketFacts` says which.
Knows neither TLS nor frames.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Final

from sync_runtime.transport.stuck import Progress

# Not all of them are named by every Python that we support; the numbers are Linux's and never change.
_TCP_INFO: Final = 11
_TCP_CONGESTION: Final = 13
_TCP_USER_TIMEOUT: Final = 18
_TCP_NOTSENT_LOWAT: Final = 25
_TCP_RTO_MAX_MS: Final = 44
_SO_MAX_PACING_RATE: Final = 47
_TCP_INFO_BYTES: Final = 512
_MAX_U64: Final = 2**64 - 1

USER_TIMEOUT_MS: Final = 20_000
"""Unacknowledged for so long: the kernel ends the connection. Our own rules are faster; this one is for idle ends."""
RTO_MAX_MS: Final = 1_000
"""The longest pause between two retransmissions (Linux 6.15 and newer): an outage is over for us within it."""
NOTSENT_LOWAT_BYTES: Final = 256 << 10
"""What may wait unsent in the kernel of a stream whose rate is not known yet."""
CONGESTION_CONTROL: Final = "bbr"
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))

# struct tcp_info of linux/tcp.h: offsets are the same on every machine, bytes in its own order.
_TOTAL_RETRANS: Final = (100, "=I")
_RTT_US: Final = (68, "=I")
_MSS: Final = (16, "=I")
_DELIVERED: Final = (192, "=I")
_BYTES_ACKED: Final = (120, "=Q")


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """What a socket really got."""

    congestion_control: str
    fast_timeout: bool
    """Whether its retransmissions come at least every RTO_MAX_MS."""


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens, on IPv4 or IPv6 as the host's address says."""
    family, kind, proto, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it, so that the very first flight is already under the right control.
        set_congestion_control(listener, CONGESTION_CONTROL)
        listener.bind(address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def prepare(connection: socket.socket) -> SocketFacts:
    """Options that every connection of a link has."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if number := getattr(socket, name, None):
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
    _try_option(connection, _TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    fast = _try_option(connection, _TCP_RTO_MAX_MS, RTO_MAX_MS)
    return SocketFacts(set_congestion_control(connection, CONGESTION_CONTROL), fast)


def set_congestion_control(connection: socket.socket, name: str) -> str:
    """Ask for an algorithm; the one in use afterwards. Unprivileged users may use those that the kernel allows."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name.encode())
    try:
        return (
            connection.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, 16)
            .partition(b"\0")[0]
            .decode("ascii", "replace")
        )
    except OSError:
        return "unknown"


def restart_congestion_control(connection: socket.socket, name: str) -> None:
    """Let an idle connection's algorithm start anew, with the window it has."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"reno")
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name.encode())


def set_unsent_limit(connection: socket.socket, size_bytes: int = NOTSENT_LOWAT_BYTES) -> bool:
    """Let a sender block once so much waits unsent in the kernel."""
    return _try_option(connection, _TCP_NOTSENT_LOWAT, size_bytes)


def set_pacing(connection: socket.socket, bytes_per_s: int | None) -> bool:
    """The most that the kernel sends a second; None: no limit."""
    rate = _MAX_U64 if bytes_per_s is None else max(1, bytes_per_s)
    try:
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", rate))
    except OSError:
        return False
    return True


def read_tcp_info(connection: socket.socket) -> bytes:
    """The kernel's tcp_info, as long as this kernel makes it; empty if the socket is closed."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return b""


def progress_of(tcp_info: bytes) -> Progress | None:
    """What the judgement of stuck streams needs of it; None where the kernel does not say."""
    values = [_field(tcp_info, place) for place in (_BYTES_ACKED, _TOTAL_RETRANS, _RTT_US)]
    acked_bytes, retransmits, rtt_us = values
    if acked_bytes is None or retransmits is None or rtt_us is None:
        return None
    return Progress(acked_bytes, retransmits, rtt_us / 1e6)


def delivered_bytes(tcp_info: bytes) -> int | None:
    """What the other end's TCP has, in whatever order it came; None where the kernel does not say."""
    segments, mss_bytes = _field(tcp_info, _DELIVERED), _field(tcp_info, _MSS)
    return None if segments is None or mss_bytes is None else segments * mss_bytes


def _field(tcp_info: bytes, place: tuple[int, str]) -> int | None:
    offset, form = place
    if len(tcp_info) < offset + struct.calcsize(form):
        return None
    value: int = struct.unpack_from(form, tcp_info, offset)[0]
    return value


def _try_option(connection: socket.socket, option: int, value: int) -> bool:
    try:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError:
        return False
    return True
