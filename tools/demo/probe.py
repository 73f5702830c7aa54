"""Runs inside the demo's pods: `serve` in the sidecar answers, `measure` in the main container asks the other regions.

Standard library only, for the pod has nothing but this machine's Python.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path

PORT = 7000
HEALTH = Path("/shared/sidecar-is-up")
RESULT = Path("/shared/measured.json")
PINGS = 5
PAYLOAD_BYTES = 24 << 20
CHUNK = bytes(1 << 16)


class _Answer(socketserver.BaseRequestHandler):
    """One byte is a ping and comes back; `D` asks for the payload."""

    def handle(self) -> None:
        while word := self.request.recv(1):
            if word == b"D":
                for _ in range(PAYLOAD_BYTES // len(CHUNK)):
                    self.request.sendall(CHUNK)
            else:
                self.request.sendall(word)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve() -> None:
    """The sidecar: answers pings and payload requests from other regions."""
    with _Server(("", PORT), _Answer) as server:
        HEALTH.write_text("yes")
        server.serve_forever()


def measure_peer(address: str) -> dict[str, float]:
    """Round-trip time and rate to one peer, as the pod's own sockets see them."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips = []
        for _ in range(PINGS):
            started = time.monotonic()
            sock.sendall(b"p")
            sock.recv(1)
            round_trips.append(time.monotonic() - started)
        sock.sendall(b"D")
        received, first = len(sock.recv(65536)), time.monotonic()
        after_start_up = 0
        marked = first
        while received < PAYLOAD_BYTES:
            received += len(sock.recv(1 << 20))
            # The first half is TCP finding its pace; the rest shows the link.
            if after_start_up == 0 and received > PAYLOAD_BYTES // 2:
                after_start_up, marked = received, time.monotonic()
        seconds = time.monotonic() - marked
    return {
        "rtt_ms": round(min(round_trips) * 1e3, 1),
        "mbit_per_s": round((PAYLOAD_BYTES - after_start_up) * 8e-6 / seconds, 1),
    }


def measure() -> None:
    """The main container: measures every peer in PEERS (`region=host:port,…`), then waits to be removed."""
    peers = dict(entry.split("=") for entry in os.environ["PEERS"].split(","))
    result: dict[str, dict[str, float] | str] = {}
    for region, address in peers.items():
        for attempt in range(20):
            try:
                result[region] = measure_peer(address)
                break
            except OSError as error:
                result[region] = f"{error} (attempt {attempt + 1})"
                time.sleep(0.5)
    staged = RESULT.with_suffix(".part")
    staged.write_text(json.dumps(result))
    staged.replace(RESULT)
    threading.Event().wait()


if __name__ == "__main__":
    {"serve": serve, "measure": measure}[sys.argv[1]]()
