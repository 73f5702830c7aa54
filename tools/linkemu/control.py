"""A conversation with a running emulator: one line asked, one line of JSON answered.

Knows the socket and the commands; not how the emulator was started. Safe to use from several threads.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tools.linkemu.errors import EmulatorError
from tools.linkemu.shape import LinkShape
from tools.linkemu.stats import EmulatorStats, read_stats

_REPLY_TIMEOUT_S = 10.0


class Controller:
    """Changes and reads the links of a running emulator."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_REPLY_TIMEOUT_S)
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, path: Path) -> Self:
        """Connect to a control socket; the path may be longer than a socket address can hold."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
        except OSError as error:
            connection.close()
            raise EmulatorError(f"no emulator listens on {path} ({error.strerror}): start it first") from error
        return cls(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the emulator goes on."""
        self._connection.close()

    def set(self, source: str, destination: str, shape: LinkShape) -> None:
        """Give one direction of a link a new shape; what is in flight stays in flight."""
        settings = " ".join(f"{key}={value}" for key, value in shape.settings().items())
        self.request(f"set {source} {destination} {settings}")

    def set_link(self, one: str, other: str, shape: LinkShape) -> None:
        """Give both directions the same shape."""
        self.set(one, other, shape)
        self.set(other, one, shape)

    def set_uplink(self, region: str, rate_bps: int, queue_bytes: int = 0) -> None:
        """One rate and one queue for all that a region sends, before its links' own; a rate of 0 is none again.

        Packets that have passed it keep their times; without `queue_bytes` it holds 10 ms of its rate.
        """
        self.request(f"uplink {region} {rate_bps} {queue_bytes}")

    def cut(self, source: str, destination: str) -> None:
        """Drop everything in one direction, what is in flight too, until `mend`."""
        self.request(f"cut {source} {destination}")

    def cut_link(self, one: str, other: str) -> None:
        """Cut both directions."""
        self.cut(one, other)
        self.cut(other, one)

    def mend(self, source: str, destination: str) -> None:
        """End a cut; the shape is what it was, or what was set meanwhile."""
        self.request(f"mend {source} {destination}")

    def mend_link(self, one: str, other: str) -> None:
        """Mend both directions."""
        self.mend(one, other)
        self.mend(other, one)

    def add_route(self, region: str, prefix: str) -> None:
        """Send packets for `prefix` to `region` from now on; the longest prefix wins."""
        self.request(f"route {region} {prefix}")

    def remove_route(self, region: str, prefix: str) -> None:
        """The inverse of `add_route`."""
        self.request(f"unroute {region} {prefix}")

    def reopen(self, region: str) -> None:
        """Attach to a region's interface again after it was deleted and made anew."""
        self.request(f"reopen {region}")

    def shapes(self) -> dict[tuple[str, str], LinkShape]:
        """The shape of every direction."""
        reply = self.request("shapes")
        return {(shape["from"], shape["to"]): LinkShape.from_settings(shape) for shape in reply["shapes"]}

    def cut_directions(self) -> frozenset[tuple[str, str]]:
        """Every direction that is cut now."""
        return frozenset((s["from"], s["to"]) for s in self.request("shapes")["shapes"] if s["cut"])

    def stats(self) -> EmulatorStats:
        """All counters since the last reset."""
        return read_stats(self.request("stats"))

    def reset(self) -> None:
        """Start all counters, and the lateness, anew."""
        self.request("reset")

    def request(self, line: str) -> Mapping[str, Any]:
        """Send one command and return its reply; a refusal raises with the emulator's own sentence."""
        if "\n" in line:
            raise EmulatorError("a command is a single line")
        with self._lock:
            try:
                self._connection.sendall(line.encode() + b"\n")
                reply = self._read_reply()
            except OSError as error:
                self._connection.close()  # a late reply must not be taken for the next one
                raise EmulatorError(f"the emulator does not answer ({error}): it has ended or hangs") from error
        answer = json.loads(reply)
        if not isinstance(answer, dict) or not answer.get("ok"):
            raise EmulatorError(f"the emulator refused {line.split()[:3]}: {answer.get('error', answer)}")
        return answer

    def _read_reply(self) -> bytes:
        chunks: list[bytes] = []
        while not chunks or not chunks[-1].endswith(b"\n"):
            chunk = self._connection.recv(1 << 16)
            if not chunk:
                raise EmulatorError("the emulator hung up: it has ended")
            chunks.append(chunk)
        return b"".join(chunks)
