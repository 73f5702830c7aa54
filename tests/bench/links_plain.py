"""What our links are compared with: N plain warm TLS streams, buckets of one size from one shared queue, `sendall` and
`recv_into`, an acknowledgement per bucket. No hashes, no limit on unsent data, no tuning: as one would write it first.
"""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sync_runtime.identity.tls import client_context, server_context
from sync_runtime.links.tcp_info import parse_tcp_info

PORT = 7444
_HEAD = struct.Struct("<IIQ")
_ACK = struct.Struct("<II")
_TCP_CONGESTION = 13
_TCP_INFO = 11


def parent(config: dict[str, Any], say: Callable[..., None]) -> None:
    """Accept one control connection and N streams, send payloads: with pauses, or `paced` by lines of its input."""
    listener = socket.create_server(("", config.get("port", PORT)), backlog=128)
    listener.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"bbr")
    context = server_context(Path(config["identity"]))
    say(ready=True)
    connections = []
    for _ in range(config["streams"] + 1):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(context.wrap_socket(connection, server_side=True))
    control, streams = connections[0], connections[1:]
    time.sleep(config["warm_up_s"])
    _Payloads(control, streams, config["bucket_bytes"]).run(config, say)


class _Payloads:
    """The sending end."""

    def __init__(self, control: ssl.SSLSocket, streams: list[ssl.SSLSocket], bucket_bytes: int) -> None:
        self._control, self._streams = control, streams
        self._data = os.urandom(bucket_bytes)
        self._queue: collections.deque[tuple[int, int]] = collections.deque()
        self._starts = [threading.Semaphore(0) for _ in streams]
        self._number = -1
        self._left = 0
        self._done = threading.Event()
        threading.Thread(target=self._acknowledged, daemon=True).start()
        for stream, start in zip(streams, self._starts, strict=True):
            threading.Thread(target=self._feed, args=(stream, start), daemon=True).start()

    def run(self, config: dict[str, Any], say: Callable[..., None]) -> None:
        for number in range(config["payloads"]):
            if config.get("paced"):
                sys.stdin.readline()
            sizes = _sizes(config["size_bytes"], len(self._data))
            self._number, self._left = number, len(sizes)
            self._done.clear()
            self._queue.extend(enumerate(sizes))
            began_s = time.monotonic()
            for start in self._starts:
                start.release()
            if not self._done.wait(config.get("patience_s", 120)):
                raise TimeoutError("a payload did not arrive")
            took_s = time.monotonic() - began_s
            say(payload=number, seconds=took_s, streams=len(self._streams), queueing_ms=1000 * self._queueing_s())
            time.sleep(config["pause_s"])

    def _feed(self, stream: ssl.SSLSocket, start: threading.Semaphore) -> None:
        while True:
            start.acquire()
            while True:
                try:
                    index, size = self._queue.popleft()
                except IndexError:
                    break
                stream.sendall(_HEAD.pack(self._number, index, size))
                stream.sendall(memoryview(self._data)[:size])

    def _acknowledged(self) -> None:
        ack = bytearray(_ACK.size)
        while True:
            _fill(self._control, memoryview(ack))
            self._left -= 1
            if not self._left:
                self._done.set()

    def _queueing_s(self) -> float:
        infos = [parse_tcp_info(one.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 512)) for one in self._streams]
        found = [i.rtt_s - i.min_rtt_s for i in infos if i.rtt_s is not None and i.min_rtt_s is not None]
        return sum(found) / len(found) if found else 0.0


def child(config: dict[str, Any]) -> None:
    """Dial, receive, acknowledge until standard input ends."""
    context = client_context(Path(config["identity"]))
    address = (config["host"], config.get("port", PORT))
    control = _dial(context, address)
    lock = threading.Lock()
    for _ in range(config["streams"]):
        stream = _dial(context, address)
        threading.Thread(target=_receive, args=(stream, control, lock), daemon=True).start()
    sys.stdin.read()


def _receive(stream: ssl.SSLSocket, control: ssl.SSLSocket, lock: threading.Lock) -> None:
    head = bytearray(_HEAD.size)
    buffer = bytearray(4 << 20)
    with contextlib.suppress(EOFError, OSError):  # the sender has sent everything, and left
        while True:
            _fill(stream, memoryview(head))
            number, index, size = _HEAD.unpack(head)
            _fill(stream, memoryview(buffer)[:size])
            with lock:
                control.sendall(_ACK.pack(number, index))


def _dial(context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
    connection = socket.create_connection(address, 20)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(connection)


def _fill(connection: ssl.SSLSocket, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = connection.recv_into(view[done:])
        if not count:
            raise EOFError("the other end closed")
        done += count


def _sizes(total_bytes: int, bucket_bytes: int) -> list[int]:
    whole, rest = divmod(total_bytes, bucket_bytes)
    return [bucket_bytes] * whole + ([rest] if rest else [])
