"""The kernel's view of one TCP stream: `struct tcp_info`, as `getsockopt(TCP_INFO)` returns it.

Linux only ever adds fields at the end, so that an older kernel returns fewer bytes: a field beyond them is None, never
zero. Also how large the kernel lets send buffers grow. Holds no socket.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TCP_INFO_OPTION: Final = 11
"""Linux's number; not every Python names it."""
TCP_INFO_BYTES: Final = 512
"""Room for kernels newer than this code; they fill what they know."""

# The kernel's own byte order: the struct never leaves the machine. Offsets as in include/uapi/linux/tcp.h.
_U32: Final = struct.Struct("=I")
_U64: Final = struct.Struct("=Q")
_FLAGS_OFFSET: Final = 7
_APP_LIMITED_BIT: Final = 0x01 if sys.byteorder == "little" else 0x80
_MICROS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """What a stream's TCP says of itself; None where this kernel does not say it."""

    app_limited: bool | None
    """The last delivery rate was limited by the sender having nothing to send."""
    mss_bytes: int | None
    rtt_s: float | None
    cwnd_segments: int | None
    total_retransmits: int | None
    pacing_bytes_per_s: int | None
    acked_bytes: int | None
    unsent_bytes: int | None
    min_rtt_s: float | None
    delivery_bytes_per_s: int | None
    busy_s: float | None
    rwnd_limited_s: float | None
    sndbuf_limited_s: float | None
    sent_bytes: int | None
    retransmitted_bytes: int | None


def parse_tcp_info(data: bytes) -> TcpInfo:
    """Read what is there of the struct. Any bytes will do, none included."""
    return TcpInfo(
        app_limited=bool(data[_FLAGS_OFFSET] & _APP_LIMITED_BIT) if len(data) > _FLAGS_OFFSET else None,
        mss_bytes=_read(_U32, data, 16),
        rtt_s=_read_s(_U32, data, 68),
        cwnd_segments=_read(_U32, data, 80),
        total_retransmits=_read(_U32, data, 100),
        pacing_bytes_per_s=_read(_U64, data, 104),
        acked_bytes=_read(_U64, data, 120),
        unsent_bytes=_read(_U32, data, 144),
        min_rtt_s=_read_min_rtt(data),
        delivery_bytes_per_s=_read(_U64, data, 160),
        busy_s=_read_s(_U64, data, 168),
        rwnd_limited_s=_read_s(_U64, data, 176),
        sndbuf_limited_s=_read_s(_U64, data, 184),
        sent_bytes=_read(_U64, data, 200),
        retransmitted_bytes=_read(_U64, data, 208),
    )


def largest_send_buffer_bytes(path: Path = Path("/proc/sys/net/ipv4/tcp_wmem")) -> int:
    """How large this network namespace lets a stream's send buffer grow; 0 where it does not say."""
    try:
        return int(path.read_text(encoding="ascii").split()[2])
    except (OSError, ValueError, IndexError):
        return 0


def _read(form: struct.Struct, data: bytes, offset: int) -> int | None:
    if len(data) < offset + form.size:
        return None
    value: int = form.unpack_from(data, offset)[0]
    return value


def _read_s(form: struct.Struct, data: bytes, offset: int) -> float | None:
    micros = _read(form, data, offset)
    return None if micros is None else micros * _MICROS


def _read_min_rtt(data: bytes) -> float | None:
    """The kernel says "never measured" with all bits set."""
    micros = _read(_U32, data, 148)
    return None if micros is None or micros == 0xFFFFFFFF else micros * _MICROS
