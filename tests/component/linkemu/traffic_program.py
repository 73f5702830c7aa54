"""Plain senders, receivers and a meter, run inside a region. Standard library only; prints one line of JSON at its end.

It judges nothing: what the figures mean is for the tests and benchmarks that start it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import sys
import time

SOL_UDP, UDP_SEGMENT = 17, 103
SO_TIMESTAMPNS = 35
HEADERS_BYTES = 28  # IPv4 and UDP


def say(value: object) -> None:
    """One line of JSON to whoever started us."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def stamp_ns(data: bytes) -> int:
    """The kernel's time of arrival."""
    seconds, nanoseconds = struct.unpack("qq", data[:16])
    return int(seconds * 1_000_000_000 + nanoseconds)


def echo(host: str, count: int, interval_s: float) -> None:
    """Round-trip times of ICMP echoes, answered by the other region's kernel.

    The kernel stamps the answers: how long this program then waits for a core is not the link's doing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(5)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        times_us = []
        for number in range(count):
            words = [8 << 8, 0, os.getpid() & 0xFFFF, number]
            words[1] = 0xFFFF - sum(words) % 0xFFFF
            request = struct.pack("!4H", *words)
            started_ns = time.time_ns()
            sock.sendto(request, (host, 0))
            while True:
                packet, ancillary, _, _ = sock.recvmsg(2048, 64)
                if packet[20:21] == b"\0" and packet[24:28] == request[4:8]:
                    break
            times_us.append((stamp_ns(ancillary[0][2]) - started_ns) / 1000)
            time.sleep(interval_s)
    say({"times_us": times_us})


def tcp_sink(port: int) -> None:
    """Accept one connection after the other and throw away what comes."""
    buffer = bytearray(1 << 20)
    with socket.create_server(("", port)) as server:
        say({"ready": True})
        while True:
            connection, _ = server.accept()
            with connection:
                while connection.recv_into(buffer):
                    pass


def tcp_source(host: str, port: int, seconds: float) -> None:
    """One TCP stream as fast as it goes, in blocking calls."""
    data = bytes(1 << 18)
    end_s = time.monotonic() + seconds
    with socket.create_connection((host, port)) as sock:
        while time.monotonic() < end_s:
            sock.sendall(data)


def udp_source(host: str, port: int, rate_bps: int, ip_bytes: int, count: int) -> None:
    """Numbered datagrams at an even rate of IP bytes; many per call where the rate is high.

    A sender that could not run for a while does not make up for more than a moment of it: that would be a burst.
    """
    payload_bytes = ip_bytes - HEADERS_BYTES
    per_call, catch_up_s = (1, 0.005) if rate_bps < 50_000_000 else (max(1, 60_000 // payload_bytes), 0.05)
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        if per_call > 1:
            sock.setsockopt(SOL_UDP, UDP_SEGMENT, payload_bytes)
        padding = bytes(payload_bytes - 8)
        rate_pps = rate_bps / 8 / ip_bytes
        started_s = due_s = time.monotonic()
        while sent < count:
            now_s = time.monotonic()
            if due_s > now_s:
                time.sleep(max(0.0, min(due_s - now_s, 0.0005)))
                continue
            due_s = max(due_s, now_s - catch_up_s)
            batch = min(per_call, count - sent)
            with contextlib.suppress(ConnectionRefusedError):  # nobody listens any more; we are about to be ended
                sock.send(b"".join(struct.pack("!Q", sent + i) + padding for i in range(batch)))
            sent += batch
            due_s += batch / rate_pps
    say({"sent": sent, "seconds": time.monotonic() - started_s})


def udp_sink(port: int, patience_s: float, idle_s: float) -> None:
    """The numbers that arrived, in order, and when, by the kernel's stamps.

    Done if none comes within `patience_s`, or none any more for `idle_s`.
    """
    numbers: list[int] = []
    times_us: list[int] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind(("", port))
        sock.settimeout(patience_s)
        say({"ready": True})
        try:
            while True:
                payload, ancillary, _, _ = sock.recvmsg(2048, 64)
                numbers.append(struct.unpack_from("!Q", payload)[0])
                times_us.append(stamp_ns(ancillary[0][2]) // 1000)
                sock.settimeout(idle_s)
        except TimeoutError:
            say({"numbers": numbers, "times_us": times_us})


def _received() -> tuple[float, int, int]:
    with open("/proc/self/net/dev") as table:
        at_s = time.monotonic()
        words = next(line for line in table if line.strip().startswith("eth0:")).partition(":")[2].split()
    return at_s, int(words[0]), int(words[1])


def meter(port: int, warm_s: float, seconds: float, slices: int) -> None:
    """What the kernel counted on the region's interface, slice by slice, after a while of warming up.

    Holds a UDP port meanwhile, so that the kernel does not answer datagrams with errors.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", port))
        say({"ready": True})
        time.sleep(warm_s)
        marks = [_received()]
        say({"begun": True})
        for number in range(slices):
            time.sleep(max(0.0, marks[0][0] + seconds * (number + 1) / slices - time.monotonic()))
            marks.append(_received())
    say({"marks": marks})


def main() -> None:
    """The first argument names a function above; the others are its arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("arguments", nargs="*")
    wanted = parser.parse_args()
    arguments = [json.loads(a) if a[0] in '0123456789"' and a.count(".") < 3 else a for a in wanted.arguments]
    {f.__name__: f for f in (echo, tcp_sink, tcp_source, udp_source, udp_sink, meter)}[wanted.what](*arguments)


if __name__ == "__main__":
    main()
